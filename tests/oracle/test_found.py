"""Findings of the oracle: decisions that differed from docs/."""

from collections.abc import Mapping
from typing import Any

from extender.api import keys
from extender.domain.explain.explain import explain_group
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from tests.domain.builders import foreign_pod, group, node, pod, queue
from tests.domain.world import World, gang, key, nodes
from tests.oracle.placement import Node, Pod
from tests.oracle.states import GPU, Group, Queue, State
from tests.oracle.strategies import GIB
from tests.rows import each_of

STARTS = Verdict.STARTING


def waiting(name: str, members: int, cpu: str, **more: Any) -> list[Any]:
    """Return a gang, of queue q by default, in the order of the names' last letters."""
    return gang(name, members, cpu=cpu, created=f"2026-01-01T00:00:0{name[-1]}Z", **{"queue": "q", **more})


def sized(name: str, cpu: str) -> Any:
    return pod(name, "q1", cpu=cpu, more={"memory": "2Gi"})


@each_of(
    (  # borrowed capacity is not free
        [
            [nodes("n", "m"), queue("q"), queue("r"), waiting("r1", 3, "4", queue="r")],
            [waiting(f"q{n}", 1, "4") for n in (2, 3, 4)],
        ],
        {"r1": Reason.NEVER_FITS, "q2": STARTS, "q3": STARTS, "q4": Reason.NO_ROOM},
    ),
    (  # a reason that was true before another group started is not repeated
        [
            [node("n", cpu="2"), node("m", cpu="1"), node("k", cpu="3"), foreign_pod("s", on="k", cpu="3")],
            [queue("q"), waiting("q1", 1, "3"), waiting("q2", 2, "1"), waiting("q3", 1, "3")],
        ],
        {"q1": Reason.NO_ROOM, "q2": STARTS, "q3": Reason.NO_ROOM},
    ),
    (  # a group that can never start blocks no other, whatever its reason
        [
            [node("n"), queue("q", strategy="fifo", capability={"cpu": "3"}), queue("a", parent="q")],
            [waiting("a1", 1, "2", queue="a"), waiting("q2", 1, "2", more={"x.io/gpu": "1"})],
            waiting("q3", 1, "1"),
        ],
        {"a1": STARTS, "q2": Reason.QUEUE_CEILING, "q3": STARTS},
    ),
    (  # members of two sizes fit if there is any way
        [
            [
                node("n1", cpu="2", memory="4Gi"),
                node("n2", cpu="2"),
                node("n3", memory="4Gi"),
                queue("q"),
            ],
            [group("q1", 6, "q"), [sized(f"small-{n}", "1") for n in range(4)]],
            [sized(f"large-{n}", "2") for n in range(2)],
        ],
        {"q1": STARTS},
    ),
)
def test_each_reason_names_a_real_obstacle(
    objects: list[Any], expected: Mapping[str, Reason | Verdict]
) -> None:
    world = World(*objects)
    world.settle()
    assert {name: world.reason(name) or world.verdict(name) for name in expected} == expected


def test_of_queues_with_equal_shares_the_first_gets_the_next_member() -> None:
    world = World(node("n", cpu="12"), queue("q"), queue("r"), foreign_pod("s", on="n", cpu="2"))
    world.add(gang("q1", 2, queue="q", cpu="2"), gang("r1", 1, queue="r", cpu="2")).start("q1", "r1")
    world.add([pod(f"q1-{n}", "q1", cpu="2") for n in (2, 3)])
    world.add([pod(f"r1-{n}", "r1", cpu="2") for n in (1, 2)]).settle()
    assert {name: len(world.plan(name)) for name in ("q1", "r1")} == {"q1": 1, "r1": 1}


def test_the_number_of_pods_does_not_change_shares() -> None:
    world = World(node("n", cpu="8", pods="4"), queue("q"), queue("r"), gang("q1", 1, queue="q")).start("q1")
    world.add(waiting("r1", 4, "1", queue="r"), [pod(f"q1-{n}", "q1") for n in (1, 2)]).settle()
    assert (world.reason("r1"), len(world.plan("q1"))) == (Reason.NO_ROOM, 2)


def test_pods_of_a_missing_group_request_no_capacity() -> None:
    world = World(node("n"), queue("q"), queue("r"), waiting("q1", 1, "1"), waiting("r1", 1, "4", queue="r"))
    world.add(pod("lost", "nowhere", cpu="4", queue="q")).settle()
    assert {name: world.queue(name).deserved["cpu"] for name in "qr"} == {"q": 1000, "r": 3000}


LARGE = waiting("r1", 1, "5", queue="r")  # of another queue, which deserves it while q asks for less


@each_of(
    ([waiting("q2", 1, "3", min_member=2), LARGE], "with 1 more member"),  # a member more is asked for, too
    # so is what was held
    ([waiting("q2", 2, "3", notes={keys.HOLD: "true"}), LARGE], f"without the annotation {keys.HOLD}"),
    (  # so is all that a queue waits for that was held
        [queue("q", weight=3, stop_policy="Hold"), waiting("q2", 2, "3"), LARGE],
        "with spec.stopPolicy None in queue q",
    ),
    (  # who comes later takes nothing of a higher ceiling
        [queue("q", capability={"cpu": "1"}), waiting("q2", 2, "1"), waiting("q3", 1, "1")],
        "with spec.capability cpu 2 instead of 1 in queue q",
    ),
    (  # its own queue deserves enough of a higher ceiling before all fit
        [
            [queue("q", weight=3, capability={"cpu": "2"}), queue("s", weight=2, parent="q")],
            [waiting("q1", 1, "2"), waiting("q2", 1, "2", queue="s"), waiting("x1", 1, "2")],
        ],
        "with spec.capability cpu 3 instead of 2 in queue q",
    ),
)
def test_the_smallest_change_starts_the_group(objects: list[Any], change: str) -> None:
    world = World(node("n", cpu="8"), queue("q", weight=3), queue("r"), *objects)
    world.publish_decisions(world.decide())
    why = explain_group(world.decisions, key("q2"))
    assert why is not None
    assert why.change is not None
    assert (why.change.text, why.change.then) == (change, "")


def test_all_pods_that_have_to_end_are_needed() -> None:
    """Keep the last one, too, once another one is spared: that changes the order of the queues."""
    small = Pod((("cpu", 500), ("pods", 1)))
    large = Pod((("cpu", 1500), ("memory", GIB), ("pods", 1)), tolerates=True)
    gpu, other = Pod((*small.requests, (GPU, 1))), Pod((("cpu", 500), ("memory", GIB), ("pods", 1)))
    offers = ("memory", 2 * GIB), ("pods", 3)
    there = (
        Node("n0", (("cpu", 4000), *offers, (GPU, 2))),
        Node("n1", (("cpu", 2000), *offers), is_tainted=True),
        Node("n2", (("cpu", 4000), *offers)),
    )
    groups = (
        Group("g0", "t", 2, (small, gpu), ("n2", "n0"), age=1.0),
        Group("g1", "q", 2, (large, large), ("n0", "n1"), age=1.0),
        Group("g4", "q", 2, (small, small), ("n2", "n2"), age=1.0),
        Group("g2", "t", 2, (small, large), age=181.0),
        Group("g5", "q", 1, (small,), age=1.0),
        Group("g7", "q", 3, (large,) * 4, age=1.0),
    )
    state = State(there, (Queue("q"), Queue("t")), groups, ((other, "n0"),))
    why = explain_group(decide(state.world().ledger.snapshot()), key("g7"))
    assert why is not None
    assert why.change is not None
    assert why.change.ends == ("team/g1", "team/g4")
