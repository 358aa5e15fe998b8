"""What decide() sees of one group: frozen, and the same object while nothing about the group changes."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from extender.domain.model.needs import Needs
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources

T = TypeVar("T")


class Refusal(msgspec.Struct, frozen=True):
    """The scheduler's words about a planned member."""

    text: str
    at: float  # when we read them


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
    """A group with its members, sorted by where they are on their way."""

    key: GroupKey
    """Its PodGroup, or the pod that is a group of its own."""
    queue: str
    """The name of its queue, whether there is one or not."""
    min_member: int
    """How many members it needs to start."""
    min_task_member: Mapping[str, int]
    """How many of each role."""
    priority: int
    """Higher ones go first inside a queue."""
    created: str
    """When its PodGroup, or its first pod, was created: RFC 3339."""
    recorded: bool
    """Whether it has a PodGroup."""
    exists: bool
    """Whether it is there: by a PodGroup, or by pods that need none."""
    fault: str
    """What is wrong in its specification, in words; empty: nothing."""
    min_resources: Resources
    """What its PodGroup says that the members it needs ask for together."""
    entitled: bool
    """Whether it came while its queue was open."""
    stood_with: Needs | None
    """What it needed when it last stood whole, as far as it still does: who is lost of those is replaced.
    None: it never stood whole."""
    stands: bool
    """Whether those placed make it whole now."""
    stands_as_before: bool
    """Whether it stood whole, and those placed are as many as then: what it needs besides is growth."""
    resumes: bool
    """Whether members on nodes show a start that Muster had admitted before it was started anew."""
    start: Start
    """How its starts went."""
    placed: tuple[PodRecord, ...]
    """Members on a node and not on their way out, or done."""
    pinned: tuple[tuple[PodRecord, str], ...]
    """Members whose node the scheduler knows from us: no plan may move their claim."""
    waiting: tuple[PodRecord, ...]
    """Members without a node that may be planned."""
    planned: Mapping[Uid, str]
    """The nodes planned for those that wait."""
    expected_since: Mapping[Uid, float]
    """Since when the scheduler could have used a planned node: the gate was open."""
    bound_since: Mapping[Uid, float]
    """Since when members have been on their nodes, as far as we saw."""
    refusals: Mapping[Uid, Refusal]
    """What the scheduler last said about members that it could not place."""
    held_back: int
    """Members that gates of others keep."""
    leaving: int
    """Members on a node that are being deleted."""
    running: int
    """Members whose phase is Running."""
    succeeded: int
    """Members whose phase is Succeeded."""
    failed: int
    """Members whose phase is Failed."""
    aborted: bool
    """Whether its owner is suspended, or the queue that took it in is gone."""
    accepted_by: str
    """The UID of the queue that takes it in; empty while none does."""
    told_phase: str
    """What its PodGroup says now."""
    allocated: Resources
    """What members on nodes, and those pinned, ask for together."""
    pending: Resources
    """What those that wait ask for together."""

    @property
    def needs(self) -> Needs:
        return Needs(self.min_member, self.min_task_member)

    @property
    def stood_whole(self) -> bool:
        """Whether all that it needs have been on nodes: losing members undoes nobody from then on."""
        return self.stood_with is not None

    @property
    def is_in_queue(self) -> bool:
        """Whether its queue counts it: by its PodGroup or, where it needs none, by pods on nodes or pods that
        came in time. Waiting pods that are outside do not keep a queue from closing, nor do running ones
        whose PodGroup was deleted."""
        return self.recorded or (self.exists and (self.lives or self.entitled))

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
