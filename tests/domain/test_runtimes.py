"""Jobs whose templates are in another object: they are read with it, and again when it changes."""

from typing import Any, Self

from extender.api.workloads.shape import RuntimeName
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.job_start_and_suspension import JobStep
from extender.domain.snapshot.jobs import AnyJob
from tests.domain.builders import NAMESPACE, node
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.train_jobs import TRAIN_JOB, runtime

TORCH = RuntimeName("ClusterTrainingRuntime", "", "torch")
OWN = RuntimeName("TrainingRuntime", NAMESPACE, "torch")


class TrainWorld(JobWorld):
    """World where the Trainer makes no pods."""

    def __init__(self, *objects: Any) -> None:
        super().__init__(*objects)
        self.stopped = True

    def submit(self, *jobs: AnyJob) -> Self:
        for each in jobs:
            self.jobs[each.metadata.name] = each
            self.ledger.intake.set_job(TRAIN_JOB, each)
        return self

    def train(self, name: str, kind: str = "ClusterTrainingRuntime") -> Self:
        spec = {"suspend": True, "runtimeRef": {"kind": kind, "name": "torch"}}
        return self.submit(AnyJob(job(name, queue="default").metadata, spec)).work()

    def set_runtime(self, name: RuntimeName, **options: Any) -> list[GroupKey]:
        keys = self.ledger.intake.set_runtime(name, runtime(**options))
        return self._read_again(keys)

    def drop_runtime(self, name: RuntimeName) -> list[GroupKey]:
        return self._read_again(self.ledger.intake.drop_runtime(name))

    def _read_again(self, keys: Any) -> list[GroupKey]:
        for key in keys:
            self.ledger.intake.read_job_again(key)
        self.work()
        return list(keys)

    def needed(self, name: str) -> int:
        managed = self.ledger.managed_job(key_of(name))
        assert managed
        return managed.job.pod_count


def key_of(name: str) -> GroupKey:
    return GroupKey(f"{NAMESPACE}/{podgroup_name(name)}")


def test_a_job_waits_for_the_size_of_its_runtime_which_its_podgroup_has_first() -> None:
    world = TrainWorld(node("n0", cpu="3"))
    world.set_runtime(TORCH, nodes=4)
    world.train("large")
    assert world.suspended("large")
    assert world.podgroups["large"].spec.min_member == 4
    world.steps.clear()
    world.set_runtime(TORCH, nodes=3)
    assert world.steps == [("large", JobStep.UPDATE_PODGROUP), ("large", JobStep.UNSUSPEND)]
    assert not world.suspended("large")
    assert list(world.decision(podgroup_name("large")).plan.values()) == ["n0"] * 3


def test_a_job_without_its_runtime_says_which_it_waits_for_and_is_read_when_that_comes() -> None:
    world = TrainWorld(node("n0", cpu="3")).train("train")
    decision = world.decision(podgroup_name("train"))
    assert decision.reason is Reason.INVALID_SPEC
    assert "there is no ClusterTrainingRuntime torch" in decision.detail
    assert world.set_runtime(TORCH) == [key_of("train")]
    assert not world.suspended("train")


def test_an_outdated_size_of_its_podgroup_starts_no_part_of_a_train_job() -> None:
    """It is made for no pods while the runtime is missing, and changed a while after that comes."""
    world = TrainWorld(node("n0", cpu="3")).train("train")
    assert world.podgroups["train"].spec.min_member == 0
    for key in world.ledger.intake.set_runtime(TORCH, runtime(nodes=4)):
        world.ledger.intake.read_job_again(key)
    assert world.settle().reason(podgroup_name("train")) is Reason.NEVER_FITS
    assert world.work().suspended("train")
    assert world.podgroups["train"].spec.min_member == 4


def test_only_the_jobs_that_name_a_runtime_are_read_again() -> None:
    world = TrainWorld(node("n0", cpu="1")).train("of-all").train("own", kind="TrainingRuntime")
    assert world.set_runtime(OWN) == [key_of("own")]
    assert world.set_runtime(OWN) == [], "nothing has changed"
    assert world.set_runtime(RuntimeName("TrainingRuntime", "elsewhere", "torch")) == []
    assert world.set_runtime(TORCH) == [key_of("of-all")]
    world.remove("of-all")
    assert world.drop_runtime(TORCH) == []


def test_a_pending_train_job_waits_again_for_a_deleted_runtime() -> None:
    world = TrainWorld(node("n0", cpu="1"))
    world.set_runtime(TORCH)
    world.train("train")
    assert world.reason(podgroup_name("train")) is Reason.NEVER_FITS
    assert world.drop_runtime(TORCH) == [key_of("train")]
    assert world.reason(podgroup_name("train")) is Reason.INVALID_SPEC


def test_an_admitted_train_job_keeps_the_size_of_its_runtime() -> None:
    world = TrainWorld(node("n0", cpu="8"))
    world.set_runtime(TORCH, nodes=2)
    world.train("train")
    assert not world.suspended("train")
    world.set_runtime(TORCH, nodes=3)
    world.change("train", numNodes=None)  # the status reports it again
    assert world.needed("train") == 2
    world.drop_runtime(TORCH)
    assert world.ledger.registry.runtimes.used_spec(key_of("train")) == runtime(nodes=2)
    world.set_runtime(TORCH, nodes=5)
    world.change("train", suspend=True)
    world.settle()
    assert world.needed("train") == 5


def test_a_train_job_of_another_scheduler_is_left_alone() -> None:
    world = TrainWorld(node("n0", cpu="8"))
    world.set_runtime(TORCH, scheduler="default-scheduler")
    world.train("train")
    assert world.ledger.managed_job(key_of("train")) is None


def test_runtimes_of_deleted_jobs_are_forgotten() -> None:
    world = TrainWorld(node("n0", cpu="8"))
    world.set_runtime(TORCH)
    world.train("train").remove("train")
    assert world.ledger.registry.runtimes.used_spec(key_of("train")) is None
    assert world.set_runtime(TORCH, nodes=7) == []
