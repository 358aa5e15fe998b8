"""What decide() sees: a frozen picture of the ledger at one version and one moment.

Views of groups that did not change are the same objects as in the snapshot before.
"""

from collections.abc import Mapping, Set
from functools import cached_property

import msgspec

from extender.domain.decisions import GroupDecision
from extender.domain.holding import Holding, holding_of
from extender.domain.nodes import Amounts, NodeTable
from extender.domain.orphans import Orphan
from extender.domain.phases import ending, life_of, outcome_of
from extender.domain.queue_records import QueueRecord
from extender.domain.queue_states import Mark, QueueState, wish
from extender.domain.quorum import Missing, missing_of
from extender.domain.reasons import Outcome, Verdict
from extender.domain.records import GroupKey, PodRecord, Uid
from extender.domain.resources import Resources
from extender.domain.shapes import HostPort, Shape, Term


class Limits(msgspec.Struct, frozen=True):
    """The numbers that policy works with. Times in seconds, sizes in pods."""

    window: int = 1000
    start_deadline: float = 120.0
    start_deadline_base: float = 60.0
    start_deadline_per_member: float = 0.1
    refusal_grace: float = 2.0
    arrival_grace: float = 15.0
    arrival_grace_per_pod: float = 0.05
    stall_grace: float = 10.0
    refusal_memory: float = 60.0
    backoff: float = 5.0
    backoff_max: float = 300.0

    def deadline(self, members: int) -> float:
        """How long a start of that many members may take: longer for more, up to the bind deadline."""
        return min(self.start_deadline, self.start_deadline_base + members * self.start_deadline_per_member)

    def retry_after(self, failures: int) -> float:
        return min(self.backoff_max, self.backoff * 2.0 ** min(failures, 32))


class Refusal(msgspec.Struct, frozen=True):
    """The scheduler's words about a planned member, and when we read them."""

    words: str
    at: float


class Start(msgspec.Struct, frozen=True):
    """How the starts of a group went. `admitted_at` is None while it waits."""

    admitted_at: float | None = None
    failures: int = 0
    retry_at: float = 0.0
    failure: str = ""


class GroupView(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A group with its members: those placed, those pinned (no plan may move their claim), and those that
    wait, with the nodes planned for them. `recorded`: it has a PodGroup. `stands`: those placed make it
    whole. `entitled`: it came while its queue was open. `held_back`: members that gates of others keep.
    `leaving`: members on a node that are being deleted. `running`, `succeeded`, `failed`: how many members
    do. `aborted`: its owner is suspended, or the queue that took it in is gone. `accepted_by`: the UID of the
    queue that takes it in, empty while none does. `told_phase`: what its PodGroup says.
    `min_resources`: what that says its needed members ask for together."""

    key: GroupKey
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    priority: int
    created: str
    recorded: bool
    exists: bool
    fault: str
    min_resources: Resources
    entitled: bool
    stood_whole: bool
    stands: bool
    start: Start
    placed: tuple[PodRecord, ...]
    pinned: tuple[tuple[PodRecord, str], ...]
    waiting: tuple[PodRecord, ...]
    planned: Mapping[Uid, str]
    expected_since: Mapping[Uid, float]
    refusals: Mapping[Uid, Refusal]
    held_back: int
    leaving: int
    running: int
    succeeded: int
    failed: int
    aborted: bool
    accepted_by: str
    told_phase: str
    allocated: Resources
    pending: Resources

    @property
    def is_in_queue(self) -> bool:
        """Whether its queue has it: by a PodGroup, by pods on nodes, or by pods alone that came in time. Pods
        that wait outside hold up nothing when the queue closes."""
        return self.recorded or self.lives or (self.exists and self.entitled)

    @property
    def rests(self) -> bool:
        """Whether the group stands and nobody waits to join it."""
        return self.stands and not self.waiting and not self.pinned

    @property
    def ends(self) -> bool:
        """Whether a group that was whole is on its way out: members go, and nobody waits to replace them."""
        replaced = self.waiting or self.pinned or self.held_back
        return bool(self.leaving) and not replaced and len(self.placed) + self.leaving >= self.min_member

    @property
    def is_empty(self) -> bool:
        """Whether a group that needs nobody has nobody: others without members wait for those."""
        return not (self.min_member or self.placed or self.pinned or self.waiting or self.leaving)

    @property
    def lives(self) -> bool:
        """Whether any member is on a node and has not finished."""
        return self.leaving > 0 or len(self.placed) > self.succeeded

    @cached_property
    def ended(self) -> Outcome | None:
        """How the group ended; None while it goes on, or has members left to start."""
        return None if self.waiting or self.held_back else outcome_of(self)

    @cached_property
    def at_rest(self) -> GroupDecision | None:
        """What is decided on a group that has ended, rests or is on its way out: nothing around it changes
        that. None: it has to be judged."""
        if self.ended is None and not self.ends and (self.is_empty or not self.rests):
            return None
        verdict = Verdict.RUNNING if self.ended is None else Verdict.ENDED
        life = life_of(self, Verdict.RUNNING)
        return GroupDecision(self.key, self.queue, verdict, detail=ending(life), life=life)

    @cached_property
    def missing(self) -> Missing:
        return missing_of(self)

    @cached_property
    def holding(self) -> Holding:
        return holding_of(self)

    @cached_property
    def order(self) -> tuple[int, str, str]:
        """Inside a queue: priority, then age, then name."""
        return (-self.priority, self.created, self.key)


class QueueView(msgspec.Struct, frozen=True, eq=False):
    """`closed_above`: the queue above that shuts it, if one does. `mark`: what is to become of its mark."""

    record: QueueRecord
    exists: bool
    state: str
    groups: int
    allocated: Resources
    requested: Resources
    closed_above: str = ""
    mark: Mark = Mark.KEEP

    @property
    def to_open(self) -> str:
        """The queue that has to be opened for this one to be open."""
        is_held = self.closed_above and wish(self.record) is QueueState.OPEN
        return self.closed_above if is_held else self.record.name


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """What stands where, besides amounts: host ports by node and, for each (anti-)affinity term in use, how
    many pods it selects (`selected`) and how many carry it against others (`carried`), by node."""

    ports: Mapping[str, Mapping[HostPort, int]] = {}
    selected: Mapping[Term, Mapping[str, int]] = {}
    carried: Mapping[Term, Mapping[str, int]] = {}


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """`room` has the amounts left on each row of `nodes` beside all pinned claims, without planned ones.
    `refused`: rows where the scheduler refuses a shape, the first of them forgotten at `refused_until`.
    `touched`: groups of which anything changed since decisions were last published."""

    version: int
    now: float
    limits: Limits
    dimensions: tuple[str, ...]
    nodes: NodeTable
    room: Amounts
    allocatable: Amounts
    occupancy: Occupancy
    refused: Mapping[Shape, frozenset[int]]
    queues: Mapping[str, QueueView]
    groups: Mapping[GroupKey, GroupView]
    refused_until: float | None = None
    orphans: tuple[Orphan, ...] = ()
    touched: Set[GroupKey] = frozenset()
