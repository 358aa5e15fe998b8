"""Flavors in the tree of queues: what is deserved, guaranteed, borrowed and bounded of each."""

from typing import Any

from extender.api.objects.cluster import Node
from extender.api.objects.queues import QueueFlavor
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.flavors import MAX_POOLS
from tests.domain.builders import flavor, foreign_pod, group, node, on_flavor, pod, queue
from tests.domain.world import World, gang
from tests.rows import each_of

GPU = "nvidia.com/gpu"
STARTS, WAITS = Verdict.STARTING, Verdict.WAITING


def machines(kind: str, count: int, gpus: int = 8) -> list[Node]:
    return [
        node(f"{kind}-{n}", cpu="64", labels=on_flavor(kind), more={GPU: str(gpus)}) for n in range(count)
    ]


def gpus(kind: str, **amounts: int) -> QueueFlavor:
    """Return a flavor with amounts of GPUs, by field."""
    written: Any = {field: {GPU: str(n)} for field, n in amounts.items()}
    return QueueFlavor(kind, on_flavor(kind), **written)


def gpu_gang(name: str, members: int, queue: str, each: int = 1, **more: Any) -> list[Any]:
    """Return a gang whose members ask for so many GPUs each."""
    return gang(name, members, queue=queue, more={GPU: str(each)}, **more)


def starts(world: World, *names: str) -> list[bool]:
    return [world.verdict(name) is STARTS for name in names]


def victims(world: World) -> set[str]:
    return {eviction.victim.group.partition("/")[2] for eviction in world.decisions.evictions.values()}


# ---- reclaim


def test_a_queue_without_flavors_reclaims_on_nodes_of_any_flavor() -> None:
    """All of the flavor is due to x, whose gang does not fit there. Each decision says the same."""
    world = World(node("n", cpu="1", labels=on_flavor("a")), node("m", cpu="3"), foreign_pod("s", on="n"))
    world.add(queue("x", flavors=(flavor("a", deserved={"cpu": "1"}),)), gang("x", 1, queue="x", cpu="2"))
    on_a = gang("g", 1, queue="q", priority=5, selector=on_flavor("a"))
    world.add(queue("q", deserved={"cpu": "1"}), on_a).settle()
    assert [world.reason("g"), len(world.decisions.evictions)] == [Reason.RECLAIMING, 1]


@each_of(True, False)
def test_the_deserved_amount_of_a_flavor_is_reclaimed(y_names_it: bool) -> None:
    """Take the flavor back from y, which holds all 16 H100, 8 of them x's.

    There is more than enough of another kind, which x may not use.
    """
    world = World(*machines("h100", 2), *machines("a100", 4))
    world.add(queue("x", flavors=[gpus("h100", deserved=8)]))
    world.add(queue("y", flavors=[gpus("h100"), gpus("a100")] if y_names_it else ()))
    for n in range(4):
        world.add(gpu_gang(f"y{n}", 4, "y", created=f"2026-01-0{n + 1}", selector=on_flavor("h100"))).start(
            f"y{n}"
        )
    world.add(gpu_gang("x0", 8, "x", created="2026-02-01")).settle()
    assert world.queue("y").flavors["h100"].borrowed == {GPU: 8}
    assert world.reason("x0") is Reason.RECLAIMING
    assert len(victims(world)) == 2
    for victim in victims(world):
        world.finish(*(f"{victim}-{n}" for n in range(4)), phase="Failed")
    world.settle()
    assert world.verdict("x0") is STARTS
    assert not world.decisions.evictions


def test_a_queue_above_its_share_on_other_nodes_loses_nothing_of_a_flavor() -> None:
    """Y holds its 8 H100, and more than its half of all GPUs on other nodes."""
    world = World(*machines("h100", 2), *machines("a100", 2))
    x, y = (queue(name, flavors=[gpus("h100", deserved=8), gpus("a100")]) for name in "xy")
    world.add(x, y)
    world.add(gpu_gang("y-h100", 8, "y", selector=on_flavor("h100"))).start("y-h100")
    world.add(gpu_gang("x-h100", 4, "x", selector=on_flavor("h100"))).start("x-h100")
    world.add(gpu_gang("y-a100", 8, "y", selector=on_flavor("a100"))).start("y-a100")
    world.add(gpu_gang("y-more", 8, "y", selector=on_flavor("a100"))).start("y-more")
    world.add(gpu_gang("x0", 8, "x", selector=on_flavor("h100"))).settle()
    assert world.verdict("x0") is WAITS
    assert not world.decisions.evictions
    world.add(gpu_gang("x1", 4, "x", selector=on_flavor("a100"), created="2027-01-01")).settle()
    assert len(victims(world) & {"y-a100", "y-more"}) == len(victims(world)) == 1


def test_each_role_reclaims_its_own_flavor() -> None:
    """X deserves 4 of each kind, all of which y holds: no kind alone would do."""
    world = World(*machines("h100", 1, gpus=4), *machines("a100", 1, gpus=4))
    world.add(queue("x", flavors=[gpus("h100", deserved=4), gpus("a100", deserved=4)]))
    world.add(queue("y", flavors=[gpus("h100"), gpus("a100")]))
    for kind in ("h100", "a100"):
        world.add(gpu_gang(f"y-{kind}", 4, "y", selector=on_flavor(kind))).start(f"y-{kind}")
    world.add(group("x0", 8, queue="x", roles={"learner": 4, "actor": 4}, created="2027-01-01"))
    for role in ("learner", "actor"):
        world.add(*(pod(f"{role}-{n}", "x0", role=role, more={GPU: "1"}) for n in range(4)))
    world.settle()
    assert victims(world) == {"y-h100", "y-a100"}
    for kind in ("h100", "a100"):
        world.finish(*(f"y-{kind}-{n}" for n in range(4)), phase="Failed")
    world.settle()
    assert {name.partition("-")[0]: where for name, where in world.plan("x0").items()} == {
        "actor": "h100-0",
        "learner": "a100-0",
    }


def test_the_deserved_amount_of_a_later_flavor_comes_before_a_borrowed_one() -> None:
    """Select deserved flavors first, then that of which the nearest queue lends.

    x has used its H100, its parent has some, root has A100.
    """
    world = World(*machines("h100", 1), *machines("a100", 1), *machines("l40", 1, gpus=2))
    world.add(queue("p", flavors=[gpus("h100", deserved=8)]))
    world.add(
        queue("x", parent="p", flavors=[gpus("a100"), gpus("h100", deserved=2), gpus("l40", deserved=2)])
    )
    used: list[str] = []
    for n in range(4):
        world.add(gpu_gang(f"x{n}", 2, "x", created=f"2026-01-0{n + 1}")).settle()
        used += {where.partition("-")[0] for where in world.plan(f"x{n}").values()}
        world.start(f"x{n}")
    assert used == ["h100", "l40", "h100", "h100"]


def test_a_guarantee_of_a_flavor_is_reserved_from_others() -> None:
    world = World(*machines("h100", 2))
    world.add(queue("x", flavors=[gpus("h100", guarantee=8)]), queue("y", flavors=[gpus("h100")]))
    world.add(gpu_gang("y0", 9, "y"), gpu_gang("y1", 8, "y")).settle()
    assert starts(world, "y0", "y1") == [False, True]
    assert world.reason("y0") is Reason.NEVER_FITS


# ---- amounts of queues above


def test_a_parents_flavor_binds_those_below() -> None:
    """They would start 8; with 2 of the parent, they start 2."""
    world = World(*machines("h100", 1))
    world.add(queue("p", flavors=[gpus("h100", capability=2)]))
    world.add(*(queue(name, parent="p", flavors=[gpus("h100")]) for name in ("a", "b")))
    for n in range(4):
        world.add(gpu_gang(f"a{n}", 1, "a"), gpu_gang(f"b{n}", 1, "b"))
    world.settle()
    names = [f"{queue}{n}" for queue in "ab" for n in range(4)]
    assert sum(starts(world, *names)) == 2
    waiting = next(name for name in names if world.verdict(name) is WAITS)
    assert world.detail(waiting) == (
        f"flavor h100: QueueCeiling (in queue p above it, {GPU}: 2 held + 1 asked > 2)"
    )


def test_a_queue_without_flavors_has_those_of_the_nearest_queue_above() -> None:
    world = World(*machines("h100", 1), *machines("a100", 1))
    world.add(queue("p", flavors=[gpus("h100", capability=2)]), queue("q", parent="p"))
    world.add(
        queue("leaf", parent="q"), gpu_gang("a", 2, "leaf"), gpu_gang("b", 1, "leaf", created="2027-01-01")
    ).settle()
    assert starts(world, "a", "b") == [True, False]
    assert set(world.plan("a").values()) == {"h100-0"}
    world.start("a")
    for name in ("leaf", "q", "p"):
        assert world.queue(name).flavors["h100"].allocated[GPU] == 2


def test_a_wider_flavor_of_a_parent_binds_a_narrower_one() -> None:
    """All nodes of the child's flavor are the parent's, by another name and fewer labels."""
    world = World(
        *(node(f"n{n}", labels={"gpu": "yes", "flavor": "h100"}, more={GPU: "8"}) for n in range(2))
    )
    wide = QueueFlavor("gpus", {"gpu": "yes"}, {GPU: "3"})
    world.add(queue("p", flavors=[wide]), queue("q", parent="p", flavors=[gpus("h100")]))
    world.add(gpu_gang("a", 3, "q"), gpu_gang("b", 1, "q", created="2027-01-01")).settle()
    assert starts(world, "a", "b") == [True, False]


def test_within_one_parent_a_flavor_is_borrowed_and_reclaimed() -> None:
    """B lends a what it deserves of the flavor; c, which is not below p, takes nothing of it."""
    world = World(*machines("h100", 2))
    world.add(queue("p", flavors=[gpus("h100", deserved=8)]))
    world.add(*(queue(name, parent="p", flavors=[gpus("h100", deserved=4)]) for name in "ab"))
    world.add(queue("c", flavors=[gpus("h100", deserved=8)]), gpu_gang("c0", 8, "c")).start("c0")
    world.add(gpu_gang("a0", 4, "a"), gpu_gang("a1", 4, "a", created="2026-02-01")).start("a0").start("a1")
    world.add(gpu_gang("b0", 4, "b", created="2026-03-01")).settle()
    assert [world.queue(name).flavors["h100"].borrowed for name in "apc"] == [{GPU: 4}, {}, {}]
    assert world.reason("b0") is Reason.RECLAIMING
    assert victims(world) in ({"a0"}, {"a1"})


def test_borrowing_and_lending_of_a_flavor_are_limited() -> None:
    world = World(*machines("h100", 2))
    world.add(queue("x", flavors=[gpus("h100", deserved=8, lending_limit=4)]))
    world.add(queue("y", flavors=[gpus("h100", deserved=8, borrowing_limit=2)]))
    world.add(queue("z", flavors=[gpus("h100")]))
    world.add(gpu_gang("y0", 11, "y"), gpu_gang("y1", 10, "y")).settle()
    assert starts(world, "y0", "y1") == [False, True]
    world.start("y1").add(gpu_gang("z0", 3, "z"), gpu_gang("z1", 2, "z")).settle()
    assert starts(world, "z0", "z1") == [False, True]


# ---- what a flavor is


def test_equal_labels_are_one_flavor_under_any_name() -> None:
    world = World(*machines("h100", 1))
    world.add(queue("x", flavors=[gpus("h100", deserved=4)]))
    world.add(queue("y", flavors=[QueueFlavor("hopper", on_flavor("h100"))]))
    world.add(gpu_gang("y0", 8, "y")).start("y0")
    world.add(gpu_gang("x0", 4, "x", created="2027-01-01")).settle()
    assert world.queue("y").flavors["hopper"].borrowed == {GPU: 4}


def test_one_name_with_different_labels_is_two_flavors() -> None:
    world = World(*machines("h100", 1), *machines("a100", 1))
    world.add(queue("x", flavors=[QueueFlavor("fast", on_flavor("h100"), {GPU: "4"})], created="2025-01-01"))
    world.add(queue("y", flavors=[QueueFlavor("fast", on_flavor("a100"), {GPU: "4"})], created="2026-01-01"))
    world.add(gpu_gang("x0", 4, "x"), gpu_gang("y0", 4, "y")).start("x0").start("y0")
    assert [pool.name for pool in world.ledger.snapshot().pools.all_pools] == ["fast", "fast (y)"]
    for name in "xy":
        assert world.queue(name).flavors["fast"].allocated[GPU] == 4


def test_too_many_flavors_are_refused_for_the_newest_queues() -> None:
    world = World(*machines("h100", 1))
    for n in range(MAX_POOLS // 16 + 1):
        flavors = [flavor(f"f{n}-{m}") for m in range(15)] + [gpus("h100")]
        world.add(queue(f"q{n}", flavors=flavors, created=f"2026-01-0{n + 1}"))
        world.add(gpu_gang(f"g{n}", 1, f"q{n}"))
    world.settle()
    last = MAX_POOLS // 16
    assert world.reason(f"g{last}") is Reason.INVALID_SPEC
    assert world.detail(f"g{last}") == (
        f"queue q{last}: queues have more than {MAX_POOLS} different flavors together"
    )
    assert starts(world, "g0", "g1") == [True, True]
