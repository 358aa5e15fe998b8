"""What state a group is in: the one answer from which a round, phases and plans follow."""

from enum import Enum, auto

from extender.domain.lifecycle.phases import ended, is_ending
from extender.domain.snapshot.group_view import GroupView


class State(Enum):
    """In the order in which they are asked for: the first that is true counts."""

    ENDED = auto()  # no member is left on a node or on the way to one
    ENDING = auto()  # it was whole, its members go, and nobody waits to replace them
    RESTING = auto()  # it stood whole, and nobody waits to join it
    EMPTY = auto()  # it needs nobody and has nobody: others without members wait for those
    STANDING = auto()  # those on nodes make it whole, or did before its needs grew; more members may join
    REPLACING = auto()  # it stood whole and lost members
    STARTING = auto()  # Muster admitted its start, and it is not whole yet
    WAITING = auto()  # everything that it misses is still to be judged


def state_of(group: GroupView) -> State:
    """A view never changes, so its state is worked out once."""
    return group.once(_state)


def _state(group: GroupView) -> State:
    if ended(group) is not None:
        return State.ENDED
    if is_ending(group):
        return State.ENDING
    if group.stands and group.stood_whole and not (group.waiting or group.pinned):
        return State.RESTING
    if not (group.min_member or group.placed or group.pinned or group.waiting or group.leaving):
        return State.EMPTY
    if group.stands or group.stands_as_before:
        return State.STANDING
    if group.stood_whole:
        return State.REPLACING
    return State.STARTING if _was_admitted(group) else State.WAITING


def _was_admitted(group: GroupView) -> bool:
    """Whether Muster itself admitted the start. A pod that names its node from the beginning proves nothing:
    else it would bring all others past the queue's state, order, share and ceiling.

    After a crash a note on its PodGroup shows it, unless this process has let the group wait since.
    """
    if group.start.admitted or group.pinned:
        return True
    return bool(group.placed) and group.resumes
