"""Decisions, the result of decide(): verdicts, reasons, plans, Events, and conditions of pods and queues."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from extender.api.keys import SCHEDULING_GATED, UNSCHEDULABLE
from extender.api.objects.queues import QueueUsage
from extender.api.units import listed
from extender.domain.model.evictions import Eviction, Reclaim
from extender.domain.model.reasons import NODES_HELP, EventReason, Reason, Verdict, refusal
from extender.domain.model.records import GroupKey, PodRecord, Uid, Unscheduled
from extender.domain.model.resources import Resources
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.queues.states import AnnotationStep, QueueState
from extender.domain.queues.tree import Orphan
from extender.domain.snapshot.group_info import Reservation, Start
from extender.domain.snapshot.phases import Life

NOT_WORKED_OUT = Life()  # placeholder until all groups are decided


class GroupDecision(msgspec.Struct, frozen=True, gc=False):
    key: GroupKey
    queue: str  # the queue that its members count towards
    verdict: Verdict  # whether it waits, starts, runs or has ended
    reason: Reason | None = None  # why the group, or some members, wait; None: none of them waits
    detail: str = ""  # the numbers behind the reason
    plan: Mapping[Uid, str] = {}  # the nodes of members that are to start
    reduced_to: int | None = None  # with how many members it starts; None: with all, or not now
    flavors: Mapping[str, str] = {}  # the flavor with capacity for it, by role; "": roles without a number
    undo: tuple[Uid, ...] = ()  # bound members of a start that failed finally, to be evicted
    failed: str = ""  # why a start, or the joining of further members, has just failed; empty if none has
    retry_at: float = 0.0  # when it is tried again after a failure; kept while members of it still wait
    moved: Mapping[Uid, str] = {}  # members whose planned node the scheduler would not use, with that node
    life: Life = NOT_WORKED_OUT  # its phase and numbers of members, filled in once all is decided
    stood_whole: bool = False  # whether the cycle found that it has fully run by now
    rotation: int | None = None  # the rotation of its queue with its next turn; None: as before
    claims_capacity: bool = False  # whether capacity is reserved for it, within its queue's share
    reservation: Reservation | None = None  # the nodes reserved for it
    reclaim: Reclaim | None = None  # the capacity that is being reclaimed for it, or its restart
    spared: str = ""  # the group that is spared since it was a victim before, for users; empty: none
    price: str = ""  # until when the price of its victims delays it, for users; empty: no delay
    exceeds_queue: bool = False  # it never fits because of its queue: no further node would help
    exceeds_cluster: bool = False  # it never fits, and each of its members does: more nodes would help
    asking: tuple[Uid, ...] | None = None  # members that may ask for nodes, where these help; None: all
    position: int = 0  # in its queue, from 1, coarse from 10 on: few starts change it; 0: not in line
    fault: str = ""  # exception raised by the evaluation of the group, and its place; empty: none

    @property
    def lets_members_start(self) -> bool:
        """Return whether members with held bind calls may be bound; not if the group's PodGroup is gone."""
        goes_on = self.verdict is Verdict.STARTING or self.verdict is Verdict.RUNNING
        return goes_on and self.reason is not Reason.GROUP_NOT_FOUND


class FlavorShare(msgspec.Struct, frozen=True, gc=False):
    """Part of the amounts of a queue, and those below it, on the nodes of a flavor."""

    allocated: Resources = {}
    deserved: Mapping[str, float] = {}  # deserved amounts of the resources that any queue names in the flavor
    borrowed: Resources = {}  # allocation above the deserved amounts


class QueueDecision(msgspec.Struct, frozen=True, gc=False):
    """Decision about one queue. Amounts are by resource."""

    name: str
    state: str  # a QueueState
    weight: int  # its part in the division, at least 1
    parent: str  # the queue above it, as its share is divided; empty for root
    allocated: Resources  # requests of its pods on nodes or assumed, with all queues below it
    requested: Resources  # `allocated`, and the requests of waiting entitled groups
    deserved: Mapping[str, float]  # its deserved amounts, without zeros
    ceiling: Mapping[str, float]  # the most that it may ever hold; inf: no limit
    share: float  # the part of its deserved amounts that it holds, in its dominant resource
    borrowed: Mapping[str, int] = {}  # allocation above the deserved share
    flavors: Mapping[str, FlavorShare] = {}  # by the name of a flavor
    above_nodes: tuple[str, ...] = ()  # resources of which its spec deserves more than nodes offer
    unmet: Resources = {}  # available guarantee, if nodes offer less than all guarantees
    usage: QueueUsage | None = None  # recent usage of its own groups; None: none, or unknown
    counts: Mapping[str, int] = {}  # its groups and those of queues below it, by column of its status
    uid: str = ""  # empty while the API has no such queue
    wish: QueueState = QueueState.OPEN  # its state apart from its parents
    deleting: bool = False  # it is being deleted
    closed_above: str = ""  # the ancestor that keeps it closed; empty if none does
    mark: AnnotationStep = AnnotationStep.KEEP  # step for the closed-by-parent annotation
    fault: str = ""  # fault of its spec, for users; empty if valid
    missing_flavors: tuple[str, ...] = ()  # ResourceFlavors that it names and that do not exist
    reservation: Reservation | None = None  # that of one of its groups
    reclaimed: Mapping[ReclaimKey, Reclaimed] = {}  # the last reclaims of this queue, within an hour
    waiting: int = 0  # how many of its own groups are in line


class Decisions(msgspec.Struct, frozen=True):
    version: int = -1  # version of their snapshot
    groups: Mapping[GroupKey, GroupDecision] = {}
    queues: Mapping[str, QueueDecision] = {}  # by name
    requeue_at: float | None = None  # when time alone could next change a decision; None: never
    orphans: tuple[Orphan, ...] = ()  # groups to delete, because the queue that took them in is gone
    evictions: Mapping[Uid, Eviction] = {}  # the pods that have to free their capacity
    counts: Mapping[tuple[str, str], int] = {}  # groups by (queue, column of its status)
    local_counts: Mapping[tuple[str, str], int] = {}  # groups by (LocalQueue, column of its status)
    serial: int = 0  # serial of the previous decisions plus one
    changed: Sequence[GroupKey] = ()  # groups whose decision changed since the previous one, or that are gone
    renumbered: Sequence[GroupKey] = ()  # groups of which only numbers for users changed: details, positions
    memory: object = None  # data that saves work in the next cycle

    def changed_since(self, seen: "Decisions") -> Sequence[GroupKey]:
        """Return the groups that a consumer of the `seen` decisions has to look at.

        Where these are the previous ones, groups of which only numbers changed are left out.
        """
        if self is seen:
            return ()
        if self.serial == seen.serial + 1:
            return self.changed
        return (*self.groups, *sorted(seen.groups.keys() - self.groups.keys()))


def start_after(
    start: Start, decision: GroupDecision, now: float, stood_whole: bool, resumes: bool, undone: int | None
) -> Start:
    """Return the history of a group's starts after a decision, published `now`.

    Args:
        start: The history before the decision.
        decision: The published decision.
        now: The time on the ledger's clock.
        stood_whole: Whether all members of the start had their nodes.
        resumes: Whether the group resumes after a restart of Muster.
        undone: How many starts in a row count as undone before it; None: those of its job are counted
            elsewhere.
    """
    rotation = start.rotation if decision.rotation is None else decision.rotation
    places_since = None
    if decision.reason is Reason.WINDOW_FULL:
        places_since = now if start.places_since is None else start.places_since
    no_domain_since = None
    if decision.reason is Reason.NO_DOMAIN and decision.verdict is Verdict.RUNNING:
        no_domain_since = now if start.no_domain_since is None else start.no_domain_since
    idle = replace(start, admitted_at=None, released_at=None, reservation=None, reclaim=None)
    if decision.failed:
        is_undone = bool(decision.undo) and start.admitted_at is not None and undone is not None
        return Start(
            failures=start.failures + 1,
            undone=(undone or 0) + 1 if is_undone else start.undone,
            retry_at=decision.retry_at,
            failure=decision.failed,
            admitted=start.admitted and bool(decision.undo),
            rotation=rotation,
            claims_since=start.claims_since,
        )
    match decision.verdict:
        case Verdict.STARTING if start.admitted_at is None:
            return replace(idle, admitted_at=now, admitted=True, rotation=rotation, places_since=None)
        case Verdict.RUNNING if stood_whole and not decision.retry_at:
            return Start(places_since=places_since, no_domain_since=no_domain_since, reclaim=decision.reclaim)
        case Verdict.ENDED:
            return Start()
        case Verdict.RUNNING:
            return replace(idle, admitted=start.admitted or resumes, places_since=places_since)
        case Verdict.WAITING if not decision.undo:
            since = start.claims_since
            return replace(
                idle,
                admitted=False,
                rotation=rotation,
                claims_since=now if since is None and decision.claims_capacity else since,
                places_since=places_since,
                reservation=decision.reservation,
                reclaim=decision.reclaim,
            )
    return start


def message_of(decision: GroupDecision, change: str = "") -> str:
    """Return the details of a wait: the numbers, the position, and the change that would start the group."""
    known = decision.detail, decision.price, decision.spared, position_text(decision), change
    return "; ".join(filter(None, known))


def position_text(decision: GroupDecision) -> str:
    """Return `position 3 in queue research`; empty for a group without a position."""
    return f"position {decision.position} in queue {decision.queue}" if decision.position else ""


# Changes of a group's decision that lead to an Event: some at once, such as a failed start; others lead to a
# state, such as waiting for capacity, which has to last. Changes of numbers are not reported.

_NEEDS_ACTION = frozenset(
    {
        Reason.GROUP_NOT_FOUND,
        Reason.QUEUE_NOT_FOUND,
        Reason.INVALID_SPEC,
        Reason.TOO_COMPLEX,
        Reason.QUEUE_NOT_OPEN,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.NEVER_FITS,
        Reason.TOO_LARGE_FOR_WINDOW,
        Reason.BACKING_OFF,
        Reason.REFUSED_BY_SCHEDULER,
    }
)


class Transition(msgspec.Struct, frozen=True):
    """Transition that an Event reports."""

    reason: str  # a code of the closed list
    message: str  # for users
    warning: bool = False  # whether a person has to act
    for_members: bool = False  # whether it is reported on waiting members as well


VerdictAndReason = tuple[Verdict, Reason | None]


def verdict_of(decision: GroupDecision) -> VerdictAndReason:
    """Return the part of a decision whose change gets an Event."""
    return (decision.verdict, decision.reason)


def immediate_transition(before: GroupDecision | None, now: GroupDecision) -> Transition | None:
    """Return the transition that is reported at once; None for a first decision, or without one."""
    if before is None:
        return None
    if now.undo and not before.undo:
        text = f"evicting {len(now.undo)} bound members: {now.detail}"
        return Transition(EventReason.UNDONE, text, warning=True)
    if now.failed and not before.failed and now.verdict is Verdict.WAITING:
        reason = now.reason or Reason.BACKING_OFF
        return Transition(reason, _message(reason, now.detail), warning=True, for_members=True)
    if now.reclaim and not before.reclaim:
        reason = now.reason or Reason.RECLAIMING
        return Transition(reason, _message(reason, now.detail), for_members=True)
    if now.spared and not before.spared:
        return Transition(EventReason.RECLAIM_LOOP, now.spared, warning=True)
    if now.verdict is Verdict.RUNNING and before.verdict is not Verdict.RUNNING:
        return Transition(Verdict.RUNNING, "all members that the group needs are on nodes")
    return None


def state_transition(decision: GroupDecision, change: str = "") -> Transition | None:
    """Return the state that lasts while the decision does; None if nothing is lacking.

    `change`: the change that would start the group, as a sentence.
    """
    if decision.reason is not None:
        warning = decision.reason in _NEEDS_ACTION
        message = _message(decision.reason, message_of(decision, change))
        return Transition(decision.reason, message, warning, for_members=True)
    if decision.verdict is Verdict.STARTING:
        planned = f"{len(decision.plan)} members have a planned node and are released to the scheduler"
        known = [planned] if decision.plan or not decision.detail else []
        return Transition(Verdict.STARTING, "; ".join([*known, *filter(None, [decision.detail])]))
    return None


def _message(reason: Reason, detail: str) -> str:
    return f"{reason.meaning}: {detail}" if detail else reason.meaning


# Reasons that soon pass by themselves, such as WindowFull.
_UNSAID = frozenset({Reason.WINDOW_FULL, Reason.NOT_READY})
_GATED = Unscheduled(SCHEDULING_GATED, "Scheduling is blocked due to non-empty scheduling gates")


class ConditionPolicy(msgspec.Struct, frozen=True):
    """Policy of the condition PodScheduled on waiting pods, for users and autoscalers.

        lacks capacity          Unschedulable                   autoscalers look for this reason alone
        would exceed a ceiling  the code of the group's reason  other pods use the headroom of its queue
        waits for its turn      the code of the group's reason  no autoscaler adds nodes for it
        is about to start       nothing                         the scheduler says nothing of it either

    A pod behind Muster's gate has a condition already: the API server writes SchedulingGated. Muster replaces
    it only while capacity is lacking, and not after that: otherwise autoscalers would go on adding nodes. The
    message is constant for a reason, so a condition is written once for each turn.
    """

    ungated: bool = False  # whether pods without gates get a condition: the scheduler writes none
    shows_waiting_for_capacity: bool = True  # pods that lack capacity are Unschedulable
    shows_never_fits: bool = False  # pods that no node holds are, too: larger may come

    def wanted(self, decision: GroupDecision, pod: PodRecord, by_request: bool = False) -> Unscheduled | None:
        """Return the condition of a waiting member without a planned node; None: no change.

        Args:
            decision: The decision on the pod's group.
            pod: The waiting member.
            by_request: A ProvisioningRequest asks for nodes, so that no pod may ask for them as well.
        """
        reason = display_reason(decision)
        if reason is None or not pod.waiting or pod.foreign_gates or pod.uid in decision.plan:
            return None
        is_shown = self.shows_waiting_for_capacity or (self.shows_never_fits and reason is Reason.NEVER_FITS)
        nodes_help = not by_request and is_shown and self.wants_nodes(decision, pod)
        if pod.gated and not nodes_help:
            return _GATED if pod.unscheduled and pod.unscheduled.is_ours else None
        if not (pod.gated or self.ungated):
            return None
        return Unscheduled(UNSCHEDULABLE if nodes_help else str(reason), refusal(reason))

    def wants_nodes(self, decision: GroupDecision, pod: PodRecord) -> bool:
        """Return whether a waiting member asks an autoscaler for nodes."""
        return self.nodes_help(decision) and (decision.asking is None or pod.uid in decision.asking)

    def nodes_help(self, decision: GroupDecision) -> bool:
        """Return whether the waiting members of a group could start if nodes were added."""
        reason = display_reason(decision)
        if reason is Reason.NEVER_FITS:
            return decision.exceeds_cluster or (self.shows_never_fits and not decision.exceeds_queue)
        return reason in NODES_HELP


def display_reason(decision: GroupDecision) -> Reason | None:
    """Return the reason of a group's waiting members; None while it starts, or is about to."""
    if decision.verdict is Verdict.STARTING or decision.reason in _UNSAID:
        return None
    return decision.reason


OPEN, VALID = "Open", "Valid"
GUARANTEE_UNMET, FLAVOR_NOT_FOUND = "GuaranteeUnmet", "FlavorNotFound"  # written if true or once true


class QueueCondition(msgspec.Struct, frozen=True):
    """Condition without the time of its last transition."""

    type: str
    holds: bool  # whether its status is True
    reason: str  # a code
    message: str  # for users


def conditions_of(queue: QueueDecision) -> Iterator[QueueCondition]:
    """Yield the conditions of a queue's status."""
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
    """Return the reason and message of the condition for a queue's state."""
    match queue.state:
        case QueueState.OPEN:
            return "Open", "the queue accepts new groups"
        case QueueState.UNKNOWN:
            return "UnknownState", "the state is unknown; set spec.state to Open or Closed"
    if queue.deleting:
        return "Deleting", "the queue is being deleted and accepts no new groups; existing groups continue"
    if queue.wish is QueueState.CLOSED:
        return "Closed", "the queue accepts no new groups; existing groups continue"
    above = f"queue {queue.closed_above} above it is closed"
    return "ParentClosed", f"{above}; this queue opens when that one does"
