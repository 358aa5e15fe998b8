"""Changes of a group's decision that lead to an Event."""

from extender.domain.model.reasons import EventReason, Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.snapshot import decisions
from extender.domain.snapshot.decisions import GroupDecision
from tests.rows import each_of

KEY = GroupKey("team/g")
NO_ROOM = GroupDecision(KEY, "q", Verdict.WAITING, Reason.NO_ROOM, "cpu: 4 needed, 1 left")
STARTING = GroupDecision(KEY, "q", Verdict.STARTING, plan={Uid("a"): "n", Uid("b"): "n"})
RUNNING = GroupDecision(KEY, "q", Verdict.RUNNING)
DEGRADED = GroupDecision(KEY, "q", Verdict.RUNNING, Reason.NO_ROOM)
FAILED = GroupDecision(KEY, "q", Verdict.WAITING, Reason.BACKING_OFF, "too late", failed="too late")
UNDONE = GroupDecision(KEY, "q", Verdict.WAITING, Reason.BACKING_OFF, "late", undo=(Uid("a"),), failed="late")
IN_BACKOFF = GroupDecision(KEY, "q", Verdict.WAITING, Reason.BACKING_OFF, "too late", undo=(Uid("a"),))


@each_of(
    (NO_ROOM, STARTING, None),
    (STARTING, RUNNING, Verdict.RUNNING),
    (STARTING, DEGRADED, Verdict.RUNNING),
    (DEGRADED, RUNNING, None),
    (STARTING, FAILED, Reason.BACKING_OFF),
    (FAILED, FAILED, None),
    (STARTING, UNDONE, EventReason.UNDONE),
    (UNDONE, IN_BACKOFF, None),
    (None, RUNNING, None),
    (None, NO_ROOM, None),
)
def test_each_change_of_turn_has_its_transition(
    before: GroupDecision | None, now: GroupDecision, reason: str | None
) -> None:
    transition = decisions.immediate_transition(before, now)
    assert (transition.reason if transition else None) == reason


@each_of((NO_ROOM, Reason.NO_ROOM), (STARTING, Verdict.STARTING), (DEGRADED, Reason.NO_ROOM), (RUNNING, None))
def test_each_state_of_a_decision_has_its_transition(decision: GroupDecision, reason: str | None) -> None:
    transition = decisions.state_transition(decision)
    assert (transition.reason if transition else None) == reason


def test_a_wait_is_reported_with_its_sentence_and_its_numbers() -> None:
    transition = decisions.state_transition(NO_ROOM)
    assert transition is not None
    assert transition.message == f"{Reason.NO_ROOM.meaning}: cpu: 4 needed, 1 left"
    assert transition.is_for_members


@each_of(*Reason)
def test_every_reason_is_reachable(reason: Reason) -> None:
    transition = decisions.state_transition(GroupDecision(KEY, "q", Verdict.WAITING, reason))
    assert transition is not None
    assert (transition.reason, transition.message) == (reason, reason.meaning)


@each_of((Reason.NEVER_FITS, True), (Reason.NO_ROOM, False), (Reason.QUEUE_SHARE, False))
def test_a_wait_that_needs_an_action_of_a_user_is_a_warning(reason: Reason, warning: bool) -> None:
    transition = decisions.state_transition(GroupDecision(KEY, "q", Verdict.WAITING, reason))
    assert transition is not None
    assert transition.is_warning is warning


def test_numbers_that_move_are_no_turn() -> None:
    moved = GroupDecision(KEY, "q", Verdict.WAITING, Reason.NO_ROOM, "cpu: 4 needed, 2 left")
    assert decisions.verdict_of(moved) == decisions.verdict_of(NO_ROOM)
