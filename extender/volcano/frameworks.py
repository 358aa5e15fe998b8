"""Plugins for frameworks whose processes have to find each other: PyTorch, TensorFlow, MPI and Ray.

Names, flags and defaults are Volcano's (its guides how_to_use_*_plugin), so that its jobs run unchanged.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from extender.api.keys import ROLE
from extender.api.objects.volcano import TaskSpec, VolcanoJob
from extender.api.workloads.shape import Json, items_at
from extender.volcano.plugin import (
    Plugin,
    Port,
    containers,
    host,
    hosts,
    labels_of,
    open_port,
    put_env,
)
from extender.volcano.pods import owned

_MOST_TOLD = 100_000  # hosts in all containers of a pod: with more the API server does not take it


def _told_too_much(job: VolcanoJob) -> Iterator[str]:
    """Where each container would be told all hosts."""
    most = max((len(containers(task.template)) for task in job.spec.tasks), default=0)
    if (told := job.spec.members * most) > _MOST_TOLD:
        yield f"left out, as the containers of a pod would be told {told} hosts; allowed are {_MOST_TOLD}"


class Framework(Plugin, frozen=True):
    """A plugin that has a task lead the others."""

    implies: ClassVar[tuple[str, ...]] = ("svc",)

    def leader(self) -> str:
        """The task that has to be there."""
        raise NotImplementedError

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        if job.spec.task(self.leader()) is None:
            yield f"the job has no task {self.leader()}, which it needs"


class PyTorch(Framework, frozen=True):
    """Which process leads, which number each has, and how many there are."""

    name: ClassVar[str] = "pytorch"
    master: str = "master"
    worker: str = "worker"
    port: Port = 23456
    wait_master_enabled: bool = False
    wait_master_timeout: int = 300  # seconds
    wait_master_image: str = "busybox:1.36.1"

    def leader(self) -> str:
        return self.master

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        master = job.spec.task(self.master)
        if master is None:
            return
        address = host(job, master, 0)
        size = sum(task.replicas for task in job.spec.tasks if task.name in (self.master, self.worker))
        variables = {"MASTER_ADDR": address, "MASTER_PORT": str(self.port), "WORLD_SIZE": str(size)}
        if task.name in (self.master, self.worker):
            first = 0 if task.name == self.master else 1
            variables["RANK"] = str(first + index)
        for container in containers(pod, init=False):
            open_port(container, self.port, "pytorchjob-port")
            put_env(container, *({"name": name, "value": value} for name, value in variables.items()))
        if self.wait_master_enabled and task.name == self.worker:
            listens = f"until nc -z {address} {self.port}; do sleep 1; done"
            command = ["timeout", str(self.wait_master_timeout), "sh", "-c", listens]
            waiting = {"name": "wait-for-master", "image": self.wait_master_image, "command": command}
            pod["spec"]["initContainers"] = [*items_at(pod, "spec", "initContainers"), waiting]


class TensorFlow(Plugin, frozen=True):
    """TF_CONFIG: where the processes of each role are, and which of them this is."""

    name: ClassVar[str] = "tensorflow"
    implies: ClassVar[tuple[str, ...]] = ("svc",)
    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: Port = 2222

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        return _told_too_much(job)

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        """A single process needs none."""
        if job.spec.members <= 1 or any(_told_too_much(job)):
            return
        roles = {self.ps: "ps", self.worker: "worker", self.chief: "chief", self.evaluator: "evaluator"}
        cluster = {
            roles[task.name]: [f"{name}:{self.port}" for name in hosts(job, task)]
            for task in job.spec.tasks
            if task.name in roles and task.replicas
        }
        role = roles.get(task.name, task.name)
        config = {"cluster": cluster, "task": {"type": role, "index": index}}
        text = msgspec.json.encode(config).decode()
        for container in containers(pod, init=False):
            put_env(container, {"name": "TF_CONFIG", "value": text})


class Mpi(Framework, frozen=True):
    """The master knows the workers, which it reaches by ssh."""

    name: ClassVar[str] = "mpi"
    implies: ClassVar[tuple[str, ...]] = ("svc", "ssh")
    master: str = "master"
    worker: str = "worker"
    port: Port = 22

    def leader(self) -> str:
        return self.worker

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        yield from (*super().faults(job), *_told_too_much(job))

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        workers = job.spec.task(self.worker) if task.name == self.master else None
        told = ",".join(hosts(job, workers)) if workers is not None and not any(_told_too_much(job)) else None
        for container in containers(pod):
            open_port(container, self.port, "mpijob-port")
            if told is not None:
                put_env(container, {"name": "MPI_HOST", "value": told})


class Ray(Framework, frozen=True, rename="camel"):
    """A head and workers that join it; the plugin has the commands that start them."""

    name: ClassVar[str] = "ray"
    head: str = "head"
    head_container: str = "head"
    worker: str = "worker"
    worker_container: str = "worker"
    port: Port = 6379
    dashboard_port: Port = 8265
    client_port: Port = 10001

    def leader(self) -> str:
        return self.head

    def ports(self) -> dict[str, int]:
        return {"gcs": self.port, "dashboard": self.dashboard_port, "client-server": self.client_port}

    def objects(self, job: VolcanoJob) -> tuple[Json, ...]:
        ports = [{"name": name, "port": port, "targetPort": port} for name, port in self.ports().items()]
        spec = {"selector": {**labels_of(job), ROLE: self.head}, "ports": ports}
        return (owned(job, "v1", "Service", f"{job.metadata.name}-head-svc", spec=spec),)

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        head = job.spec.task(self.head)
        for container in containers(pod, init=False):
            match task.name, container.get("name"):
                case (self.head, self.head_container):
                    for name, port in self.ports().items():
                        open_port(container, port, name)
                    start = (
                        f"ray start --head --block --dashboard-host=0.0.0.0 --port={self.port} "
                        f"--dashboard-port={self.dashboard_port} --ray-client-server-port={self.client_port}"
                    )
                    container["command"] = ["sh", "-c", start]
                case (self.worker, self.worker_container) if head is not None:
                    joined = f"ray start --block --address={host(job, head, 0)}:{self.port}"
                    container["command"] = ["sh", "-c", joined]
