"""What decide() sees of one group: frozen, and the same object while nothing about the group changes."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources

T = TypeVar("T")


class Refusal(msgspec.Struct, frozen=True):
    """The scheduler's words about a planned member, and when we read them."""

    words: str
    at: float


class Start(msgspec.Struct, frozen=True):
    """How the starts of a group went."""

    admitted_at: float | None = None
    """When the start that is under way was admitted; None: none is."""
    failures: int = 0
    """How many starts failed one after the other."""
    retry_at: float = 0.0
    """Before that moment it is not tried again."""
    failure: str = ""
    """Why the last one failed, in words."""
    admitted: bool = False
    """Whether it was admitted and has not waited since, also once all that it needs is on nodes."""
    claims_since: float | None = None
    """When room was first kept for it, within its share; None: never since it last stood whole."""


class GroupView(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A group with its members: those placed, those pinned (no plan may move their claim), and those that
    wait, with the nodes planned for them. `recorded`: it has a PodGroup. `stands`: those placed make it
    whole. `entitled`: it came while its queue was open. `held_back`: members that gates of others keep.
    `leaving`: members on a node that are being deleted. `running`, `succeeded`, `failed`: how many members
    do. `aborted`: its owner is suspended, or the queue that took it in is gone. `accepted_by`: the UID of the
    queue that takes it in, empty while none does. `told_phase`: what its PodGroup says."""

    key: GroupKey
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    priority: int
    created: str
    recorded: bool
    exists: bool
    fault: str
    entitled: bool
    stood_whole: bool
    stands: bool
    resumes: bool
    start: Start
    placed: tuple[PodRecord, ...]
    pinned: tuple[tuple[PodRecord, str], ...]
    waiting: tuple[PodRecord, ...]
    planned: Mapping[Uid, str]
    expected_since: Mapping[Uid, float]
    bound_since: Mapping[Uid, float]
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
    def is_on_nodes(self) -> bool:
        """Whether any placed member has not finished."""
        return len(self.placed) > self.succeeded

    @property
    def lives(self) -> bool:
        """Whether any member is on a node and has not finished."""
        return self.leaving > 0 or self.is_on_nodes

    def once(self, work: Callable[["GroupView"], T]) -> T:
        """What `work` makes of the view, worked out when it is first asked for: a view never changes."""
        if work not in self._known:
            self._known[work] = work(self)
        return cast(T, self._known[work])

    @cached_property
    def _known(self) -> dict[Callable[["GroupView"], object], object]:
        return {}

    @cached_property
    def order(self) -> tuple[int, str, str]:
        """Inside a queue: priority, then age, then name."""
        return (-self.priority, self.created, self.key)
