"""What keeps a group from being judged at all: that it rests, its own faults, the state of its queue, or that
room would not help it."""

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from extender.api import keys
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import show
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.spec import not_selected
from extender.domain.queues.tree import QueueView
from extender.domain.scheduling.backoff import back_off, undone
from extender.domain.scheduling.order import Strategies
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView, once
from extender.domain.snapshot.phases import State, ending, life_of, state_of
from extender.domain.snapshot.wholeness import missing


@once
def at_rest(group: GroupView) -> GroupDecision | None:
    """What is decided on a group that has ended, rests or is on its way out: nothing around it changes that.
    None: it has to be judged."""
    state = state_of(group)
    if state not in (State.ENDED, State.ENDING, State.RESTING):
        return None
    verdict = Verdict.ENDED if state is State.ENDED else Verdict.RUNNING
    life = life_of(group, Verdict.RUNNING)
    return GroupDecision(group.key, group.queue, verdict, detail=ending(life), life=life)


def obstacle(round_: Round, group: GroupView) -> GroupDecision | None:
    """The decision on a group that cannot be judged; None where it can."""
    queue = round_.snapshot.queues.get(group.queue)
    if group.spec.fault:
        return waits(group, Reason.INVALID_SPEC, group.spec.fault)
    if not group.exists:
        return waits(group, Reason.GROUP_NOT_FOUND, no_group(group))
    if (local := group.local_queue) is not None and not local.exists:
        return waits(group, Reason.QUEUE_NOT_FOUND, f"LocalQueue {local.key} does not exist")
    if local is not None and local.fault:
        return waits(group, Reason.INVALID_SPEC, local.fault)
    if queue is None or not queue.exists:
        return waits(group, Reason.QUEUE_NOT_FOUND, f"queue {group.queue} does not exist")
    if queue.fault:
        return waits(group, Reason.INVALID_SPEC, queue.fault)
    if excess := _excess(group):
        return waits(group, Reason.TOO_COMPLEX, excess)
    return _kept_out(round_, group, queue) or _held(group, queue.record)


@once
def _excess(group: GroupView) -> str:
    """What a member demands more of than is judged; empty if none does."""
    shapes = ((pod.name, pod.shape.constraints.excess) for pod in group.waiting)
    return next((f"pod {name} has {excess}" for name, excess in shapes if excess), "")


def _kept_out(round_: Round, group: GroupView, queue: QueueView) -> GroupDecision | None:
    """A group that came too late, from elsewhere or too often."""
    if not group.history.entitled:
        name, text = queue.record.name, f"queue {queue.record.name} is {queue.state}"
        above = "" if queue.to_open == name else f", because queue {queue.to_open} above it is closed"
        return waits(group, Reason.QUEUE_NOT_OPEN, text + above)
    if not group.namespace_allowed:
        detail = not_selected(group.queue, group.key.partition("/")[0])
        return waits(group, Reason.NAMESPACE_NOT_ALLOWED, detail)
    if not group.use_allowed:
        text = f"queue {group.queue} is restricted, and it is not noted that the group's author may use it"
        return waits(group, Reason.QUEUE_NOT_ALLOWED, f"{text} ({keys.MAY_USE})")
    if group.job.crowded_out:
        most = round_.limits.expected_pods
        text = f"the jobs of its namespace wait for {most} pods already; it has its turn as these start"
        return waits(group, Reason.BEHIND_OTHERS, text)
    if group.job.start_timeouts >= round_.limits.start_timeouts:
        what = "its pods did not all run in time" if group.job.managed else "its start was undone"
        text = f"{what} {group.job.start_timeouts} times in a row"
        return waits(group, Reason.START_TIMED_OUT, text)
    return None


def _held(group: GroupView, queue: QueueRecord) -> GroupDecision | None:
    """What its owner, or that of its queue, keeps back on purpose."""
    if group.spec.held:
        return waits(group, Reason.HELD, f'the annotation {keys.HOLD} is "true"')
    if queue.stop_policy:
        detail = f"spec.stopPolicy of queue {queue.name} is {queue.stop_policy}"
        return waits(group, Reason.QUEUE_STOPPED, detail)
    if (local := group.local_queue) is not None and local.stop_policy:
        detail = f"spec.stopPolicy of LocalQueue {local.key} is {local.stop_policy}"
        return waits(group, Reason.QUEUE_STOPPED, detail)
    return None


def not_replaced(round_: Round, group: GroupView) -> GroupDecision | None:
    """Why members that a group lost are not replaced: it is held, or its queue or LocalQueue drains. One that
    only admits nothing new keeps whole what runs."""
    queue = round_.snapshot.queues.get(group.queue)
    drains = group.is_drained or (queue is not None and queue.record.stop_policy == keys.STOP_DRAIN)
    return _held(group, queue.record) if queue is not None and (group.spec.held or drains) else None


def above_capability(round_: Round, group: GroupView) -> str:
    """How `minResources` is more than its queue may ever hold; empty where it is not. Volcano's rule for its
    enqueue action: while the group is Pending, operators make no members that could never start. A group
    without it counts for its queue's default request before its pods are there. What a managed job makes is
    known, and may be fewer pods."""
    queue = round_.snapshot.queues[group.queue].record
    if not (most := queue.capability) or group.job.managed:
        return ""
    field, asked = "spec.minResources", group.spec.min_resources
    if not asked and not group.has_pods:
        field = f"spec.defaultRequest for {group.min_member} members"
        asked = {name: amount * group.min_member for name, amount in queue.default_request.items()}
    above = {name: amount for name, amount in asked.items() if amount > most.get(name, amount)}
    more = [f"{name}: {show(name, amount)} > {show(name, most[name])}" for name, amount in above.items()]
    return f"{field} is above the capability of queue {group.queue}: {', '.join(more)}" if more else ""


def exceeds_queue(group: GroupView, detail: str) -> GroupDecision:
    """It never fits because of its queue."""
    return replace(waits(group, Reason.NEVER_FITS, detail), exceeds_queue=True)


def waits(group: GroupView, reason: Reason, detail: str) -> GroupDecision:
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail)


def no_group(group: GroupView) -> str:
    return f"PodGroup {group.key} does not exist"


def ready(round_: Round, strategies: Strategies, groups: Iterable[GroupView]) -> list[GroupView]:
    """Those of the groups that wait that room would help, and those that let none pass while they back off.
    The others are settled."""
    return round_.unsettled(groups, partial(_not_ready, round_, strategies))


def _not_ready(round_: Round, strategies: Strategies, group: GroupView) -> GroupDecision | None:
    if too_much := above_capability(round_, group):
        return undone(round_, group) or exceeds_queue(group, too_much)
    absent = missing(group).absent
    if (group.is_on_nodes or not absent) and strategies.of(group).backs_off(group):
        is_in_line = not absent and strategies.of(group).lets_none_pass(group)
        return None if is_in_line else back_off(round_, group)
    if group.is_on_nodes and (decision := undone(round_, group)) is not None:
        return decision
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, absent) if absent else None
