"""Jobs whose pods are there already, and name no group: those that work together start together."""

from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import Namespace
from extender.api.objects.pods import Pod
from extender.api.workloads.sets import JOB_SET
from extender.api.workloads.shape import JOB, Json
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.jobs import AnyJob, JobKind
from tests.domain.builders import NAMESPACE, node, pod, queue
from tests.domain.builders import group as pod_group
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import World, key
from tests.rows import each_of

PYTORCH = JobKind("kubeflow.org/v1", "PyTorchJob")
TEMPLATE: Json = {"spec": {"schedulerName": "muster", "containers": [{"name": "c", "image": "i"}]}}


def world(*objects: Any) -> World:
    return World(*objects, auto_groups=True)


def annotated(asked: str) -> dict[str, str]:
    return {keys.MIN_MEMBER: asked} if asked else {}


def controller(kind: JobKind, name: str, spec: Json, asked: str = "") -> tuple[JobKind, AnyJob]:
    meta = Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", annotations=annotated(asked))
    return kind, AnyJob(meta, spec)


def training(name: str = "train", workers: int = 3, asked: str = "") -> tuple[JobKind, AnyJob]:
    replicas = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": workers, "template": TEMPLATE}}
    return controller(PYTORCH, name, {"pytorchReplicaSpecs": replicas}, asked)


def indexed(name: str, pods: int) -> tuple[JobKind, AnyJob]:
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return controller(JobKind(*JOB), name, {**counts, "template": TEMPLATE})


def member(
    name: str, kind: JobKind, owner: str, labels: dict[str, str] | None = None, asked: str = ""
) -> Pod:
    new_pod = pod(name)
    owners = [OwnerReference(*kind, owner, f"uid-{owner}", True)]
    meta = replace(new_pod.metadata, owner_references=owners, labels=labels, annotations=annotated(asked))
    return replace(new_pod, metadata=meta)


def members(count: int, kind: JobKind = PYTORCH, owner: str = "train", asked: str = "") -> list[Pod]:
    return [member(f"{owner}-{n}", kind, owner, asked=asked) for n in range(count)]


def group(owner: str = "train") -> str:
    return f"podgroup-uid-{owner}"


def test_the_pods_of_a_training_job_start_together_or_not_at_all() -> None:
    cluster = world(node("n", cpu="3"))
    cluster.ledger.intake.set_controller(*training())
    cluster.add(*members(4)).settle()
    assert cluster.verdict(group()) is Verdict.WAITING
    assert cluster.claim_count() == 0
    cluster.add(node("m", cpu="1")).settle()
    assert len(cluster.plan(group())) == 4


def test_an_indexed_job_is_whole_and_another_is_not() -> None:
    cluster = world(node("n", cpu="3"))
    plain = controller(JobKind(*JOB), "plain", {"parallelism": 4, "completions": 4, "template": TEMPLATE})
    for each in (indexed("ranks", 4), plain):
        cluster.ledger.intake.set_controller(*each)
    cluster.add(*members(4, JobKind(*JOB), "ranks"), *members(4, JobKind(*JOB), "plain")).settle()
    assert cluster.verdict(group("ranks")) is Verdict.WAITING
    assert cluster.verdict(group("plain")) is Verdict.STARTING


@each_of(JobKind(*JOB), PYTORCH)
def test_pods_wait_for_a_job_that_the_watch_has_not_shown_yet(kind: JobKind) -> None:
    cluster = world(node("n", cpu="2"))
    cluster.ledger.intake.expect_controllers(lambda shown: shown == "/".join(kind))
    cluster.add(*members(2, kind), pod("alone")).settle()
    assert cluster.verdict(group()) is Verdict.WAITING
    assert not cluster.ledger.groups.auto_group(GroupKey(f"{NAMESPACE}/{group()}")).has_live_pods
    made_by = training(workers=1) if kind == PYTORCH else indexed("train", 2)
    cluster.ledger.intake.set_controller(*made_by)
    cluster.add(node("m", cpu="1")).settle()
    assert len(cluster.plan(group())) == 2


def test_annotations_of_job_pods_namespace_and_queue() -> None:
    cluster = world(node("n", cpu="2"))
    cluster.ledger.intake.set_controller(*training())
    cluster.add(*members(4)).settle()
    assert cluster.verdict(group()) is Verdict.WAITING
    of_queue = queue("default")
    recorded = replace(of_queue, metadata=replace(of_queue.metadata, annotations={keys.MIN_MEMBER: "2"}))
    cluster.add(recorded).settle()
    assert cluster.verdict(group()) is Verdict.STARTING
    cluster.add(Namespace(Meta(name=NAMESPACE, annotations={keys.MIN_MEMBER: "all"}))).settle()
    assert cluster.verdict(group()) is Verdict.WAITING
    cluster.add(*members(4, asked="1")).settle()
    assert cluster.verdict(group()) is Verdict.STARTING
    cluster.ledger.intake.set_controller(*training(asked="4"))
    cluster.settle()
    assert cluster.verdict(group()) is Verdict.WAITING


def test_an_annotation_that_makes_no_sense_is_the_reason() -> None:
    cluster = world(node("n", cpu="9"))
    cluster.ledger.intake.set_controller(*training(asked="most"))
    cluster.add(*members(4)).settle()
    assert cluster.reason(group()) is Reason.INVALID_SPEC
    assert "invalid value 'most': " in cluster.decision(group()).detail


# ---- pods of one job with several controllers


def test_the_jobs_of_a_job_set_are_one_gang() -> None:
    cluster = world(node("n", cpu="3"))
    job = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
    jobs = [{"name": "a", "replicas": 1, "template": job}, {"name": "b", "replicas": 1, "template": job}]
    cluster.ledger.intake.set_controller(*controller(JobKind(*JOB_SET.key), "set", {"replicatedJobs": jobs}))
    labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "uid-set"}
    for owner in ("set-a-0", "set-b-0"):
        cluster.add(*(member(f"{owner}-{n}", JobKind(*JOB), owner, labels) for n in range(2)))
    assert cluster.settle().verdict(group("set")) is Verdict.WAITING
    assert len(cluster.add(node("m", cpu="1")).settle().plan(group("set"))) == 4


def test_an_mpi_launcher_starts_with_its_workers() -> None:
    kind = JobKind("kubeflow.org/v2beta1", "MPIJob")
    specs = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    cluster = world(node("n", cpu="2"))
    cluster.ledger.intake.set_controller(*controller(kind, "mpi", {"mpiReplicaSpecs": specs}))
    labels = {"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/operator-name": "mpi-operator"}
    cluster.add(*(member(f"mpi-worker-{n}", kind, "mpi", labels) for n in range(2)))
    cluster.add(member("mpi-launcher-x", JobKind(*JOB), "mpi-launcher", labels)).settle()
    assert cluster.verdict("podgroup-mpijob-mpi") is Verdict.WAITING
    assert len(cluster.add(node("m", cpu="1")).settle().plan("podgroup-mpijob-mpi")) == 3


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    kind, template = JobKind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), {"workerTemplate": TEMPLATE}
    cluster = world(node("n", cpu="3"))
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, **template}}
    for index in range(2):
        labels = {
            f"leaderworkerset.sigs.k8s.io/{key}": value
            for key, value in (("name", "lws"), ("group-index", f"{index}"))
        }
        for name, owner in ((f"lws-{index}", "lws"), (f"lws-{index}-1", f"lws-{index}")):
            cluster.add(member(name, JobKind("apps/v1", "StatefulSet"), owner, labels))
    reported = cluster.ledger.intake.set_controller(*controller(kind, "lws", spec))
    cluster.settle()
    groups = [f"podgroup-leaderworkerset-lws.{index}" for index in range(2)]
    assert {*map(key, groups)} <= {*reported}, "their PodGroups are made, or numbered again"
    assert sorted(cluster.verdicts(*groups)) == [Verdict.STARTING, Verdict.WAITING]
    assert cluster.claim_count() == 2


# ---- jobs that wait suspended


def test_a_job_that_says_so_starts_with_a_part() -> None:
    cluster = JobWorld(node("n0", cpu="2")).submit(job("part", 4, annotations={keys.MIN_MEMBER: "2"})).work()
    assert not cluster.suspended("part")
    assert len(cluster.plan(podgroup_name("part"))) == 2
    cluster.scheduler_takes(*cluster.plan(podgroup_name("part"))).settle()
    assert cluster.verdict(podgroup_name("part")) is Verdict.RUNNING
    assert cluster.podgroups["part"].spec.min_member == 2


def test_a_job_with_a_minimum_above_its_pods_is_not_admitted() -> None:
    cluster = JobWorld(node("n0", cpu="9")).submit(job("odd", 4, annotations={keys.MIN_MEMBER: "9"})).work()
    assert cluster.suspended("odd")
    assert cluster.reason(podgroup_name("odd")) is Reason.INVALID_SPEC
    assert "invalid value 9: " in cluster.decision(podgroup_name("odd")).detail


SPARK = JobKind("sparkoperator.k8s.io/v1beta2", "SparkApplication")


def test_a_driver_starts_alone_and_capacity_for_its_executors_is_reserved() -> None:
    cluster = world(node("n", cpu="3"))
    key, unit = GroupKey(f"{NAMESPACE}/{group('app')}"), group("app")
    spec = {"driver": {"cores": 1}, "executor": {"cores": 1, "instances": 2}}
    parts = {role: {**part, "template": {"spec": {"schedulerName": "muster"}}} for role, part in spec.items()}
    kind, app = controller(SPARK, "app", {"suspend": True, **parts})
    named = {keys.QUEUE: "default"}
    cluster.ledger.intake.set_job(kind, replace(app, metadata=replace(app.metadata, annotations=named)))
    cluster.add(pod_group(unit, 3)).settle()
    managed = cluster.ledger.managed_job(key)
    assert managed is not None
    assert (managed.member_count, managed.has_capacity) == (3, True)
    started = named | {keys.STARTED: "2026-01-01T00:00:00Z"}
    meta = replace(app.metadata, annotations=started)
    cluster.ledger.intake.set_job(kind, replace(app, metadata=meta, spec={**app.spec, "suspend": False}))
    cluster.add(pod("app-driver", unit, more={"memory": "1408Mi"})).settle()
    cluster.scheduler_takes("app-driver").settle()
    cluster.run("app-driver").settle()
    assert cluster.verdict(unit) is Verdict.RUNNING
    cluster.add(pod("other", owner="other")).settle()
    assert cluster.verdict(group("other")) is Verdict.WAITING, "the capacity of the executors is reserved"
    cluster.add(*(pod(f"app-exec-{n}", unit, more={"memory": "1408Mi"}) for n in range(2))).settle()
    cluster.scheduler_takes("app-exec-0", "app-exec-1").settle()
    assert all(cluster.stage(f"app-exec-{n}") is ClaimStage.BOUND for n in range(2))


def test_a_job_with_pods_from_before_an_upgrade_is_left_alone() -> None:
    """Leave the job alone, as after an upgrade: its group was of one member, and gets a larger number."""
    cluster = world(node("n", cpu="2")).add(*members(4), pod_group(group(), 1)).settle()
    (first, *_) = cluster.plan(group())
    cluster.scheduler_takes(first).settle()
    cluster.run(first).settle()
    cluster.ledger.intake.set_controller(*training())
    cluster.add(pod_group(group(), 4)).settle()
    cluster.advance(3600).settle()
    decision = cluster.decision(group())
    assert decision.verdict is Verdict.RUNNING
    assert not decision.undo


@each_of(PYTORCH, JobKind("kubeflow.org/v2beta1", "MPIJob"))
def test_the_run_time_of_a_job_counts_for_pods_that_are_not_managed(kind: JobKind) -> None:
    """Group pods of an MPIJob by its name, of other kinds by UID."""
    cluster = world(node("n", cpu="9"))
    labels = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/operator-name": "mpi-operator"}
    of_mpi = labels if kind.kind == "MPIJob" else {}
    made_by = controller(kind, "j", {"mpiReplicaSpecs": {}, "pytorchReplicaSpecs": {}})
    notes = {keys.RUN_TIME: "90m", keys.CHECKPOINT: "10m"}
    job = replace(made_by[1], metadata=replace(made_by[1].metadata, annotations=notes))
    cluster.ledger.intake.set_controller(made_by[0], job)
    cluster.add(member("j-0", kind, "j", of_mpi)).settle()
    (view,) = cluster.ledger.snapshot().groups.values()
    assert (view.spec.run_time, view.checkpoint.interval) == (5400.0, 600.0)
