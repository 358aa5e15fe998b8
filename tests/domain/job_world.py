"""A world with jobs: what Muster's controller writes, and a job controller that makes and deletes pods."""

from typing import Any, Self

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects import Meta, OwnerReference, PodGroup, Toleration
from extender.domain.jobs.job_record import JobKind
from extender.domain.jobs.reading import AnyJob
from extender.domain.jobs.steps import JobStep, next_step
from extender.domain.jobs.unit import unit
from extender.domain.model.records import GroupKey
from tests.domain.builders import NAMESPACE, SCHEDULER, group, pod
from tests.domain.world import World

_AWAY = ("not-ready", "unreachable")
_TOLERATED = [Toleration(f"node.kubernetes.io/{why}", "Exists", "", "NoExecute") for why in _AWAY]
BATCH = JobKind("batch/v1", "Job")


def job(
    name: str,
    parallelism: int = 2,
    cpu: str = "1",
    queue: str = "default",
    suspended: bool = True,
    scheduler: str = SCHEDULER,
    created: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> AnyJob:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {}, "spec": {"schedulerName": scheduler, "containers": [container]}}
    notes = {**({keys.QUEUE: queue} if queue else {}), **(annotations or {})}
    return AnyJob(
        Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-{name}",
            creation_timestamp=created or None,
            annotations=notes,
        ),
        {"suspend": suspended, "parallelism": parallelism, "template": template, **spec},
    )


def unit_name(name: str) -> str:
    return f"podgroup-uid-{name}"


class JobWorld(World):
    """`stopped`: the job controller does nothing."""

    def __init__(self, *objects: Any, **options: Any) -> None:
        super().__init__(*objects, auto_groups=True, **options)
        self.jobs: dict[str, AnyJob] = {}
        self.units: dict[str, PodGroup] = {}
        self.stopped = False
        self.steps: list[tuple[str, JobStep]] = []

    def submit(self, *jobs: AnyJob) -> Self:
        for each in jobs:
            self.jobs[each.metadata.name] = each
            self.ledger.set_job(BATCH, each)
        return self

    def change(self, name: str, **spec: Any) -> None:
        before = self.jobs[name]
        self.submit(replace(before, spec={**before.spec, **spec}))

    def remove(self, name: str) -> None:
        self.jobs.pop(name)
        self.ledger.drop_job(NAMESPACE, f"uid-{name}")
        self.units.pop(name, None)
        self.ledger.drop_group(GroupKey(f"{NAMESPACE}/{unit_name(name)}"))

    def work(self) -> Self:
        """Decide, do what is to be done about jobs, and let their controller work, until nothing changes."""
        for _ in range(20):
            self.settle()
            done = [self._step(name) for name in list(self.jobs)]
            made = [self._control(each) for each in self.jobs.values() if not self.stopped]
            if not any(done) and not any(made):
                return self
        raise AssertionError(f"does not come to rest: {self.steps}")

    def pods_of(self, name: str) -> list[str]:
        return [each for each in self.pods if each.startswith(f"{name}-")]

    def suspended(self, name: str) -> bool:
        return bool(self.jobs[name].spec["suspend"])

    def run_whole(self, name: str) -> Self:
        """Its scheduler takes all its pods, and they run."""
        self.work()
        self.scheduler_takes(*self.pods_of(name))
        self.run(*self.pods_of(name))
        return self

    # ---- inside

    def _step(self, name: str) -> bool:
        managed = self.ledger.managed_job(GroupKey(f"{NAMESPACE}/{unit_name(name)}"))
        step = next_step(managed, self.now) if managed else JobStep.NOTHING
        if managed is None or step is JobStep.NOTHING:
            return False
        self.steps.append((name, step))
        match step:
            case JobStep.MAKE_UNIT | JobStep.UPDATE_UNIT:
                self._put_unit(name, unit(managed.job, managed.queue)["spec"], {})
            case JobStep.LET_GO:
                self._put_unit(name, unit(managed.job, managed.queue)["spec"], {})
                self._suspend(name, False)
            case JobStep.GIVE_UP:
                late = (managed.group.start_timeouts if managed.group else 0) + 1
                self._put_unit(
                    name, unit(managed.job, managed.queue)["spec"], {keys.START_TIMEOUTS: f"{late}"}
                )
                self.ledger.give_up_start(managed.job.group, "too late")
                self._suspend(name, True)
            case JobStep.GIVE_WAY:
                self._suspend(name, True)
            case JobStep.STOP:
                self.change(name, suspend=True)
            case JobStep.REMOVE_UNIT:
                del self.units[name]
                self.ledger.drop_group(GroupKey(f"{NAMESPACE}/{unit_name(name)}"))
        return True

    def _put_unit(self, name: str, spec: dict[str, Any], notes: dict[str, str]) -> None:
        before = self.units[name].metadata.annotations if name in self.units else None
        made = group(
            unit_name(name),
            spec["minMember"],
            queue=spec["queue"],
            created=self.jobs[name].metadata.creation_timestamp or "",
            annotations={**(before or {}), **notes},
            admitted=self.ledger.history(GroupKey(f"{NAMESPACE}/{unit_name(name)}"))[2],
        )
        self.units[name] = made
        self.add(made)

    def _suspend(self, name: str, suspended: bool) -> None:
        before = self.jobs[name]
        notes = {
            key: text for key, text in (before.metadata.annotations or {}).items() if key != keys.STARTED
        }
        notes |= {} if suspended else {keys.STARTED: "now"}
        meta = replace(before.metadata, annotations=notes)
        self.submit(replace(before, metadata=meta, spec={**before.spec, "suspend": suspended}))

    def _control(self, each: AnyJob) -> bool:
        name, there = each.metadata.name, self.pods_of(each.metadata.name)
        if each.spec["suspend"]:
            self.delete(*there)
            return bool(there)
        missing: int = each.spec["parallelism"] - len(there)
        cpu = each.spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for number in range(max(missing, 0)):
            self.add(_pod(each, f"{name}-{len(there) + number}", cpu))
        return missing > 0


def _pod(owner: AnyJob, name: str, cpu: str) -> Any:
    from extender.api.objects import Toleration

    tolerated = [
        Toleration(f"node.kubernetes.io/{why}", "Exists", "", "NoExecute")
        for why in ("not-ready", "unreachable")
    ]
    made = pod(name, cpu=cpu, gated=False, tolerations=tolerated)
    meta = owner.metadata
    controller = OwnerReference("batch/v1", "Job", meta.name, meta.uid, True)
    return replace(made, metadata=replace(made.metadata, owner_references=[controller]))
