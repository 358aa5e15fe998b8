"""Decisions, the result of decide(): verdicts, reasons, plans, Events, and conditions of pods and queues."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from extender.api.keys import SCHEDULING_GATED, UNSCHEDULABLE
from extender.api.objects.queues import QueueUsage
from extender.api.units import listed
from extender.domain.model.evictions import Eviction, Reclaim
from extender.domain.model.reasons import REASONS_FOR_NODES, EventReason, Reason, Verdict, refusal
from extender.domain.model.records import GroupKey, PodRecord, Uid, Unscheduled
from extender.domain.model.resources import Resources
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.queues.states import AnnotationStep, QueueState
from extender.domain.queues.tree import Orphan
from extender.domain.snapshot.group_info import Reservation, Start
from extender.domain.snapshot.phases import Life

UNKNOWN_LIFE = Life()  # placeholder until all groups have a decision


class GroupDecision(msgspec.Struct, frozen=True, gc=False):
    """Decision about one group: its verdict, its plan, and the facts that users see."""

    key: GroupKey
    queue: str  # the queue to which the members count
    verdict: Verdict  # whether the group waits, starts, runs or has ended
    reason: Reason | None = None  # why the group or some members wait; None: no member waits
    detail: str = ""  # numbers that explain the reason, for users
    plan: Mapping[Uid, str] = {}  # planned nodes of the members that are to start
    reduced_to: int | None = None  # size of a partial start; None: all members start, or none now
    flavors: Mapping[str, str] = {}  # flavor with capacity, by role; "" stands for roles without a number
    undo: tuple[Uid, ...] = ()  # bound members to evict, because their start failed finally
    failed: str = ""  # why a start or joining members have just failed; empty: no failure
    retry_at: float = 0.0  # time of the next try after a failure; kept while members wait
    moved: Mapping[Uid, str] = {}  # nodes that were planned for members, but that the scheduler would not use
    life: Life = UNKNOWN_LIFE  # phase and member counts, filled in once all groups have a decision
    stood_whole: bool = False  # whether the cycle found that the group has fully run
    rotation: int | None = None  # rotation of its queue with the group's next turn; None: unchanged
    claims_capacity: bool = False  # whether capacity in its queue's share is reserved for the group
    reservation: Reservation | None = None  # nodes that are reserved for the group
    reclaim: Reclaim | None = None  # capacity that is being reclaimed for the group, or its restart
    spared: str = ""  # why an earlier victim is spared, for users; empty: no group is spared
    price: str = ""  # how long the lost work of its victims delays the group, for users; empty: no delay
    exceeds_queue: bool = False  # the group never fits because of its queue: no new node would help
    exceeds_cluster: bool = False  # the group never fits, but each single member does: new nodes help
    asking: tuple[Uid, ...] | None = None  # members that request new nodes if nodes help; None: all
    position: int = 0  # position in its queue, from 1, rounded from 10 on; 0: no position
    fault: str = ""  # exception in the group's evaluation, with its code line; empty: none

    @property
    def lets_members_start(self) -> bool:
        """Return whether members whose bind calls are held may be bound.

        No member may be bound if the group's PodGroup is gone.
        """
        starts_or_runs = self.verdict is Verdict.STARTING or self.verdict is Verdict.RUNNING
        return starts_or_runs and self.reason is not Reason.GROUP_NOT_FOUND


class FlavorShare(msgspec.Struct, frozen=True, gc=False):
    """Amounts of a queue and the queues below it on the nodes of one flavor."""

    allocated: Resources = {}
    deserved: Mapping[str, float] = {}  # only resources that some queue names in the flavor
    borrowed: Resources = {}  # allocation above the deserved amounts


class QueueDecision(msgspec.Struct, frozen=True, gc=False):
    """Decision about one queue. Amounts are by resource."""

    name: str
    state: str  # a QueueState
    weight: int  # weight in the division of the parent's share, at least 1
    parent: str  # parent queue in the division of shares; empty for root
    allocated: Resources  # requests of pods on nodes and assumed pods, with queues below
    requested: Resources  # `allocated` plus the requests of waiting entitled groups
    deserved: Mapping[str, float]  # deserved amounts, without zeros
    ceiling: Mapping[str, float]  # upper limit of the allocation at any time; inf: no limit
    share: float  # allocation divided by deserved amount, in the dominant resource
    borrowed: Mapping[str, int] = {}  # allocation above the deserved share
    flavors: Mapping[str, FlavorShare] = {}  # shares by flavor name
    above_nodes: tuple[str, ...] = ()  # resources of which its spec deserves more than all nodes offer
    unmet: Resources = {}  # the available part of the guarantee, if the nodes cannot meet all guarantees
    usage: QueueUsage | None = None  # recent usage of its own groups; None: no usage or unknown
    counts: Mapping[str, int] = {}  # groups of this queue and those below, by column of its status
    uid: str = ""  # empty while the API server does not have the queue
    wish: QueueState = QueueState.OPEN  # its state if its ancestors are ignored
    deleting: bool = False  # whether the queue is being deleted
    closed_above: str = ""  # the ancestor that keeps the queue closed; empty: no ancestor does
    mark: AnnotationStep = AnnotationStep.KEEP  # step for the closed-by-parent annotation
    fault: str = ""  # fault of its spec, for users; empty if valid
    missing_flavors: tuple[str, ...] = ()  # missing ResourceFlavors that the queue names
    reservation: Reservation | None = None  # reservation of one of its groups
    reclaimed: Mapping[ReclaimKey, Reclaimed] = {}  # the last reclaims by this queue within an hour
    waiting: int = 0  # number of its own groups in line


class Decisions(msgspec.Struct, frozen=True):
    """Decisions of one scheduling cycle."""

    version: int = -1  # version of the snapshot on which the decisions are based
    groups: Mapping[GroupKey, GroupDecision] = {}
    queues: Mapping[str, QueueDecision] = {}  # decisions on queues, by name
    requeue_at: float | None = None  # when passing time could next change a decision; None: never
    orphans: tuple[Orphan, ...] = ()  # groups to delete, because their queue is gone
    evictions: Mapping[Uid, Eviction] = {}  # pods to evict, with the reason
    counts: Mapping[tuple[str, str], int] = {}  # groups by (queue, column of its status)
    local_counts: Mapping[tuple[str, str], int] = {}  # groups by (LocalQueue, column of its status)
    serial: int = 0  # serial number, which grows by one in each cycle
    changed_groups: Sequence[GroupKey] = ()  # groups that are gone or have a new decision
    renumbered_groups: Sequence[GroupKey] = ()  # groups of which only positions and the like changed
    memory: object = None  # cached data that saves work in the next cycle

    def changed_since(self, seen_decisions: "Decisions") -> Sequence[GroupKey]:
        """Return the groups that a consumer has to look at.

        If the consumer has seen the directly preceding decisions, groups of which only numbers changed are
        left out.

        Args:
            seen_decisions: The decisions that the consumer has looked at before.
        """
        if self is seen_decisions:
            return ()
        if self.serial == seen_decisions.serial + 1:
            return self.changed_groups
        return (*self.groups, *sorted(seen_decisions.groups.keys() - self.groups.keys()))


def start_after(
    start: Start, decision: GroupDecision, now: float, was_whole: bool, resumes: bool, undo_count: int | None
) -> Start:
    """Return the history of a group's starts once a decision is published.

    Args:
        start: The history before the decision.
        decision: The published decision.
        now: The time on the ledger's clock.
        was_whole: Whether all members of the start had their nodes.
        resumes: Whether the group resumes after a restart of Muster.
        undo_count: The number of undone starts in a row before this decision. None means that
            the undone starts of the group's job are counted elsewhere.
    """
    rotation = start.rotation if decision.rotation is None else decision.rotation
    window_full_since = None
    if decision.reason is Reason.WINDOW_FULL:
        window_full_since = now if start.window_full_since is None else start.window_full_since
    no_domain_since = None
    if decision.reason is Reason.NO_DOMAIN and decision.verdict is Verdict.RUNNING:
        no_domain_since = now if start.no_domain_since is None else start.no_domain_since
    cleared_start = replace(start, admitted_at=None, released_at=None, reservation=None, reclaim=None)
    if decision.failed:
        is_undone = bool(decision.undo) and start.admitted_at is not None and undo_count is not None
        return Start(
            failures=start.failures + 1,
            undone_count=(undo_count or 0) + 1 if is_undone else start.undone_count,
            retry_at=decision.retry_at,
            failure=decision.failed,
            was_admitted=start.was_admitted and bool(decision.undo),
            rotation=rotation,
            claims_since=start.claims_since,
        )
    match decision.verdict:
        case Verdict.STARTING if start.admitted_at is None:
            cleared_start = replace(cleared_start, rotation=rotation, window_full_since=None)
            return replace(cleared_start, admitted_at=now, was_admitted=True)
        case Verdict.RUNNING if was_whole and not decision.retry_at:
            return Start(
                window_full_since=window_full_since, no_domain_since=no_domain_since, reclaim=decision.reclaim
            )
        case Verdict.ENDED:
            return Start()
        case Verdict.RUNNING:
            was_admitted = start.was_admitted or resumes
            return replace(cleared_start, was_admitted=was_admitted, window_full_since=window_full_since)
        case Verdict.WAITING if not decision.undo:
            claims_since = start.claims_since
            return replace(
                cleared_start,
                was_admitted=False,
                rotation=rotation,
                claims_since=now if claims_since is None and decision.claims_capacity else claims_since,
                window_full_since=window_full_since,
                reservation=decision.reservation,
                reclaim=decision.reclaim,
            )
    return start


def message_of(decision: GroupDecision, change: str = "") -> str:
    """Return the details of a wait: the numbers, the position, and the change that would start the group."""
    parts = decision.detail, decision.price, decision.spared, position_text(decision), change
    return "; ".join(filter(None, parts))


def position_text(decision: GroupDecision) -> str:
    """Return a text such as `position 3 in queue research`; empty for a group without a position."""
    return f"position {decision.position} in queue {decision.queue}" if decision.position else ""


_ACTION_REASONS = frozenset(
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
    """Change of a group's decision that is reported by an Event.

    Some changes, such as a failed start, are reported at once. A change to a state such as waiting for
    capacity is reported only if that state lasts. Changed numbers are not reported.
    """

    reason: str  # a code from the closed list of reasons
    message: str  # for users
    is_warning: bool = False  # whether a user has to act
    is_for_members: bool = False  # whether the Event is written for waiting members, too


VerdictAndReason = tuple[Verdict, Reason | None]


def verdict_of(decision: GroupDecision) -> VerdictAndReason:
    """Return the verdict and reason of a decision. A change of either leads to an Event."""
    return (decision.verdict, decision.reason)


def immediate_transition(previous: GroupDecision | None, decision: GroupDecision) -> Transition | None:
    """Return the transition that is reported at once.

    None means that this is the first decision on the group, or that no such transition took place.
    """
    if previous is None:
        return None
    if decision.undo and not previous.undo:
        text = f"evicting {len(decision.undo)} bound members: {decision.detail}"
        return Transition(EventReason.UNDONE, text, is_warning=True)
    if decision.failed and not previous.failed and decision.verdict is Verdict.WAITING:
        reason = decision.reason or Reason.BACKING_OFF
        return Transition(reason, _message(reason, decision.detail), is_warning=True, is_for_members=True)
    if decision.reclaim and not previous.reclaim:
        reason = decision.reason or Reason.RECLAIMING
        return Transition(reason, _message(reason, decision.detail), is_for_members=True)
    if decision.spared and not previous.spared:
        return Transition(EventReason.RECLAIM_LOOP, decision.spared, is_warning=True)
    if decision.verdict is Verdict.RUNNING and previous.verdict is not Verdict.RUNNING:
        return Transition(Verdict.RUNNING, "all members that the group needs are on nodes")
    return None


def state_transition(decision: GroupDecision, change: str = "") -> Transition | None:
    """Return the transition into the group's state. It is reported only if the state lasts.

    None means that the group lacks nothing and is not starting.

    Args:
        decision: The decision on the group.
        change: The change that would start the group, as a sentence.
    """
    if decision.reason is not None:
        is_warning = decision.reason in _ACTION_REASONS
        message = _message(decision.reason, message_of(decision, change))
        return Transition(decision.reason, message, is_warning, is_for_members=True)
    if decision.verdict is Verdict.STARTING:
        text = f"{len(decision.plan)} members have a planned node and are released to the scheduler"
        release_texts = [text] if decision.plan or not decision.detail else []
        return Transition(Verdict.STARTING, "; ".join([*release_texts, *filter(None, [decision.detail])]))
    return None


def _message(reason: Reason, detail: str) -> str:
    """Return the meaning of a reason, followed by the numbers."""
    return f"{reason.meaning}: {detail}" if detail else reason.meaning


_PASSING_REASONS = frozenset({Reason.WINDOW_FULL, Reason.NOT_READY})  # hidden, since they soon pass
_GATED_CONDITION = Unscheduled(SCHEDULING_GATED, "Scheduling is blocked due to non-empty scheduling gates")


class ConditionPolicy(msgspec.Struct, frozen=True):
    """Policy of the condition PodScheduled on waiting pods, for users and autoscalers.

        the pod                     reason of the condition     why
        lacks capacity              Unschedulable               autoscalers look for this reason alone
        would exceed a ceiling      code of the group's reason  other pods use the headroom of its queue
        waits for its turn          code of the group's reason  no autoscaler adds nodes for the pod
        is about to start           no condition                the scheduler writes no condition either

    A pod with Muster's gate already has a condition: the API server writes SchedulingGated. Muster replaces
    this condition only while capacity is lacking, and restores it afterwards. Otherwise autoscalers would go
    on adding nodes. The message is the same for each reason, so Muster writes a condition only when the
    reason changes.
    """

    covers_ungated: bool = False  # whether pods without gates get a condition, for schedulers that write none
    shows_waiting_for_capacity: bool = True  # whether pods that lack capacity are Unschedulable
    shows_never_fits: bool = False  # whether pods that fit on no node are Unschedulable, too

    def condition_of(
        self, decision: GroupDecision, pod: PodRecord, is_by_request: bool = False
    ) -> Unscheduled | None:
        """Return the condition of a waiting member without a planned node; None means no change.

        Args:
            decision: The decision on the pod's group.
            pod: The waiting member.
            is_by_request: Whether a ProvisioningRequest requests nodes, so that no pod must request nodes as
                well.
        """
        reason = display_reason(decision)
        if reason is None or not pod.is_waiting or pod.has_foreign_gates or pod.uid in decision.plan:
            return None
        is_shown = self.shows_waiting_for_capacity or (self.shows_never_fits and reason is Reason.NEVER_FITS)
        nodes_help = not is_by_request and is_shown and self.wants_nodes(decision, pod)
        if pod.is_gated and not nodes_help:
            return _GATED_CONDITION if pod.unscheduled and pod.unscheduled.is_ours else None
        if not (pod.is_gated or self.covers_ungated):
            return None
        return Unscheduled(UNSCHEDULABLE if nodes_help else str(reason), refusal(reason))

    def wants_nodes(self, decision: GroupDecision, pod: PodRecord) -> bool:
        """Return whether a waiting member requests nodes from an autoscaler."""
        return self.nodes_help(decision) and (decision.asking is None or pod.uid in decision.asking)

    def nodes_help(self, decision: GroupDecision) -> bool:
        """Return whether the waiting members of a group could start if nodes were added."""
        reason = display_reason(decision)
        if reason is Reason.NEVER_FITS:
            return decision.exceeds_cluster or (self.shows_never_fits and not decision.exceeds_queue)
        return reason in REASONS_FOR_NODES


def display_reason(decision: GroupDecision) -> Reason | None:
    """Return the reason of a group's waiting members; None while the group starts or is about to start."""
    if decision.verdict is Verdict.STARTING or decision.reason in _PASSING_REASONS:
        return None
    return decision.reason


OPEN, VALID = "Open", "Valid"
GUARANTEE_UNMET, FLAVOR_NOT_FOUND = "GuaranteeUnmet", "FlavorNotFound"  # written once they have been true


class QueueCondition(msgspec.Struct, frozen=True):
    """Condition of a queue, without the time of its last transition."""

    type: str
    holds: bool  # whether its status is True
    reason: str  # a code
    message: str  # for users


def conditions_of(queue: QueueDecision) -> Iterator[QueueCondition]:
    """Yield the conditions of a queue's status."""
    yield QueueCondition(OPEN, queue.state == QueueState.OPEN, *_state_reason(queue))
    remark = f"nodes offer less {listed(queue.above_nodes)} than it deserves" if queue.above_nodes else ""
    why = ("InvalidSpec", queue.fault) if queue.fault else ("Valid", remark)
    yield QueueCondition(VALID, not queue.fault, *why)
    names = listed(sorted(queue.unmet))
    text = f"nodes offer less {names} than queues are guaranteed: each has the same part of its guarantee"
    why = ("TooFewNodes", text) if queue.unmet else ("Met", "")
    yield QueueCondition(GUARANTEE_UNMET, bool(queue.unmet), *why)
    text = f"nothing starts on ResourceFlavors that do not exist: {listed(queue.missing_flavors)}"
    why = ("Missing", text) if queue.missing_flavors else ("Found", "")
    yield QueueCondition(FLAVOR_NOT_FOUND, bool(queue.missing_flavors), *why)


def _state_reason(queue: QueueDecision) -> tuple[str, str]:
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
    text = f"queue {queue.closed_above} above it is closed"
    return "ParentClosed", f"{text}; this queue opens when that one does"
