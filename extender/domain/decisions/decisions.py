"""What decide() says: for every group a verdict, a reason while it waits, and a plan while it starts."""

from collections.abc import Mapping, Sequence

import msgspec

from extender.domain.model.life import Life
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources
from extender.domain.queues.orphans import Orphan
from extender.domain.queues.queue_states import Mark, QueueState

NOT_WORKED_OUT = Life()  # until all is decided


class GroupDecision(msgspec.Struct, frozen=True):
    """What is decided on one group."""

    key: GroupKey
    queue: str
    """The queue that its members count to."""
    verdict: Verdict
    reason: Reason | None = None
    """Why it waits, or why members of it do; None: none of them waits."""
    detail: str = ""
    """The numbers behind the reason."""
    plan: Mapping[Uid, str] = {}
    """The nodes of members that are to start."""
    undo: tuple[Uid, ...] = ()
    """Bound members of a start that failed for good, to be evicted."""
    failed: str = ""
    """Why a start, or members that were to join, failed just now."""
    retry_at: float = 0.0
    """When it is tried again after that; kept while members of it still wait."""
    moved: Mapping[Uid, str] = {}
    """Members whose planned node the scheduler would not use, with that node."""
    life: Life = NOT_WORKED_OUT
    """Its phase and numbers, filled in once all is decided."""
    stood_whole: bool = False
    """Whether it has stood whole by now, where that is looked at."""
    claims_room: bool = False
    """Whether room is kept for it, within its queue's share."""
    fault: str = ""
    """What its judging raised, and where; empty: nothing."""

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
    """What one round decided."""

    version: int = -1
    """The snapshot's."""
    groups: Mapping[GroupKey, GroupDecision] = {}
    queues: Mapping[str, QueueDecision] = {}
    wake_at: float | None = None
    """The next moment at which time alone could change a decision."""
    orphans: tuple[Orphan, ...] = ()
    """Groups to delete, because the queue that took them in is gone."""
    counts: Mapping[tuple[str, str], int] = {}
    """Groups by queue and column of its status."""
    serial: int = 0
    """One more than that of the decisions before."""
    turned: Sequence[GroupKey] = ()
    """Groups of which anything changed since those; also groups that are gone."""
    memory: object = None
    """What the next round may use to save work."""

    def turned_since(self, seen: "Decisions") -> Sequence[GroupKey]:
        """The groups to look at for a consumer that has `seen` earlier decisions."""
        if self is seen:
            return ()
        if self.serial == seen.serial + 1:
            return self.turned
        return (*self.groups, *sorted(seen.groups.keys() - self.groups.keys()))
