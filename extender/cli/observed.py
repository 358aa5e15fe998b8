"""Queues and PodGroups as the API server has them, what commands read off them, and what happened to them."""

from collections.abc import Iterable

from extender.api.keys import QUOTA_SOURCE, SCHEDULED
from extender.api.objects.base import Condition, OwnerReference, condition
from extender.api.objects.cluster import Event
from extender.api.objects.queues import PodGroup, Queue, WaitingStatus
from extender.cli.kinds import job_row
from extender.cli.output import NOTHING, age
from extender.domain.model.ownership import stands_for
from extender.domain.model.reasons import NOT_WAITING, Reason
from extender.domain.queues.quota_records import entering
from extender.kube.errors import Forbidden, NotFound
from extender.kube.requests import Reader
from extender.kube.resources import EVENTS
from extender.terminal.text import columns

_PHASES = ("", "Pending", "Inqueue", "Running", "Unknown", "Completed", "Failed", "Aborted")
_COLUMNS = ("pending", "inqueue", "running", "unknown", "completed", "failed", "aborted")


class ObservedQueue(Queue, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def state(self) -> str:
        """What the status says, else what will be."""
        return self.status.state or self.spec.state or "Open"

    @property
    def quota(self) -> str:
        """The quota that it is made from, or empty."""
        return (self.metadata.annotations or {}).get(QUOTA_SOURCE, "")

    @property
    def entering(self) -> list[str]:
        """The namespaces that a quota lets enter it."""
        return entering(self.metadata.annotations)

    @property
    def share(self) -> float:
        return self.status.share or 0.0

    @property
    def has_fault(self) -> bool:
        """Whether its own specification is invalid."""
        found = condition(self.status.conditions, "Valid")
        return found is not None and found.status == "False"

    @property
    def counts(self) -> dict[str, int]:
        """Its groups by how they fare. A count that is not written yet is shown as 0."""
        return {column: getattr(self.status, column) or 0 for column in _COLUMNS}


class ObservedGroup(PodGroup, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def maker(self) -> OwnerReference | None:
        """What it stands for, if Muster made it for pods that name no group."""
        return stands_for(self.name, self.metadata.owner_references)

    @property
    def called(self) -> OwnerReference:
        """The kind and name by which people know it: its own, or those of what it stands for."""
        return self.maker or OwnerReference(kind="PodGroup", name=self.name)

    @property
    def spoken_name(self) -> str:
        """`pytorchjob/train` for a group that Muster made."""
        return self.maker.spoken_name if self.maker else self.name

    @property
    def job(self) -> OwnerReference | None:
        """The job that it stands for; None for another group."""
        return self.maker if self.maker and job_row(self.maker.api_version, self.maker.kind) else None

    @property
    def job_name(self) -> str:
        """`job/train`; empty for a group that stands for no job."""
        return self.job.spoken_name if self.job else ""

    @property
    def scheduled(self) -> Condition | None:
        """The condition that says whether the group may start, and why not."""
        return condition(self.status.conditions, SCHEDULED)

    @property
    def reason(self) -> str:
        """Why it waits, or why further members of it do; empty where none does."""
        found = self.scheduled
        return found.reason if found and found.reason not in NOT_WAITING else ""

    @property
    def message(self) -> str:
        """The numbers behind the verdict; empty where none is written."""
        return self.scheduled.message if self.scheduled else ""

    @property
    def waiting(self) -> WaitingStatus:
        """How it waits; an empty one where it does not, or where no more is known."""
        return self.status.waiting or WaitingStatus()

    @property
    def course(self) -> str:
        """The phase, but Pending for a group that lacks members: Inqueue tells its operator to make them. One
        that a controller of its own made up is Unknown."""
        phase = self.status.phase if self.status.phase in _PHASES else "Unknown"
        found = self.scheduled
        lacks = found is not None and found.reason == Reason.NOT_ENOUGH_MEMBERS
        return "Pending" if lacks and phase == "Inqueue" else phase


# ---- its conditions and its events, as rows

_LATEST = 12


def conditions(found: Iterable[Condition] | None) -> list[str]:
    head = ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")
    rows = []
    for seen in found or ():
        reason, message = seen.reason or NOTHING, seen.message or NOTHING
        rows.append((seen.type, seen.status, reason, age(seen.last_transition_time), message))
    return columns(head, rows) if rows else []


def events(reader: Reader, kind: str, namespace: str, name: str) -> list[str]:
    """The latest, the oldest of them first. Those of a queue, which has no namespace, are in `default`."""
    where = f"involvedObject.kind={kind},involvedObject.name={name}"
    try:
        found = reader.list(EVENTS, namespace or "default", Event, fields=where)
    except (Forbidden, NotFound):
        return ["not shown: you may not list events"]
    rows = []
    for event in sorted(found, key=lambda event: event.at)[-_LATEST:]:
        often = f" ({event.times} times)" if event.times > 1 else ""
        rows.append((event.type, event.reason, f"{age(event.at or None)}{often}", event.message))
    return columns(("TYPE", "REASON", "AGE", "MESSAGE"), rows) if rows else []
