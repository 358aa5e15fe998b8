"""The life of a claim on room: five stages, and the transition of each on every event.

    planned ──► answered ──► held ──► posted ──► bound

Each stage has an owner that ends it: decisions end a plan, the scheduler an answer (or it expires), the bind
call whose token it carries a held or posted claim, and the pod itself a bound one.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto


class ClaimStage(IntEnum):
    PLANNED = 1
    """A decision has given the pod a node; another decision may take it away."""
    ANSWERED = 2
    """Filter has named the node to the scheduler."""
    HELD = 3
    """A bind call waits for the rest of the pod's group."""
    POSTED = 4
    """The binding is on its way to the API server, and may have taken effect."""
    BOUND = 5
    """The watch shows the pod on the node."""

    @property
    def pinned(self) -> bool:
        """Whether decisions made on older snapshots may no longer move it."""
        return self >= ClaimStage.ANSWERED


class ClaimEvent(Enum):
    PLAN = auto()
    """A decision has a node for the pod."""
    WITHDRAW = auto()
    """A decision no longer has one."""
    ANSWER = auto()
    """Filter names a node to the scheduler."""
    REFUSE = auto()
    """The scheduler reports that it finds no node."""
    EXPIRE = auto()
    """No bind call followed an answer in time."""
    HOLD = auto()
    """A bind call arrived; a second one for the pod takes the claim over."""
    POST = auto()
    """The group is whole; or one call for the pod has ended while the binding of another is on its way."""
    RELEASE = auto()
    """The last bind call ended without a binding, or the node was lost."""
    BIND = auto()
    """The watch shows the pod on a node, however it was bound."""
    LEAVE = auto()
    """The watch shows that the pod is gone, has ended, or is being deleted without a node."""


Stages = Mapping[ClaimStage | None, ClaimStage | None]  # None: there is no claim

_PLANNED, _ANSWERED, _HELD, _POSTED, _BOUND = ClaimStage
_ALL = (None, *ClaimStage)

TRANSITIONS: Mapping[ClaimEvent, Stages] = {
    ClaimEvent.PLAN: {None: _PLANNED, _PLANNED: _PLANNED, _ANSWERED: _PLANNED},
    ClaimEvent.WITHDRAW: {_PLANNED: None, _ANSWERED: None},
    ClaimEvent.ANSWER: {_PLANNED: _ANSWERED, _ANSWERED: _ANSWERED, _HELD: _ANSWERED},
    ClaimEvent.REFUSE: {_ANSWERED: _PLANNED},
    ClaimEvent.EXPIRE: {_ANSWERED: None},
    ClaimEvent.HOLD: {_PLANNED: _HELD, _ANSWERED: _HELD, _HELD: _HELD, _POSTED: _HELD},
    ClaimEvent.POST: {_HELD: _POSTED, _POSTED: _POSTED},
    ClaimEvent.RELEASE: {_HELD: None, _POSTED: None},
    ClaimEvent.BIND: dict.fromkeys(_ALL, _BOUND),
    ClaimEvent.LEAVE: dict.fromkeys(_ALL, None),
}


def allows(event: ClaimEvent, stage: ClaimStage | None) -> bool:
    """Whether the event may happen to a claim at this stage."""
    return stage in TRANSITIONS[event]


def after(event: ClaimEvent, stage: ClaimStage | None) -> ClaimStage | None:
    """The stage that follows; None: no claim. Raises KeyError if the event is not allowed at this stage."""
    return TRANSITIONS[event][stage]
