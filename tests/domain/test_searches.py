"""Searches for victims: few in one round, in turn where more groups seek some, and none without a reason."""

from extender.domain.model.reasons import Reason
from extender.domain.scheduling.decide import decide
from tests.domain.builders import HOSTNAME, foreign_pod, node, preemption, queue
from tests.domain.world import World, comparable, gang

MANY = 24
ALONE = preemption(unmanaged="Never")


def seeking() -> World:
    """Return a world with many groups of high priority and one small running group of low priority.

    Its capacity is too little for any of them.
    """
    world = World(node("n", cpu="64"), queue("q", preemption=ALONE))
    world.add(gang("small", 1, queue="q", cpu="1")).start("small")
    world.add(foreign_pod("s", on="n", cpu="62.5"))
    world.add([gang(f"g{number}", 2 + number, queue="q", priority=10) for number in range(MANY)])
    return world.settle()


def searches_until_none_is_due(world: World) -> int:
    """Return the number of cycles that time alone brings, one each second."""
    count = 0
    while (requeue_at := world.decisions.requeue_at) is not None and requeue_at <= world.now + 1.0:
        world.advance(requeue_at - world.now).settle()
        count += 1
        assert count <= MANY
    return count


def test_groups_that_can_find_no_victims_take_no_search_from_others() -> None:
    world = World(node("n", cpu="4"), queue("first", priority=1), queue("q", reclaimable=False))
    for number in range(4):
        world.add(gang(f"low{number}", 1, queue="q")).start(f"low{number}")
    world.add([gang(f"g{number}", 1, queue="first", cpu=f"{900 + number}m") for number in range(MANY)])
    world.add(gang("high", 2, queue="q", priority=10)).settle()
    assert world.reason("high") is Reason.RECLAIMING
    assert len(world.decisions.evictions) == 2


def test_each_group_is_searched_for_once_and_then_none_until_a_change() -> None:
    world = seeking()
    assert searches_until_none_is_due(world) > 1
    world.add(foreign_pod("other", on="n", cpu="100m")).settle()
    assert searches_until_none_is_due(world) > 1


def test_hundreds_of_futile_searches_delay_others_for_seconds_only() -> None:
    """A tenant makes groups of different shapes, all ahead of the group that finds a victim."""
    world = World(
        node("n", cpu="4"), node("m", cpu="8"), queue("q", preemption=ALONE), queue("r"), queue("b")
    )
    only_n, only_m = {HOSTNAME: "n"}, {HOSTNAME: "m"}
    world.add(gang("small", 1, queue="q", cpu="500m", selector=only_n)).start("small")
    world.add(foreign_pod("s", on="n", cpu="3"), gang("own", 1, queue="r", selector=only_m)).start("own")
    for number in range(7):
        world.add(gang(f"old{number}", 1, queue="b", selector=only_m)).start(f"old{number}")
    many = [gang(f"g{n}", 2, queue="q", cpu=f"{1000 + n}m", selector=only_n, priority=10) for n in range(100)]
    world.add(many, gang("x", 1, queue="r")).settle()
    begun = world.now
    while world.reason("x") is not Reason.RECLAIMING and world.now < begun + 60.0:
        world.advance(1.0).settle()
    assert world.now <= begun + 3.0


def test_turns_of_searches_do_not_depend_on_memory() -> None:
    world = seeking()
    for number in range(8):
        assert comparable(decide(world.ledger.snapshot(), world.decisions)) == comparable(
            decide(world.ledger.snapshot())
        )
        world.advance(0.7).settle()
        if number % 3 == 0:
            world.add(foreign_pod(f"s{number}", on="n", cpu="1m"))
