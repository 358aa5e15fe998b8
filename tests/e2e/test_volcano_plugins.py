"""Volcano's documented examples, run by Muster: what their pods are given, what is kept for them, their end.

The jobs are those of Volcano's guides to its plugins, by names, tasks, flags and policies; and a CronJob.
"""

import json
from base64 import b64decode
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from tests.e2e.harness.client import refusal
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    CONFIG_MAPS,
    EVENTS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VERSION, VolcanoJobs, policy, task
from tests.e2e.harness.waiting import wait_for

pytestmark = [
    pytest.mark.view,
    pytest.mark.muster_flags("--volcano-jobs=on"),
    pytest.mark.usefixtures("volcano_kinds"),
]

Json = dict[str, Any]
COMPLETE_JOB = policy("TaskCompleted", "CompleteJob")


@pytest.fixture
def jobs(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> VolcanoJobs:
    stage.nodes(2, cpu="4")
    return VolcanoJobs(stage.api, stage.namespace, stage.kubelet)


def own(stage: Stage, jobs: VolcanoJobs, job: str, kind: Resource, name: str) -> Json:
    """Create an object that is to belong to the job."""
    found = stage.api.get(kind, name, stage.namespace)
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [
        jobs.get(job)["metadata"]["uid"]
    ]
    return found


def secret_name(jobs: VolcanoJobs, job: str) -> str:
    return str(jobs.status(job)["controlledResources"]["plugin-ssh"])


def env(stage: Stage, pod: str) -> dict[str, str | None]:
    variables = stage.pod(pod)["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value") for each in variables}


def test_mpi(stage: Stage, jobs: VolcanoJobs) -> None:
    """how_to_use_mpi_plugin. The master may be restarted until the workers answer."""
    flags = ["--master=mpimaster", "--worker=mpiworker", "--port=22"]
    tasks = task("mpimaster", 1, policies=[COMPLETE_JOB], restartPolicy="OnFailure"), task("mpiworker", 2)
    jobs.create("lm-mpi-job", *tasks, plugins={"mpi": flags}, minAvailable=1)
    jobs.wait_pods("lm-mpi-job", 3, "Running")
    master = stage.pod("lm-mpi-job-mpimaster-0")["spec"]
    workers = "lm-mpi-job-mpiworker-0.lm-mpi-job,lm-mpi-job-mpiworker-1.lm-mpi-job"
    assert env(stage, "lm-mpi-job-mpimaster-0")["MPI_HOST"] == workers
    assert "MPI_HOST" not in env(stage, "lm-mpi-job-mpiworker-0")
    assert (master["hostname"], master["subdomain"]) == ("lm-mpi-job-mpimaster-0", "lm-mpi-job")
    assert master["containers"][0]["ports"] == [
        {"containerPort": 22, "name": "mpijob-port", "protocol": "TCP"}
    ]
    service = own(stage, jobs, "lm-mpi-job", SERVICES, "lm-mpi-job")["spec"]
    labels = stage.pod("lm-mpi-job-mpiworker-1")["metadata"]["labels"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= labels.items()
    network = own(stage, jobs, "lm-mpi-job", NETWORK_POLICIES, "lm-mpi-job")["spec"]
    assert network["podSelector"]["matchLabels"].items() <= labels.items()
    assert own(stage, jobs, "lm-mpi-job", SECRETS, secret_name(jobs, "lm-mpi-job"))["data"].keys() == {
        "id_rsa",
        "id_rsa.pub",
        "authorized_keys",
        "config",
    }
    jobs.finish("lm-mpi-job", "lm-mpi-job-mpimaster-0")
    jobs.wait_phase("lm-mpi-job", "Completed")
    assert jobs.wait_pods("lm-mpi-job", 1).keys() == {"lm-mpi-job-mpimaster-0"}


def test_tensorflow(stage: Stage, jobs: VolcanoJobs) -> None:
    """tf-dist-mnist-example: the pods read the lists of hosts, and which of them they are."""
    tasks = task("ps", 1), task("worker", 2, policies=[COMPLETE_JOB])
    jobs.create(
        "dist-mnist",
        *tasks,
        plugins={"env": [], "svc": [], "tensorflow": []},
        policies=[policy("PodEvicted", "RestartJob")],
        queue="default",
        minAvailable=3,
    )
    jobs.wait_pods("dist-mnist", 3, "Running")
    found = env(stage, "dist-mnist-worker-1")
    assert (found["VK_TASK_INDEX"], found["VC_TASK_INDEX"]) == ("1", "1")
    config = json.loads(found["TF_CONFIG"] or "")
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["ps"] == ["dist-mnist-ps-0.dist-mnist:2222"]
    lists = own(stage, jobs, "dist-mnist", CONFIG_MAPS, "dist-mnist-svc")["data"]
    assert lists["worker.host"].split("\n") == [
        "dist-mnist-worker-0.dist-mnist",
        "dist-mnist-worker-1.dist-mnist",
    ]
    mounts = stage.pod("dist-mnist-ps-0")["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "dist-mnist-svc", "mountPath": "/etc/volcano"} in mounts
    jobs.finish("dist-mnist", "dist-mnist-worker-0", "dist-mnist-worker-1")
    jobs.wait_phase("dist-mnist", "Completed")


def test_pytorch(stage: Stage, jobs: VolcanoJobs) -> None:
    flags = ["--master=master", "--worker=worker", "--port=23456"]
    tasks = task("master", 1, policies=[COMPLETE_JOB]), task("worker", 2)
    jobs.create("pytorch-job", *tasks, plugins={"pytorch": flags}, minAvailable=1)
    jobs.wait_pods("pytorch-job", 3, "Running")
    ranks = {}
    for name in jobs.pods("pytorch-job"):
        found = env(stage, name)
        assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("pytorch-job-master-0.pytorch-job", "23456")
        assert found["WORLD_SIZE"] == "3"
        ranks[name] = found["RANK"]
    assert ranks == {"pytorch-job-master-0": "0", "pytorch-job-worker-0": "1", "pytorch-job-worker-1": "2"}
    jobs.finish("pytorch-job")
    jobs.wait_phase("pytorch-job", "Completed")


def test_ssh_and_lists_of_hosts_that_grow(stage: Stage, jobs: VolcanoJobs) -> None:
    """job-plugin.yaml, with three flags of svc. The key is one that OpenSSH reads."""
    plugins = {
        "env": [],
        "ssh": ["--ssh-key-file-path=/home/user/.ssh"],
        "svc": [
            "--publish-not-ready-addresses=false",
            "--disable-network-policy=true",
            "--inject-hosts-env=true",
        ],
    }
    jobs.create("job", task("default-nginx", 2), plugins=plugins, maxRetry=5, queue="default", minAvailable=1)
    jobs.wait_pods("job", 2, "Running")
    secret = own(stage, jobs, "job", SECRETS, secret_name(jobs, "job"))
    files = {name: b64decode(text) for name, text in secret["data"].items()}
    public = (
        load_ssh_private_key(files["id_rsa"], None)
        .public_key()
        .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
    assert files["authorized_keys"] == files["id_rsa.pub"] == public + b"\n"
    assert b"HostName job-default-nginx-1.job\n" in files["config"]
    assert stage.api.find(NETWORK_POLICIES, "job", stage.namespace) is None
    container = stage.pod("job-default-nginx-0")["spec"]["containers"][0]
    assert {"name": "job-ssh", "mountPath": "/home/user/.ssh", "subPath": ".ssh"} in container["volumeMounts"]

    jobs.scale("job", 3)
    jobs.wait_pods("job", 3, "Running")
    lists = own(stage, jobs, "job", CONFIG_MAPS, "job-svc")["data"]
    assert (lists["VC_DEFAULT_NGINX_NUM"], lists["default_nginx.host"].count("\n")) == ("3", 2)
    again = stage.api.get(SECRETS, secret_name(jobs, "job"), stage.namespace)
    assert again["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
    jobs.finish("job")
    jobs.wait_phase("job", "Completed")


def test_ray(stage: Stage, jobs: VolcanoJobs) -> None:
    plugins: Json = {"ray": ["--headContainer=main", "--workerContainer=main"], "svc": []}
    jobs.create("ray-cluster-job", task("head", 1), task("worker", 2), plugins=plugins, minAvailable=3)
    jobs.wait_pods("ray-cluster-job", 3, "Running")
    head, worker = (
        stage.pod(f"ray-cluster-job-{name}-0")["spec"]["containers"][0] for name in ("head", "worker")
    )
    assert "ray start --head" in head["command"][-1]
    assert "--address=ray-cluster-job-head-0.ray-cluster-job:6379" in worker["command"][-1]
    service = own(stage, jobs, "ray-cluster-job", SERVICES, "ray-cluster-job-head-svc")["spec"]
    assert [port["port"] for port in service["ports"]] == [6379, 8265, 10001]
    labels = stage.pod("ray-cluster-job-head-0")["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    jobs.finish("ray-cluster-job")
    jobs.wait_phase("ray-cluster-job", "Completed")


def test_an_object_of_others_is_left_alone_and_the_job_waits_for_its_name(
    stage: Stage, jobs: VolcanoJobs
) -> None:
    meta = {"name": "job", "namespace": stage.namespace}
    spec = {"ports": [{"port": 80}], "selector": {"app": "web"}}
    stage.api.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    jobs.create("job", plugins={"svc": ["--loud"], "horovod": []})
    wait_for(lambda: 'services "job"' in event_messages(stage, "job", "FailedCreate"), what="it is said")
    assert jobs.pods("job") == {}
    assert stage.api.get(SERVICES, "job", stage.namespace)["spec"]["selector"] == {"app": "web"}
    stage.api.delete(SERVICES, "job", stage.namespace)
    jobs.wait_pods("job", 2, "Running")
    faults = event_messages(stage, "job", "InvalidJob")
    assert "horovod" in faults
    assert "unknown flag --loud" in faults


def event_messages(stage: Stage, about: str, reason: str = "") -> str:
    return "\n".join(
        each["message"]
        for each in stage.api.items(EVENTS, stage.namespace)
        if each["involvedObject"]["name"] == about and reason in ("", each["reason"])
    )


# ---- CronJobs


def test_a_cron_job_makes_a_job_that_runs_and_the_oldest_goes(stage: Stage, jobs: VolcanoJobs) -> None:
    last = jobs.create_cron("cron", task(), minAvailable=1)
    job = jobs.made_by_cron("cron")
    cron = stage.api.get(VOLCANO_CRON_JOBS, "cron", stage.namespace)
    made = stage.api.get(VOLCANO_JOBS, job, stage.namespace)["metadata"]
    assert made["ownerReferences"][0]["uid"] == cron["metadata"]["uid"]
    jobs.wait_pods(job, 2, "Running")
    jobs.finish(job)
    wait_for(lambda: stage.api.find(VOLCANO_JOBS, job, stage.namespace) is None, what="the ended Job is gone")

    def reported() -> Any:
        """Return the reported status, which is written once the Job is gone."""
        status = stage.api.get(VOLCANO_CRON_JOBS, "cron", stage.namespace)["status"]
        return "lastSuccessfulTime" in status and status

    assert wait_for(reported, what="its success is reported")["lastScheduleTime"] > last


def test_an_unreadable_schedule_is_refused_or_reported(stage: Stage, jobs: VolcanoJobs) -> None:
    def create(name: str, **spec: Any) -> None:
        meta = {"name": name, "namespace": stage.namespace}
        whole = {"jobTemplate": {}, **spec}
        stage.api.create(
            VOLCANO_CRON_JOBS, {"apiVersion": VERSION, "kind": "CronJob", "metadata": meta, "spec": whole}
        )

    assert "spec.schedule" in refusal(lambda: create("every", schedule="@every 5m"))
    create("minute", schedule="61 * * * *")
    create("zone", schedule="* * * * *", timeZone="Mars/Olympus")
    wait_for(
        lambda: "Bad minute" in event_messages(stage, "minute", "InvalidSchedule"),
        what="the invalid schedule is reported",
    )
    wait_for(lambda: "Mars" in event_messages(stage, "zone", "InvalidSchedule"), what="so is the zone")
