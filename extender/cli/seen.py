"""Queues, PodGroups and amounts as the commands show them."""

from collections.abc import Mapping
from datetime import UTC, datetime

from extender.api.conditions import condition
from extender.api.durations import rounded
from extender.api.keys import SCHEDULED
from extender.api.objects import Condition, PodGroup, Queue
from extender.api.quantities import BadQuantity, Quantity
from extender.domain.model.reasons import Reason
from extender.domain.model.resources import PODS, offered, show

NOTHING = "-"


class QueueSeen(Queue, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def state(self) -> str:
        """What the status says, else what will be."""
        return self.status.state or self.spec.state or "Open"

    @property
    def share(self) -> float:
        return self.status.share or 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Its groups by how they fare. A count that nobody has written yet is 0 for people."""
        told = self.status
        return {
            "pending": told.pending or 0,
            "inqueue": told.inqueue or 0,
            "running": told.running or 0,
            "unknown": told.unknown or 0,
            "completed": told.completed or 0,
            "failed": told.failed or 0,
            "aborted": told.aborted or 0,
        }


class GroupSeen(PodGroup, frozen=True):
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
    def scheduled(self) -> Condition | None:
        """The condition that says whether the group may start, and why not."""
        return condition(self.status.conditions, SCHEDULED)

    @property
    def course(self) -> str:
        """The phase, but Pending for a group that lacks members: Inqueue tells its operator to make them."""
        phase, said = self.status.phase, self.scheduled
        lacks = said is not None and said.reason == Reason.NOT_ENOUGH_MEMBERS
        return "Pending" if lacks and phase == "Inqueue" else phase


def number(name: str, quantity: Quantity | None) -> int:
    """The number behind a quantity; 0 for what is none."""
    try:
        return offered({name: quantity or 0}).get(name, 0)
    except BadQuantity:
        return 0


def amount(name: str, quantity: Quantity | None) -> str:
    """A quantity as people write it: 17179869184 bytes are 16Gi."""
    return NOTHING if quantity is None else show(name, number(name, quantity))


def amounts(quantities: Mapping[str, Quantity] | None) -> str:
    """`cpu 4, memory 8Gi`, without what is 0; every pod is one of `pods`, which says little."""
    known = sorted((name, each) for name, each in (quantities or {}).items() if name != PODS)
    shown = [f"{name} {amount(name, each)}" for name, each in known if number(name, each)]
    return ", ".join(shown) or NOTHING


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def age(timestamp: str | None, now: datetime | None = None) -> str:
    """How long ago, as kubectl says it: two units while the first is small, then one."""
    if not timestamp:
        return NOTHING
    try:
        since = datetime.fromisoformat(timestamp)
    except ValueError:
        return NOTHING
    seconds = max(0, int(((now or datetime.now(UTC)) - since).total_seconds()))
    return rounded(seconds)
