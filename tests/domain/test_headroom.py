"""Headroom: the rest below a ceiling or limit is reserved for the groups that it blocks, as nodes are."""

from itertools import product
from typing import Any

from extender.api.objects.queues import QueueFlavor, QueueLimits, RunningLimit
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from tests.domain.builders import node, queue
from tests.domain.test_reservations import PATIENCE, end
from tests.domain.world import LIMITS, World, comparable, gang, timestamp
from tests.rows import each_of

STARTS, WAITS = Verdict.STARTING, Verdict.WAITING
FOUR: dict[str, Any] = {"cpu": "4"}
WAYS = {
    "capability": [queue("q", capability=FOUR)],
    "capability above": [queue("p", capability=FOUR), queue("q", parent="p")],
    "flavor": [queue("q", flavors=[QueueFlavor("all", capability=FOUR)])],
    "flavor above": [queue("p", flavors=[QueueFlavor("all", capability=FOUR)]), queue("q", parent="p")],
    "pods": [queue("q", limits=QueueLimits(pods=4))],
    "pods of each namespace": [queue("q", limits=QueueLimits(per_namespace=RunningLimit(pods=4)))],
}


def job(world: World, name: str, members: int = 1, **more: Any) -> World:
    """Add a gang of queue q that comes now; each member asks for 1 cpu."""
    return world.add(gang(name, members, created=timestamp(world.now), **{"queue": "q", "cpu": "1", **more}))


def full(way: str = "capability", run_time: str = "1h") -> World:
    """Return a world where queue q runs four jobs of 1 cpu, its ceiling, and `big` needs all of that.

    The nodes have capacity for more.
    """
    world = World(node("n0", cpu="8"), node("n1", cpu="8"), *WAYS[way], queue("r"))
    for n in range(4):
        job(world, f"small{n}", run_time=run_time).start(f"small{n}")
    return job(world, "big", 4).settle()


def reserved(way: str = "capability", run_time: str = "1h") -> World:
    world = full(way, run_time)
    world.pass_time(PATIENCE + 1.0)
    assert world.decision("big").reservation is not None
    return world


@each_of(*WAYS)
def test_headroom_freed_below_a_ceiling_is_reserved_for_the_group_that_waited_too_long(way: str) -> None:
    world = full(way)
    world.pass_time(PATIENCE - 2.0)
    assert (world.reason("big"), world.decision("big").reservation) == (Reason.QUEUE_CEILING, None)
    world.pass_time(3.0)
    job(end(world, "small0", "small1"), "late").settle()
    assert (world.verdict("big"), world.reason("late")) == (WAITS, Reason.RESERVED)
    assert "team/big: headroom in " in world.detail("late")
    end(world, "small2", "small3")
    assert world.verdict("big") is STARTS


@each_of(*product(WAYS, [("40m", STARTS), ("55m", WAITS), ("", WAITS)]))
def test_a_group_that_ends_before_the_reserved_start_may_start_first(
    way: str, late: tuple[str, Verdict]
) -> None:
    run_time, verdict = late
    world = end(job(reserved(way), "late", run_time=run_time), "small0")
    assert world.verdict("late") is verdict


def test_two_that_go_first_do_not_take_the_same_headroom_twice() -> None:
    world = job(job(reserved(), "one", run_time="40m"), "two", run_time="40m")
    assert sorted(end(world, "small0").verdicts("one", "two")) == [STARTS, WAITS]


def test_headroom_that_the_group_will_not_need_is_free() -> None:
    """Three of four end before it starts, and it needs two."""
    world = World(node("n0", cpu="8"), queue("q", capability=FOUR))
    for n, run_time in enumerate(("1h", "1h", "2h", "1h")):
        job(world, f"small{n}", run_time=run_time).start(f"small{n}")
    job(world, "big", 2).pass_time(PATIENCE + 1.0)
    assert end(job(world, "late"), "small2").verdict("late") is STARTS


def test_the_message_of_a_headroom_reservation_names_the_queue_the_nodes_and_the_timestamp() -> None:
    world = full()
    came = world.now
    world.pass_time(PATIENCE + 1.0)
    reservation = world.decision("big").reservation
    assert reservation is not None
    text = f"headroom in queue q and nodes {', '.join(reservation.node_names)} are reserved"
    assert text in world.detail("big")
    assert world.detail("big").endswith(timestamp(came + 3600.0))


def test_nodes_are_not_reserved_for_groups_that_lack_headroom_of_unknown_duration() -> None:
    """A queue of services never gets it: other queues get all capacity."""
    world = reserved(run_time="")
    assert job(world, "other", 12, queue="r").settle().verdict("other") is STARTS


def test_headroom_is_reserved_and_borrowed_by_turns_where_run_times_are_unknown() -> None:
    world = end(job(reserved(run_time=""), "late"), "small0")
    assert world.reason("late") is Reason.RESERVED
    world.pass_time(LIMITS.capacity_reserved + 1.0)
    assert world.verdict("late") is STARTS


def borrowers() -> World:
    """Return a world in which `rich` holds its parent's ceiling; `big` of its sibling is within its share."""
    rich = queue("rich", parent="p", reclaimable=False)
    world = World(node("n0", cpu="8"), queue("p", capability=FOUR), queue("q", parent="p"), rich)
    for n in range(4):
        job(world, f"small{n}", queue="rich").start(f"small{n}")
    return job(world, "big", 2).settle()


def test_a_queue_within_its_share_claims_what_borrowers_leave_below_a_ceiling() -> None:
    world = end(job(borrowers(), "more", queue="rich"), "small0")
    assert (world.reason("big"), world.reason("more")) == (Reason.QUEUE_CEILING, Reason.QUEUE_SHARE)
    assert world.detail("more") == "groups in q have a claim on the headroom below the ceiling"
    assert end(world, "small1").verdict("big") is STARTS


def test_a_claim_on_borrowed_headroom_is_reserved_and_borrowed_by_turns() -> None:
    world = borrowers()
    world.add(queue("q", parent="p", reserve_after="24h"))
    end(job(world, "more", queue="rich"), "small0")
    assert world.reason("more") is Reason.QUEUE_SHARE
    world.pass_time(LIMITS.capacity_reserved + 1.0)
    assert world.verdict("more") is STARTS


def test_the_owner_of_a_reservation_reclaims_at_a_ceiling_with_what_is_reserved_for_it() -> None:
    """Its queue is within its share: two of the four borrowed go, one has ended by itself."""
    world = borrowers()
    world.pass_time(PATIENCE + 1.0)
    assert world.decision("big").reservation is not None
    end(world, "small0")
    world.add(queue("rich", parent="p")).settle()
    assert world.reason("big") is Reason.RECLAIMING
    assert len(world.decisions.evictions) == 1


def test_the_same_is_decided_without_memory() -> None:
    for world in (reserved("pods"), reserved("capability above"), borrowers()):
        job(world, "late").settle()
        for n in range(4):
            end(world, f"small{n}")
            assert comparable(decide(world.ledger.snapshot(), world.decisions)) == comparable(
                decide(world.ledger.snapshot(), None)
            )
