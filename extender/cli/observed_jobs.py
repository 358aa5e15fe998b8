"""Jobs as the API server has them, each with its PodGroup, and what commands read off them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from extender.api.keys import HOLD, START_TIMEOUTS, STARTED
from extender.api.objects.base import Meta
from extender.api.workloads.lifecycle import is_suspended, outcome_of
from extender.api.workloads.partial import PartialStart, partial_start
from extender.api.workloads.runtimes import is_whole
from extender.api.workloads.shape import WorkloadRow
from extender.cli.explain.pod_state import SCHEDULERS
from extender.cli.observed import ObservedGroup
from extender.cli.owner_kinds import table
from extender.domain.decisions.wording import position_in
from extender.domain.jobs.job_record import JobKind, JobRecord
from extender.domain.jobs.reading import AnyJob, job_record
from extender.domain.model.reasons import NOT_WAITING, Reason, Verdict
from extender.domain.model.shapes import Shapes
from extender.kube.resources import Resource

Json = dict[str, Any]


class JobState(StrEnum):
    WAITING = "Waiting"
    HELD = "Held"  # by its user, or because it came too late too often
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"  # by its user, after Muster had let it go
    FINISHED = "Finished"


class ObservedJob(NamedTuple):
    """`obj` is None where it may not be read, `unit` where no PodGroup stands for it."""

    row: WorkloadRow
    meta: Meta
    obj: Json | None
    unit: ObservedGroup | None

    @property
    def spoken_name(self) -> str:
        """`job/train`."""
        return f"{self.row.kind.lower()}/{self.meta.name}"

    @property
    def qualified_name(self) -> str:
        """`job.batch/train`, as kubectl writes it."""
        return f"{self.row.kind.lower()}.{self.row.group}/{self.meta.name}"

    @property
    def resource(self) -> Resource:
        return Resource(f"/apis/{self.row.api_version}", self.row.plural)

    @property
    def is_suspended(self) -> bool:
        return self.obj is not None and is_suspended(self.row, self.obj)

    @property
    def was_let_go(self) -> str:
        """When Muster let it go; empty if it has not."""
        return (self.meta.annotations or {}).get(STARTED, "")

    @property
    def partial_start(self) -> PartialStart | None:
        """With how many pods it was let go, if with fewer than it asks for."""
        return partial_start(self.row, self.obj) if self.obj is not None else None

    @property
    def start_timeouts(self) -> str:
        """How many times in a row it came too late; empty for none."""
        return ((self.unit and self.unit.metadata.annotations) or {}).get(START_TIMEOUTS, "")

    @property
    def state(self) -> JobState:
        if self.obj is None:
            return self._state_of_unit
        if outcome_of(self.row, self.obj):
            return JobState.FINISHED
        if self.is_suspended:
            return JobState.SUSPENDED if self.was_let_go else self._place_in_line
        return JobState.RUNNING if self._phase not in ("Pending", "Inqueue") else JobState.STARTING

    @property
    def _phase(self) -> str:
        return (self.unit.course if self.unit else "") or "Pending"

    @property
    def _state_of_unit(self) -> JobState:
        if self._phase in ("Completed", "Failed", "Aborted"):
            return JobState.FINISHED
        return JobState.RUNNING if self._phase in ("Running", "Unknown") else self._place_in_line

    @property
    def _place_in_line(self) -> JobState:
        scheduled = self.unit.scheduled if self.unit else None
        is_held = ((self.unit and self.unit.metadata.annotations) or {}).get(HOLD) == "true"
        if is_held or self.reason in (Reason.HELD, Reason.START_TIMED_OUT):
            return JobState.HELD
        return JobState.STARTING if scheduled and scheduled.reason == Verdict.STARTING else JobState.WAITING

    @property
    def reason(self) -> str:
        """Empty for one that does not wait."""
        scheduled = self.unit.scheduled if self.unit else None
        return scheduled.reason if scheduled and scheduled.reason not in NOT_WAITING else ""

    @property
    def message(self) -> str:
        scheduled = self.unit.scheduled if self.unit else None
        return scheduled.message if scheduled else ""

    @property
    def position(self) -> int:
        """1 for the next one; 0 for one that is not in line."""
        return position_in(self.message) if self.state is JobState.WAITING else 0

    @property
    def pods(self) -> int:
        """How many pods it needs at once."""
        return self.unit.spec.min_member if self.unit else 0

    @property
    def record(self) -> JobRecord | None:
        """As Muster reads it, with the scheduler names that it has by default; None where it, or the
        object that has its templates, may not be read."""
        return self.read(SCHEDULERS)

    def read(self, schedulers: Iterable[str]) -> JobRecord | None:
        """The same with other names."""
        if self.obj is None or not is_whole(self.row, self.obj):
            return None
        kind, job = JobKind(*self.row.key), msgspec.convert(self.obj, AnyJob, strict=False)
        return job_record(kind, job, table(), Shapes(), schedulers, auto_groups=True)


def observed_job(row: WorkloadRow, obj: Json, unit: ObservedGroup | None) -> ObservedJob:
    """Objects in a list of the API do not say their kind."""
    named = {**obj, "apiVersion": row.api_version, "kind": row.kind}
    return ObservedJob(row, msgspec.convert(obj["metadata"], Meta), named, unit)


def unread_job(row: WorkloadRow, unit: ObservedGroup) -> ObservedJob:
    """One that may not be read, as far as its PodGroup tells."""
    owner = unit.job
    return ObservedJob(row, Meta(owner.name if owner else "", unit.namespace), None, unit)
