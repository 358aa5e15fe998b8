"""What decisions say in the conditions of pods and queues."""

from collections.abc import Iterator

import msgspec

from extender.api.keys import SCHEDULING_GATED, UNSCHEDULABLE
from extender.api.texts import listed
from extender.domain.model.reasons import NODES_HELP, Reason, Verdict, refusal
from extender.domain.model.records import PodRecord, Unscheduled
from extender.domain.queues.states import QueueState
from extender.domain.snapshot.decisions import GroupDecision, QueueDecision

# These pass by themselves, and soon: WindowFull while as many as allowed are starting.
_UNSAID = frozenset({Reason.WINDOW_FULL, Reason.NOT_READY})
_GATED = Unscheduled(SCHEDULING_GATED, "Scheduling is blocked due to non-empty scheduling gates")


class ConditionPolicy(msgspec.Struct, frozen=True):
    """What Muster says of a waiting pod in its condition PodScheduled, and so to people and to autoscalers.

        lacks room              Unschedulable                   autoscalers look for this reason alone
        would exceed a ceiling  the code of the group's reason  other pods use the headroom of its queue
        waits for its turn      the code of the group's reason  nobody adds nodes for it
        is about to start       nothing                         the scheduler says nothing of it either

    A pod behind our gate has a condition already: the API server says SchedulingGated. It says something else
    only while room is what it lacks, and not after that: autoscalers would go on adding nodes. The message is
    constant for a reason, so a condition is written once for each turn."""

    ungated: bool = False  # pods without gates are told, as the scheduler does not write that condition
    shows_waiting_for_room: bool = True  # pods that lack room are Unschedulable
    shows_never_fits: bool = False  # pods that no node could hold are, since larger ones may come

    def wanted(self, decision: GroupDecision, pod: PodRecord, by_request: bool = False) -> Unscheduled | None:
        """What a waiting member without a planned node should say; None: what it says now. `by_request`:
        nodes are asked for by a ProvisioningRequest, so that no pod may ask for them as well."""
        reason = spoken_reason(decision)
        if reason is None or not pod.waiting or pod.foreign_gates or pod.uid in decision.plan:
            return None
        is_shown = self.shows_waiting_for_room or (self.shows_never_fits and reason is Reason.NEVER_FITS)
        nodes_help = not by_request and is_shown and self.asks(decision, pod)
        if pod.gated and not nodes_help:
            return _GATED if pod.unscheduled and pod.unscheduled.is_ours else None
        if not (pod.gated or self.ungated):
            return None
        return Unscheduled(UNSCHEDULABLE if nodes_help else str(reason), refusal(reason))

    def asks(self, decision: GroupDecision, pod: PodRecord) -> bool:
        """Return whether nodes are asked for on behalf of a waiting member."""
        return self.nodes_help(decision) and (decision.asking is None or pod.uid in decision.asking)

    def nodes_help(self, decision: GroupDecision) -> bool:
        """Whether the members of a group that wait could start if nodes came."""
        reason = spoken_reason(decision)
        if reason is Reason.NEVER_FITS:
            return decision.exceeds_cluster or (self.shows_never_fits and not decision.exceeds_queue)
        return reason in NODES_HELP


def spoken_reason(decision: GroupDecision) -> Reason | None:
    """The reason that waiting members of a group give; None while it starts, or is about to."""
    if decision.verdict is Verdict.STARTING or decision.reason in _UNSAID:
        return None
    return decision.reason


# ---- The conditions of a queue. Messages contain no counts, so that they stay the same.

OPEN, VALID = "Open", "Valid"
GUARANTEE_UNMET, FLAVOR_NOT_FOUND = "GuaranteeUnmet", "FlavorNotFound"  # written where they hold, or did


class QueueCondition(msgspec.Struct, frozen=True):
    """A condition without the time of its last transition."""

    type: str
    holds: bool  # whether its status is True
    reason: str  # a code
    message: str  # for people


def conditions_of(queue: QueueDecision) -> Iterator[QueueCondition]:
    yield QueueCondition(OPEN, queue.state == QueueState.OPEN, *_why(queue))
    remark = f"nodes offer less {listed(queue.above_nodes)} than it deserves" if queue.above_nodes else ""
    why = ("InvalidSpec", queue.fault) if queue.fault else ("Valid", remark)
    yield QueueCondition(VALID, not queue.fault, *why)
    short = listed(sorted(queue.unmet))
    unmet = f"nodes offer less {short} than queues are guaranteed: each has the same part of its guarantee"
    why = ("TooFewNodes", unmet) if queue.unmet else ("Met", "")
    yield QueueCondition(GUARANTEE_UNMET, bool(queue.unmet), *why)
    lacking = f"nothing starts on ResourceFlavors that do not exist: {listed(queue.missing_flavors)}"
    why = ("Missing", lacking) if queue.missing_flavors else ("Found", "")
    yield QueueCondition(FLAVOR_NOT_FOUND, bool(queue.missing_flavors), *why)


def _why(queue: QueueDecision) -> tuple[str, str]:
    match queue.state:
        case QueueState.OPEN:
            return "Open", "it takes new groups"
        case QueueState.UNKNOWN:
            return "UnknownState", "its state is not a known state; set spec.state to Open or Closed"
    if queue.deleting:
        return "Deleting", "it is being deleted and takes no new groups; existing groups continue"
    if queue.wish is QueueState.CLOSED:
        return "Closed", "it takes no new groups; existing groups continue"
    above = f"queue {queue.closed_above} above it is closed"
    return "ParentClosed", f"{above}; this queue opens when that one does"
