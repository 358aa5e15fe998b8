"""The state of a group, on which rounds, phases and plans are based."""

from enum import Enum, auto

from extender.domain.lifecycle.phases import ended, is_ending
from extender.domain.snapshot.group_view import GroupView


class State(Enum):
    """In the order in which they are tested: the first that applies counts."""

    ENDED = auto()  # no member is left on a node or on the way to one
    ENDING = auto()  # it was whole, members are being deleted, and none waits to replace them
    RESTING = auto()  # it stands whole, and no member waits to join it
    EMPTY = auto()  # it needs no members and has none; other groups without members wait for theirs
    STANDING = auto()  # members on nodes make it whole, or did before its needs grew; more members may join
    REPLACING = auto()  # it stood whole and lost members
    STARTING = auto()  # Muster admitted its start, and it is not whole yet
    WAITING = auto()  # all members that it lacks still have to be judged


_RUNS = (State.RESTING, State.STANDING, State.REPLACING)


def state_of(group: GroupView) -> State:
    """The state of a group; computed once, since a view never changes."""
    return group.once(_state)


def runs(group: GroupView) -> bool:
    """Whether a group stands whole, or did and replaces members."""
    return state_of(group) in _RUNS


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
    """Whether Muster itself admitted the start. A pod that was created with a node name is no proof, or it
    would carry all others past the queue's state, order, share and ceiling.

    After a crash, a note on the PodGroup is the proof, unless this process has let the group wait since.
    """
    if group.start.admitted or group.pinned:
        return True
    return group.resumes and (bool(group.placed) or group.let_go)
