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
    made = pod(name)
    owners = [OwnerReference(*kind, owner, f"uid-{owner}", True)]
    meta = replace(made.metadata, owner_references=owners, labels=labels, annotations=annotated(asked))
    return replace(made, metadata=meta)


def members(count: int, kind: JobKind = PYTORCH, owner: str = "train", asked: str = "") -> list[Pod]:
    return [member(f"{owner}-{n}", kind, owner, asked=asked) for n in range(count)]


def group(owner: str = "train") -> str:
    return f"podgroup-uid-{owner}"


def test_the_pods_of_a_training_job_start_together_or_not_at_all() -> None:
    there = world(node("n", cpu="3"))
    there.ledger.intake.set_controller(*training())
    there.add(*members(4)).settle()
    assert there.verdict(group()) is Verdict.WAITING
    assert there.claim_count() == 0
    there.add(node("m", cpu="1")).settle()
    assert len(there.plan(group())) == 4


def test_an_indexed_job_is_whole_and_another_is_not() -> None:
    there = world(node("n", cpu="3"))
    plain = controller(JobKind(*JOB), "plain", {"parallelism": 4, "completions": 4, "template": TEMPLATE})
    for each in (indexed("ranks", 4), plain):
        there.ledger.intake.set_controller(*each)
    there.add(*members(4, JobKind(*JOB), "ranks"), *members(4, JobKind(*JOB), "plain")).settle()
    assert there.verdict(group("ranks")) is Verdict.WAITING
    assert there.verdict(group("plain")) is Verdict.STARTING


@each_of(JobKind(*JOB), PYTORCH)
def test_pods_wait_for_a_job_that_the_watch_has_not_shown_yet(kind: JobKind) -> None:
    there = world(node("n", cpu="2"))
    there.ledger.intake.expect_controllers(lambda shown: shown == "/".join(kind))
    there.add(*members(2, kind), pod("alone")).settle()
    assert there.verdict(group()) is Verdict.WAITING
    assert not there.ledger.groups.auto_group(GroupKey(f"{NAMESPACE}/{group()}")).has_live_pods
    made_by = training(workers=1) if kind == PYTORCH else indexed("train", 2)
    there.ledger.intake.set_controller(*made_by)
    there.add(node("m", cpu="1")).settle()
    assert len(there.plan(group())) == 2


def test_annotations_of_job_pods_namespace_and_queue() -> None:
    there = world(node("n", cpu="2"))
    there.ledger.intake.set_controller(*training())
    there.add(*members(4)).settle()
    assert there.verdict(group()) is Verdict.WAITING
    of_queue = queue("default")
    recorded = replace(of_queue, metadata=replace(of_queue.metadata, annotations={keys.MIN_MEMBER: "2"}))
    there.add(recorded).settle()
    assert there.verdict(group()) is Verdict.STARTING
    there.add(Namespace(Meta(name=NAMESPACE, annotations={keys.MIN_MEMBER: "all"}))).settle()
    assert there.verdict(group()) is Verdict.WAITING
    there.add(*members(4, asked="1")).settle()
    assert there.verdict(group()) is Verdict.STARTING
    there.ledger.intake.set_controller(*training(asked="4"))
    there.settle()
    assert there.verdict(group()) is Verdict.WAITING


def test_an_annotation_that_makes_no_sense_is_the_reason() -> None:
    there = world(node("n", cpu="9"))
    there.ledger.intake.set_controller(*training(asked="most"))
    there.add(*members(4)).settle()
    assert there.reason(group()) is Reason.INVALID_SPEC
    assert "invalid value 'most': " in there.decision(group()).detail


# ---- pods of one job with several controllers


def test_the_jobs_of_a_job_set_are_one_gang() -> None:
    there = world(node("n", cpu="3"))
    job = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
    jobs = [{"name": "a", "replicas": 1, "template": job}, {"name": "b", "replicas": 1, "template": job}]
    there.ledger.intake.set_controller(*controller(JobKind(*JOB_SET.key), "set", {"replicatedJobs": jobs}))
    labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "uid-set"}
    for owner in ("set-a-0", "set-b-0"):
        there.add(*(member(f"{owner}-{n}", JobKind(*JOB), owner, labels) for n in range(2)))
    assert there.settle().verdict(group("set")) is Verdict.WAITING
    assert len(there.add(node("m", cpu="1")).settle().plan(group("set"))) == 4


def test_an_mpi_launcher_starts_with_its_workers() -> None:
    kind = JobKind("kubeflow.org/v2beta1", "MPIJob")
    specs = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    there = world(node("n", cpu="2"))
    there.ledger.intake.set_controller(*controller(kind, "mpi", {"mpiReplicaSpecs": specs}))
    labels = {"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/operator-name": "mpi-operator"}
    there.add(*(member(f"mpi-worker-{n}", kind, "mpi", labels) for n in range(2)))
    there.add(member("mpi-launcher-x", JobKind(*JOB), "mpi-launcher", labels)).settle()
    assert there.verdict("podgroup-mpijob-mpi") is Verdict.WAITING
    assert len(there.add(node("m", cpu="1")).settle().plan("podgroup-mpijob-mpi")) == 3


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    kind, template = JobKind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), {"workerTemplate": TEMPLATE}
    there = world(node("n", cpu="3"))
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, **template}}
    for index in range(2):
        labels = {
            f"leaderworkerset.sigs.k8s.io/{key}": value
            for key, value in (("name", "lws"), ("group-index", f"{index}"))
        }
        for name, owner in ((f"lws-{index}", "lws"), (f"lws-{index}-1", f"lws-{index}")):
            there.add(member(name, JobKind("apps/v1", "StatefulSet"), owner, labels))
    reported = there.ledger.intake.set_controller(*controller(kind, "lws", spec))
    there.settle()
    groups = [f"podgroup-leaderworkerset-lws.{index}" for index in range(2)]
    assert {*map(key, groups)} <= {*reported}, "their PodGroups are made, or numbered again"
    assert sorted(there.verdicts(*groups)) == [Verdict.STARTING, Verdict.WAITING]
    assert there.claim_count() == 2


# ---- jobs that wait suspended


def test_a_job_that_says_so_starts_with_a_part() -> None:
    there = JobWorld(node("n0", cpu="2")).submit(job("part", 4, annotations={keys.MIN_MEMBER: "2"})).work()
    assert not there.suspended("part")
    assert len(there.plan(podgroup_name("part"))) == 2
    there.scheduler_takes(*there.plan(podgroup_name("part"))).settle()
    assert there.verdict(podgroup_name("part")) is Verdict.RUNNING
    assert there.podgroups["part"].spec.min_member == 2


def test_a_job_with_a_minimum_above_its_pods_is_not_admitted() -> None:
    there = JobWorld(node("n0", cpu="9")).submit(job("odd", 4, annotations={keys.MIN_MEMBER: "9"})).work()
    assert there.suspended("odd")
    assert there.reason(podgroup_name("odd")) is Reason.INVALID_SPEC
    assert "invalid value 9: " in there.decision(podgroup_name("odd")).detail


SPARK = JobKind("sparkoperator.k8s.io/v1beta2", "SparkApplication")


def test_a_driver_starts_alone_and_capacity_for_its_executors_is_reserved() -> None:
    there = world(node("n", cpu="3"))
    key, unit = GroupKey(f"{NAMESPACE}/{group('app')}"), group("app")
    spec = {"driver": {"cores": 1}, "executor": {"cores": 1, "instances": 2}}
    parts = {role: {**part, "template": {"spec": {"schedulerName": "muster"}}} for role, part in spec.items()}
    kind, app = controller(SPARK, "app", {"suspend": True, **parts})
    named = {keys.QUEUE: "default"}
    there.ledger.intake.set_job(kind, replace(app, metadata=replace(app.metadata, annotations=named)))
    there.add(pod_group(unit, 3)).settle()
    managed = there.ledger.managed_job(key)
    assert managed is not None
    assert (managed.members, managed.has_capacity) == (3, True)
    started = named | {keys.STARTED: "2026-01-01T00:00:00Z"}
    meta = replace(app.metadata, annotations=started)
    there.ledger.intake.set_job(kind, replace(app, metadata=meta, spec={**app.spec, "suspend": False}))
    there.add(pod("app-driver", unit, more={"memory": "1408Mi"})).settle()
    there.scheduler_takes("app-driver").settle()
    there.run("app-driver").settle()
    assert there.verdict(unit) is Verdict.RUNNING
    there.add(pod("other", owner="other")).settle()
    assert there.verdict(group("other")) is Verdict.WAITING, "the capacity of the executors is reserved"
    there.add(*(pod(f"app-exec-{n}", unit, more={"memory": "1408Mi"}) for n in range(2))).settle()
    there.scheduler_takes("app-exec-0", "app-exec-1").settle()
    assert all(there.stage(f"app-exec-{n}") is ClaimStage.BOUND for n in range(2))


def test_a_job_with_pods_from_before_an_upgrade_is_left_alone() -> None:
    """Leave the job alone, as after an upgrade: its group was of one member, and gets a larger number."""
    there = world(node("n", cpu="2")).add(*members(4), pod_group(group(), 1)).settle()
    (first, *_) = there.plan(group())
    there.scheduler_takes(first).settle()
    there.run(first).settle()
    there.ledger.intake.set_controller(*training())
    there.add(pod_group(group(), 4)).settle()
    there.advance(3600).settle()
    decision = there.decision(group())
    assert decision.verdict is Verdict.RUNNING
    assert not decision.undo


@each_of(PYTORCH, JobKind("kubeflow.org/v2beta1", "MPIJob"))
def test_the_run_time_of_a_job_counts_for_pods_that_are_not_managed(kind: JobKind) -> None:
    """Group pods of an MPIJob by its name, of other kinds by UID."""
    there = world(node("n", cpu="9"))
    labels = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/operator-name": "mpi-operator"}
    of_mpi = labels if kind.kind == "MPIJob" else {}
    made_by = controller(kind, "j", {"mpiReplicaSpecs": {}, "pytorchReplicaSpecs": {}})
    notes = {keys.RUN_TIME: "90m", keys.CHECKPOINT: "10m"}
    job = replace(made_by[1], metadata=replace(made_by[1].metadata, annotations=notes))
    there.ledger.intake.set_controller(made_by[0], job)
    there.add(member("j-0", kind, "j", of_mpi)).settle()
    (view,) = there.ledger.snapshot().groups.values()
    assert (view.spec.run_time, view.checkpoint.every) == (5400.0, 600.0)
