"""Condition PodScheduled of a waiting pod: its content, and how it is read."""

from itertools import product
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Condition
from extender.api.objects.pods import Pod
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Reason, Verdict, refusal
from extender.domain.model.records import PodRecord, Unscheduled
from extender.domain.model.shapes import Shapes
from extender.domain.model.wire_records import pod_record
from extender.domain.snapshot.decisions import ConditionPolicy, GroupDecision
from tests.domain.builders import SCHEDULER, group, node, pod, queue
from tests.domain.world import World, gang, key, nodes
from tests.rows import each_of

CAPACITY = (Reason.NO_ROOM, Reason.FRAGMENTED, Reason.NO_DOMAIN, Reason.REFUSED_BY_SCHEDULER)
SOON = (Reason.WINDOW_FULL, Reason.NOT_READY)
GATED = Unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
AS_CREATED = Unscheduled("SchedulingGated", "")  # its message is not kept
VIEW = ConditionPolicy(covers_ungated=True)


def record(shown: Unscheduled | None = None, **options: Any) -> PodRecord:
    new_pod = pod("p", **options)
    assert Ownership(frozenset({SCHEDULER})).owns(new_pod, "")
    return replace(pod_record(new_pod, Shapes(), is_ours=True), unscheduled=shown)


def waiting(reason: Reason | None, verdict: Verdict = Verdict.WAITING, **more: Any) -> GroupDecision:
    return GroupDecision(key("g"), "default", verdict, reason, "3 of 4", **more)


def unschedulable(reason: Reason) -> Unscheduled:
    return Unscheduled("Unschedulable", refusal(reason))


# ---- which pods say what


@each_of(*Reason)
def test_only_pods_that_lack_capacity_request_nodes(reason: Reason) -> None:
    condition = VIEW.condition_of(waiting(reason), record(gated=False))
    if reason in SOON:
        assert condition is None
    else:
        assert condition == Unscheduled("Unschedulable" if reason in CAPACITY else reason, refusal(reason))


@each_of(*Reason)
def test_the_condition_of_a_gated_pod_names_only_missing_capacity(reason: Reason) -> None:
    condition = ConditionPolicy().condition_of(waiting(reason), record(AS_CREATED))
    assert condition == (unschedulable(reason) if reason in CAPACITY else None)


@each_of(*(each for each in Reason if each not in CAPACITY and each not in SOON))
def test_a_gated_pod_that_lacks_no_capacity_any_more_requests_no_nodes(reason: Reason) -> None:
    shown = unschedulable(Reason.NO_ROOM)
    assert ConditionPolicy().condition_of(waiting(reason), record(shown)) == GATED


@each_of(*product(Reason, (True, False)))
def test_no_pod_requests_nodes_where_that_is_hidden(reason: Reason, view: bool) -> None:
    hidden = ConditionPolicy(covers_ungated=view, shows_waiting_for_capacity=False)
    for gated in (True, False):
        condition = hidden.condition_of(waiting(reason), record(gated=gated))
        if gated or not view or reason in SOON:
            assert condition is None
        else:
            assert condition == Unscheduled(reason, refusal(reason))


def test_a_condition_is_withdrawn_where_it_is_hidden_now() -> None:
    hidden = ConditionPolicy(shows_waiting_for_capacity=False)
    assert hidden.condition_of(waiting(Reason.NO_ROOM), record(unschedulable(Reason.NO_ROOM))) == GATED


@each_of(*Reason)
def test_without_the_view_the_condition_of_a_pod_without_gates_is_the_schedulers(reason: Reason) -> None:
    assert ConditionPolicy().condition_of(waiting(reason), record(gated=False)) is None


@each_of((False, False, False), (True, False, True), (True, True, False), (False, True, False))
def test_nodes_are_requested_for_groups_above_node_size_unless_the_queue_is_too_small(
    shows: bool, exceeds_queue: bool, asks: bool
) -> None:
    policy = ConditionPolicy(covers_ungated=True, shows_never_fits=shows)
    decision = waiting(Reason.NEVER_FITS, exceeds_queue=exceeds_queue)
    condition = policy.condition_of(decision, record(gated=False))
    assert condition is not None
    assert condition.reason == ("Unschedulable" if asks else "NeverFits")


@each_of(
    (waiting(Reason.NO_ROOM, Verdict.STARTING), record(gated=False)),
    (waiting(None, Verdict.RUNNING), record(gated=False)),
    (waiting(None, Verdict.ENDED), record(gated=False)),
    (waiting(Reason.NO_ROOM, Verdict.RUNNING, plan={"uid-p": "a"}), record(gated=False)),
    (waiting(Reason.NO_ROOM), record(gated=False, foreign_gate="somebody/else")),
    (waiting(Reason.NO_ROOM), record(gated=False, on="a")),
    (waiting(Reason.NO_ROOM), record(gated=False, phase="Failed")),
)
def test_no_condition_is_written_for_groups_that_lack_neither_capacity_nor_turn(
    decision: GroupDecision, member: PodRecord
) -> None:
    assert VIEW.condition_of(decision, member) is None


def test_elastic_members_of_a_running_group_are_reported() -> None:
    decision = waiting(Reason.NO_ROOM, Verdict.RUNNING)
    assert VIEW.condition_of(decision, record(gated=False)) == unschedulable(Reason.NO_ROOM)


def test_the_reason_does_not_change_with_the_numbers() -> None:
    decision = waiting(Reason.NO_ROOM)
    assert VIEW.condition_of(decision, record()) == VIEW.condition_of(
        replace(decision, detail="2 of 4"), record()
    )


# ---- too large for the queue, or for the cluster


@each_of(
    (gang("g", 3, queue="small"), True),
    ([group("g", 1, "small", min_resources={"cpu": "9"}), pod("p", "g")], True),
    (gang("g", 1, cpu="8"), False),  # too large for the cluster
)
def test_a_group_too_large_for_its_queue_says_so(objects: list[Any], exceeds: bool) -> None:
    world = World(nodes("a", "b"), queue("small", capability={"cpu": "2"}), objects).settle()
    assert (world.reason("g"), world.decision("g").exceeds_queue) == (Reason.NEVER_FITS, exceeds)


# ---- what is read from a pod


def with_condition(reason: str, message: str, status: str = "False", **options: Any) -> Pod:
    new_pod = pod("p", **options)
    conditions = [Condition("PodScheduled", status, reason, message)]
    return replace(new_pod, status=replace(new_pod.status, conditions=conditions))


@each_of(
    ("Unschedulable", "0/3 nodes are available", "0/3 nodes are available", "0/3 nodes are available"),
    ("Unschedulable", "0/3: muster: NoRoom: no", "0/3: muster: NoRoom: no", "0/3: muster: NoRoom: no"),
    ("Unschedulable", "muster: NoRoom: no", "muster: NoRoom: no", ""),
    ("QueueShare", "muster: QueueShare: no", "muster: QueueShare: no", ""),
    ("SchedulerError", "binding rejected: 17:03", "", ""),
    ("SchedulingGated", "blocked", "", ""),
)
def test_a_condition_of_muster_is_no_refusal_of_the_scheduler(
    reason: str, message: str, reserved: str, refused: str
) -> None:
    found = pod_record(with_condition(reason, message), Shapes(), is_ours=True)
    assert found.unscheduled == Unscheduled(reason, reserved)
    assert found.unschedulable == refused


def test_a_pod_that_is_scheduled_says_nothing() -> None:
    assert pod_record(with_condition("", "", status="True"), Shapes(), is_ours=True).unscheduled is None
    assert pod_record(pod("p"), Shapes(), is_ours=True).unscheduled is None


def test_a_condition_by_muster_is_no_refusal_of_the_planned_node() -> None:
    """A refusal would move the claim to another node, and be held against the planned one."""
    world = World(nodes("a", "b"), pod("p", gated=False)).settle()
    world.refuse("p", refusal(Reason.NO_ROOM))
    assert _refusals(world) == 0
    world.refuse("p", "0/2 nodes are available: 2 Insufficient magic.")
    assert _refusals(world) == 1


def _refusals(world: World) -> int:
    attempts = world.ledger.snapshot().groups[key("pod:p")].attempts
    return sum(attempt.refused_at is not None for attempt in attempts.values())


def test_a_condition_by_muster_is_stored_without_a_decision() -> None:
    world = World(node("a", cpu="1"), gang("g", 2, gated=False)).settle()
    version, changes = world.ledger.version, world.changes
    world.refuse("g-0", refusal(Reason.NO_ROOM))
    world.refuse("g-0", refusal(Reason.FRAGMENTED))
    assert (world.ledger.version, world.changes) == (version, changes)
    shown = {member.name: member.unscheduled for member in world.ledger.groups.members(key("g"))}
    assert shown == {"g-0": unschedulable(Reason.FRAGMENTED), "g-1": None}


def test_a_newer_version_of_a_waiting_pod_is_known_and_causes_no_decision() -> None:
    world = World(node("a", cpu="1"), gang("g", 2, gated=False)).settle()
    world.refuse("g-0")
    world.settle()
    before, version = world.pods["g-0"], world.ledger.version
    world.add(replace(before, metadata=replace(before.metadata, resource_version="7")))
    assert world.ledger.version == version
    assert {member.version for member in world.ledger.groups.members(key("g"))} == {"7", ""}


def test_a_refusal_that_own_words_replaced_is_news_when_it_comes_again() -> None:
    world = World(node("a"), pod("p", gated=False)).settle()
    message = "0/1 nodes are available: 1 Insufficient magic."
    world.refuse("p", message)
    first = world.ledger.snapshot().groups[key("pod:p")].attempts
    world.advance(1.0).refuse("p", refusal(Reason.NO_ROOM))
    world.advance(1.0).refuse("p", message)
    assert world.ledger.snapshot().groups[key("pod:p")].attempts != first
