"""Traces for the comparison of eviction policies: jobs, jobs next to services, and training on GPUs.

The jobs are the jobs of `muster simulate --synthetic-jobs`. In the second trace, services that never end hold
two fifths of the cluster. The third trace is random, with parameters that were published for two clusters:

- Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC'21
  (Helios): more than half of the jobs request one GPU. All jobs request 3.72 GPUs on average (in Philly
  1.75). The mean run time is 6,652 s, and half of the jobs run for less than 206 s.
- Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC'19 (Philly):
  14 virtual clusters. 69.3 % of the jobs pass, 13.5 % are killed, and 17.2 % fail. These jobs take 44.5 %,
  37.7 % and 17.8 % of the GPU time.

Run times are log-normal with this median and mean. A factor makes them longer or shorter, depending on how
the job ends. No run time is longer than eight hours, so that the last job does not outweigh all other jobs.
The same seed makes the same trace.
"""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.trace import ClusterSize, Row, from_rows, job_rows, team_queues
from extender.sim.virtual.workload import VirtualWorkload, key_of_group

_LOAD = 1.8  # arriving work, as a multiple of the cluster's capacity
_NODES, _CPUS, _GPUS = 3, 32, 8  # number of nodes, CPUs of a node for jobs, and GPUs of a node for training
_GPU_NODES, _GPU_NODE_CPUS = 16, "64"
_SERVICES, _PODS_OF_SERVICE = 5, 8
_GPUS_OF_JOBS = {
    1: 60,
    2: 13,
    4: 12,
    8: 11,
    16: 3,
    32: 1,
}  # percentage of jobs, keyed by their number of GPUs
# median, mean and maximum of run times
_MEDIAN_SECONDS, _MEAN_SECONDS, _LONGEST_SECONDS = 206.0, 6652.0, 28_800.0
_STEP = 10.0  # seconds; arrivals and run times of jobs are multiples of this step
_QUEUE_WEIGHTS = (8, 6, 5, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1)  # weights of the virtual clusters


class Ending(NamedTuple):
    """One way in which jobs end, with its percentage of all jobs and of all GPU time.

    `fails` tells whether the pods of such jobs fail.
    """

    jobs: float
    gpu_time: float
    fails: bool


_ENDINGS = (Ending(69.3, 44.5, fails=False), Ending(13.5, 37.7, fails=True), Ending(17.2, 17.8, fails=True))


class Trace(NamedTuple):
    """Trace of jobs and services.

    `units` has the requested GPUs of each job's group, or the requested CPUs in a trace without GPUs.
    Services are left out.
    """

    workload: VirtualWorkload
    units: dict[str, int]
    last_arrival: float


def jobs_trace(jobs: int, seed: int) -> Trace:
    """Return the trace `jobs`."""
    return _trace(job_rows(jobs, ClusterSize(_NODES, _CPUS), seed), team_queues())


def services_trace(jobs: int, seed: int) -> Trace:
    """Return the trace `services`, in which services of five teams arrive in the first quarter.

    Half of the members of each service may be missing.
    """
    rng, pods = random.Random(seed), _SERVICES * _PODS_OF_SERVICE
    rows = job_rows(jobs, ClusterSize(_NODES, _CPUS - math.ceil(pods / _NODES)), seed)
    teams = rng.sample([queue.metadata.name for queue in team_queues() if queue.spec.parent], _SERVICES)
    for number, team in enumerate(teams):
        arrival_time = rng.uniform(0, rows[-1].arrival / 4) // _STEP * _STEP
        requests, size = {"cpu": "1", "memory": "2Gi"}, _PODS_OF_SERVICE
        rows.append(Row(arrival_time, f"service-{number}", size, size // 2, None, requests, team))
    return _trace(rows, team_queues())


def training_trace(jobs: int, seed: int) -> Trace:
    """Return the trace `training`. Half of the owners declare the run time of their job."""
    rng = random.Random(seed)
    queues = [
        Queue(Meta(f"vc-{number}"), QueueSpec(weight, placement="Pack"))
        for number, weight in enumerate(_QUEUE_WEIGHTS)
    ]
    # chance of each queue to get a job, independent of the queue's own weight
    job_chances = [rng.paretovariate(1.2) for _ in queues]
    rows, failing_groups = [], set[str]()
    for number in range(jobs):
        gpus = rng.choices(tuple(_GPUS_OF_JOBS), tuple(_GPUS_OF_JOBS.values()))[0]
        pods, gpus_per_pod = max(gpus // _GPUS, 1), min(gpus, _GPUS)
        ending = rng.choices(_ENDINGS, [ending.jobs for ending in _ENDINGS])[0]
        deviation = math.sqrt(2 * math.log(_MEAN_SECONDS / _MEDIAN_SECONDS))
        seconds = rng.lognormvariate(math.log(_MEDIAN_SECONDS), deviation) * ending.gpu_time / ending.jobs
        seconds = min(max(seconds, _STEP), _LONGEST_SECONDS) // _STEP * _STEP
        cpus = gpus_per_pod * rng.choice((4, 6, 8))
        memory = gpus_per_pod * rng.choice((24, 48, 60))
        requests = {"cpu": str(cpus), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus_per_pod)}
        queue, declared = rng.choices(queues, job_chances)[0].metadata.name, rng.choice((None, seconds))
        row = Row(0.0, f"job-{number}", pods, pods, seconds, requests, queue, declared=declared)
        rows.append(row._replace(priority=rng.choice((0, 0, 0, 0, 10))))
        if ending.fails:
            failing_groups.add(f"default/{row.group}")
    gpu_seconds = sum(
        row.members * int(row.requests["nvidia.com/gpu"]) * (row.seconds or 0.0) for row in rows
    )
    arrival_seconds = gpu_seconds / (_GPU_NODES * _GPUS) / _LOAD
    arrivals = sorted(rng.uniform(0, arrival_seconds) // _STEP * _STEP for _ in rows)
    trace = _trace(
        [row._replace(arrival=arrival_time) for row, arrival_time in zip(rows, arrivals, strict=True)], queues
    )
    members = (
        member._replace(fails=key_of_group(member.pod) in failing_groups) for member in trace.workload.members
    )
    return trace._replace(workload=replace(trace.workload, members=tuple(members)))


def _trace(rows: list[Row], queues: list[Queue]) -> Trace:
    """Return the trace of these rows, on nodes with GPUs if the jobs request GPUs."""
    jobs = [row for row in rows if row.seconds is not None]
    resource = "nvidia.com/gpu" if "nvidia.com/gpu" in jobs[0].requests else "cpu"
    if resource == "cpu":
        nodes = make_nodes(_NODES, str(_CPUS), "128Gi")
    else:
        nodes = make_nodes(_GPU_NODES, _GPU_NODE_CPUS, "512Gi", _GPUS)
    units = {f"default/{row.group}": row.members * int(row.requests[resource]) for row in jobs}
    workload = nodes + VirtualWorkload(queues=tuple(queues)) + from_rows(rows, queues, {})
    return Trace(workload, units, max(row.arrival for row in jobs))


TRACES: dict[str, Callable[[int, int], Trace]] = {
    "jobs": jobs_trace,
    "services": services_trace,
    "training": training_trace,
}
