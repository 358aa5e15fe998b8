"""What decide() says: for every group a verdict, a reason while it waits, and a plan while it starts."""

from collections.abc import Mapping, Sequence

import msgspec

from extender.domain.lifecycle.phases import Life
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources
from extender.domain.queues.orphans import Orphan
from extender.domain.queues.queue_states import Mark, QueueState

NOT_WORKED_OUT = Life()  # until all is decided


class GroupDecision(msgspec.Struct, frozen=True):
    """`plan`: members' nodes. `undo`: bound members of a start that failed for good, to be evicted.

    `failed` says why a start ended without standing whole; the group may try again at `retry_at`.
    `moved`: members whose planned node the scheduler refused, with that node. `life`: filled in
    once all is decided.
    """

    key: GroupKey
    queue: str
    verdict: Verdict
    reason: Reason | None = None
    detail: str = ""
    plan: Mapping[Uid, str] = {}
    undo: tuple[Uid, ...] = ()
    failed: str = ""
    retry_at: float = 0.0
    moved: Mapping[Uid, str] = {}
    life: Life = NOT_WORKED_OUT
    stood_whole: bool = False
    claims_room: bool = False
    fault: str = ""

    @property
    def lets_members_start(self) -> bool:
        """Whether members that bind calls hold may go on; of a group whose PodGroup is gone none may."""
        goes_on = self.verdict is Verdict.STARTING or self.verdict is Verdict.RUNNING
        return goes_on and self.reason is not Reason.GROUP_NOT_FOUND


class QueueDecision(msgspec.Struct, frozen=True):
    """`uid` is empty while the API has no such queue. `counts`: how many of its groups do what, as its status
    names them. `wish`: what it is for its own sake. `closed_above`: the queue above that shuts it, if one
    does. `mark`: what is to become of the annotation that says so. `fault`: what is wrong in its spec."""

    name: str
    state: str
    weight: int
    allocated: Resources
    requested: Resources
    deserved: Mapping[str, float]
    ceiling: Mapping[str, float]
    share: float
    counts: Mapping[str, int] = {}
    uid: str = ""
    wish: QueueState = QueueState.OPEN
    closed_above: str = ""
    mark: Mark = Mark.KEEP
    fault: str = ""


class Decisions(msgspec.Struct, frozen=True):
    """`version` is the snapshot's; `wake_at` the next moment at which time alone could change a decision.
    `orphans`: groups to delete, because the queue that took them in is gone. `counts`: groups by queue and
    column. `turned`: groups of which anything changed since the decisions before, which have the `serial`
    before this one's; those that are gone as well."""

    version: int = -1
    groups: Mapping[GroupKey, GroupDecision] = {}
    queues: Mapping[str, QueueDecision] = {}
    wake_at: float | None = None
    orphans: tuple[Orphan, ...] = ()
    counts: Mapping[tuple[str, str], int] = {}
    serial: int = 0
    turned: Sequence[GroupKey] = ()

    def turned_since(self, seen: "Decisions") -> Sequence[GroupKey]:
        """The groups to look at for somebody who has `seen` earlier ones."""
        if self is seen:
            return ()
        if self.serial == seen.serial + 1:
            return self.turned
        return (*self.groups, *sorted(seen.groups.keys() - self.groups.keys()))
