"""Skipped cases of volcano.json with their reasons."""

from collections.abc import Callable

from tests.conformance.cases import Case
from tests.conformance.verdicts import Skip
from tests.conformance.volcano import (
    admission_needs,
    lifecycle,
    other_needs,
    phase_needs,
    reclaim_needs,
    session_needs,
)
from tests.conformance.volcano.session import PERFORMED_ACTIONS

_NOT_BUILT = {
    "backfill.order": "an order of candidates alone: Muster orders groups and pods in one decision",
}
_ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt", "shuffle", "gangpreempt", "gangreclaim")


def _of_kind(kind: str) -> Callable[[Case], bool]:
    return lambda case: case.kind == kind


def _with_action(action: str) -> Callable[[Case], bool]:
    return lambda case: case.kind == "session" and action in case.input["actions"]


def _session(needs_it: Callable[[Case], bool]) -> Callable[[Case], bool]:
    """Return a check of sessions whose actions Muster performs."""
    return lambda case: (
        case.kind == "session" and PERFORMED_ACTIONS.issuperset(case.input["actions"]) and needs_it(case)
    )


SKIPS: tuple[Skip, ...] = (
    Skip(
        "a PodGroup does not block its owner's deletion: that takes rights to finalizers of all owners",
        other_needs.blocks_its_owner,
    ),
    *(Skip(f"kind {kind}: {why}", _of_kind(kind)) for kind, why in _NOT_BUILT.items()),
    *(
        Skip(f"action {action}: not built yet", _with_action(action))
        for action in _ACTIONS
        if action not in PERFORMED_ACTIONS
    ),
    Skip("a stand-in gate of Volcano's own tests", _session(session_needs.uses_stand_in)),
    Skip("idle capacity is borrowed above the share", _session(session_needs.leaves_capacity_idle)),
    Skip(
        "members that ask for nothing start with the others, not in a separate action",
        _session(session_needs.leaves_empty_requests_to_backfill),
    ),
    Skip(
        "admission and placing are one decision, there is no allocate without enqueue",
        _session(session_needs.leaves_pending_groups_to_enqueue),
    ),
    Skip(
        "within the share comes before above it, whatever the queue's priority",
        _session(session_needs.outranks_shares),
    ),
    Skip(
        "groups that came before their queue closed are still scheduled",
        _session(session_needs.expects_closed_queue_to_stop),
    ),
    Skip(
        "a group that came when its queue was not open waits, and asks for no share",
        _session(session_needs.counts_late_comers),
    ),
    Skip(
        "Inqueue is a group with members that have a place on real nodes, below its ceiling",
        _session(session_needs.admits_without_place),
    ),
    Skip(
        "minMember 0 is no gang: never Inqueue, pods start one by one",
        _session(session_needs.admits_group_without_minimum),
    ),
    Skip(
        "a gang that cannot spare enough members goes whole, also for a queue below its share",
        _session(reclaim_needs.spares_whole_gangs),
    ),
    Skip(
        "a group takes back what keeps its queue within what it deserves, in all it asks for",
        _session(reclaim_needs.goes_above_its_share),
    ),
    Skip(
        "a group with a member that never preempts reclaims nothing: it is evaluated as a whole",
        _session(reclaim_needs.has_a_member_that_never_preempts),
    ),
    Skip("a queue with children may itself have groups", _session(reclaim_needs.keeps_parents_empty)),
    Skip(
        "the comparison with missing dimensions infinite: no gate of Muster has its meaning",
        other_needs.compares_with_infinity,
    ),
    Skip(
        "a ceiling that names no cpu or memory does not limit it (Volcano's own rule for capability)",
        other_needs.counts_absent_as_zero,
    ),
    Skip(
        "without spec.deserved a queue has a share by weight, and a share of nothing held is 0",
        other_needs.shares_nothing,
    ),
    Skip("a closed queue with groups left is Closing", lifecycle.keeps_closed_with_groups),
    Skip(
        "a queue without a state counts as Open, and without a weight has that of the schema, 1",
        other_needs.shows_absent_fields_as_empty,
    ),
    Skip("only a Closed queue can be deleted", admission_needs.deletes_open_queue),
    Skip(
        "a queue that is Closing may be changed, while no invalid state is set",
        admission_needs.freezes_closing_queue,
    ),
    Skip("root's amounts are always protected, there is no switch", admission_needs.changes_root),
    Skip("a queue without a state is Open", admission_needs.refuses_unsynced_queue),
    Skip("a group without members has not ended, whatever it needs", phase_needs.ends_before_it_began),
    Skip(
        "members that failed are replaced: their group has not ended",
        phase_needs.ends_before_replacements,
    ),
    Skip(
        "a group that has run fully never waits again for members that it lost",
        phase_needs.waits_again_while_it_runs,
    ),
    Skip(
        "Unknown is a group that lacks what it needs, not one that could grow",
        phase_needs.is_unknown_with_all_it_needs,
    ),
    Skip(
        "Inqueue is a group whose members are there and have a place",
        phase_needs.stays_inqueue_without_place,
    ),
    Skip(
        "capabilities of queues may be oversold, nodes never",
        other_needs.oversells,
    ),
)
