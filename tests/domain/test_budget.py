"""The budget of a scheduling cycle: no group takes all places in the window, or idle capacity, for long."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import ZONE, foreign_pod, group, node, pod, queue
from tests.domain.world import LIMITS, World, gang, key, nodes
from tests.property_examples import examples
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING
SMALL = replace(LIMITS, window=4)


# ---- the window


def test_a_gang_that_fits_nowhere_asks_for_no_places() -> None:
    """The window was checked first, and the gang kept all others from the few places left there."""
    world = World(nodes("n", cpu="8"), queue("empty"), queue("busy"), limits=replace(LIMITS, window=10))
    world.add(gang("slow", 1, created="2026-01-01", queue="busy")).settle()
    world.add(gang("giant", 10, created="2026-01-02", queue="empty", cpu="1000")).settle()
    world.add([gang(f"g{n}", 1, created="2026-01-03", queue="busy") for n in range(6)]).settle()
    assert world.reason("giant") is Reason.NEVER_FITS
    assert world.verdicts(*(f"g{n}" for n in range(6))) == [STARTS] * 6


@each_of(
    ({"a": 1, "b": 1, "c": 1}, [64, 12, 12]),  # equal
    ({"a": 4, "b": 2, "c": 1}, [76, 12, 6]),  # by weight
    ({"a": 1, "a/b": 1, "c": 2}, [56, 6, 24]),  # below another
)
def test_no_queue_takes_all_places(queues: dict[str, int], places: list[int]) -> None:
    """Leave each queue its part of the window if pods never bind; half is common, `default` has a part."""
    world = World(nodes("n", cpu="1000"), limits=replace(LIMITS, window=100))
    for path, weight in queues.items():
        above, _, name = path.rpartition("/")
        world.add(queue(name, weight, parent=above))
    on_the_way = []
    for name in (path.rpartition("/")[2] for path in queues):
        world.add([gang(f"{name}{n}", 2, queue=name) for n in range(50)]).settle()
        on_the_way.append(sum(len(world.plan(f"{name}{n}")) for n in range(50)))
    assert on_the_way == places


def test_a_single_queue_may_take_all_places_of_the_window() -> None:
    world = World(nodes("n", cpu="1000"), limits=replace(LIMITS, window=100))
    world.add([gang(f"a{n}", 2) for n in range(60)]).settle()
    assert sum(len(world.plan(f"a{n}")) for n in range(60)) == 100


def large_behind_small() -> World:
    """Return a world with a gang of 9 for a window of 10.

    Members that never bind are ahead of it, and others after it.
    """
    world = World(nodes("n", cpu="100"), queue("a"), queue("b"), limits=replace(LIMITS, window=10))
    world.add(gang("first", 2, created="2026-01-01", queue="a")).settle()
    world.add(gang("large", 9, created="2026-01-02", queue="b")).settle()
    world.add(gang("behind", 1, created="2026-01-03", queue="b"))
    return world.add(gang("plain", 1, created="2026-01-03")).settle()


def test_a_gang_that_waits_for_places_keeps_its_own_queue_waiting_and_no_other() -> None:
    world = large_behind_small()
    assert [world.reason(name) for name in ("large", "behind")] == [Reason.WINDOW_FULL] * 2
    assert world.verdict("plain") is STARTS


def test_a_gang_that_has_waited_for_places_through_a_start_deadline_is_next() -> None:
    world = large_behind_small()
    assert world.figures("large")[-1] == "2026-01-01T00:18:40Z"
    world.pass_time(LIMITS.start_deadline)
    world.add(gang("later", 1, created="2026-01-01", queue="a")).settle()
    assert world.reason("later") is Reason.WINDOW_FULL
    for name in ("first-0", "first-1", "plain-0"):
        world.scheduler_takes(name).run(name).settle()
    assert world.verdicts("large", "later") == [STARTS, WAITS]


def test_a_gang_collects_the_common_places_while_other_queues_go_on_within_their_parts() -> None:
    world = World(nodes("n", cpu="100"), queue("a"), queue("b"), limits=replace(LIMITS, window=20))
    world.add(gang("slow", 10, queue="a")).settle().add(gang("large", 12, queue="b")).settle()
    assert world.advance(1.0).reason("large") is Reason.WINDOW_FULL
    world.add(gang("beyond", 1, queue="a"), gang("within", 3), gang("more", 1, created="2026-01-02")).settle()
    assert [world.reason(name) for name in ("beyond", "within", "more")] == [
        Reason.WINDOW_FULL,
        None,
        Reason.WINDOW_FULL,
    ]
    world.scheduler_takes(*(f"slow-{n}" for n in range(10))).run(*(f"slow-{n}" for n in range(10))).settle()
    assert world.verdicts("large", "beyond", "more") == [STARTS, STARTS, STARTS]


def test_one_cycle_gives_all_free_places_to_gangs_of_a_burst() -> None:
    """The gang that had waited for places longest shut out all others for a cycle, and then the next one."""
    world = World(nodes("n", cpu="1000", pods="1000"), limits=replace(LIMITS, window=30))
    world.add([queue(f"q{n}") for n in range(20)])
    gangs = [f"g{n}" for n in range(60)]
    world.add([gang(name, 4, queue=f"q{n % 20}") for n, name in enumerate(gangs)]).settle().advance(1.0)
    started = [member for name in gangs for member in world.plan(name)]
    world.settle().scheduler_takes(*started).run(*started)
    planned = sum(len(decision.plan) for decision in world.decide().groups.values())
    assert planned == 28  # seven gangs: the next one waits for two more places


@pytest.mark.parametrize("is_lost", [True, False], ids=["replacements", "elastic members"])
def test_members_that_come_one_by_one_wait_for_places_no_longer_than_gangs_do(is_lost: bool) -> None:
    """Gangs that never bind follow one another, and take all places each time."""
    world = World(node("n", cpu="1000"), node("far", cpu="8"), limits=SMALL)
    world.add([gang(f"slow{n}", 4, gated=False) for n in range(40)]).settle()
    world.add(
        group("g", 2 if is_lost else 1, stood_whole=True), pod("g-0", "g", on="far"), pod("g-1", "g")
    ).settle()
    assert (world.verdict("g"), world.reason("g")) == (RUNS, Reason.WINDOW_FULL)
    begun = world.now
    while world.reason("g") is not None and world.now < begun + 1000.0:
        world.pass_time(1.0)
    assert world.now - begun <= LIMITS.start_deadline + LIMITS.deadline(4) + 1.0


def test_places_are_not_reserved_for_a_gang_that_lacks_something_else() -> None:
    """Its capacity has gone meanwhile: it no longer asks for places."""
    world = large_behind_small()
    world.pass_time(LIMITS.start_deadline)
    world.add(foreign_pod("stranger", on="n", cpu="95")).settle()
    assert world.reason("large") is Reason.NO_ROOM
    world.add(gang("later", 1, created="2026-01-04", queue="a")).settle()
    assert world.verdict("later") is STARTS


def replaced(name: str, missing: int, **pods: str) -> list[object]:
    """Return a group that ran fully and lost all members but one."""
    record = group(name, missing + 1, stood_whole=True, created="2026-01-01")
    lost = [pod(f"{name}-{n}", name, gated=False, **pods) for n in range(1, missing + 1)]  # type: ignore[arg-type]
    return [record, pod(f"{name}-0", name, on="far"), *lost]


def refuse_all(world: World, message: str) -> None:
    """Refuse every planned pod without a gate, except those of the gang, as the scheduler does."""
    for decision in list(world.decisions.groups.values()):
        for uid in decision.plan:
            name = str(uid).removeprefix("uid-")
            if not name.startswith("gang") and not world.pods[name].spec.scheduling_gates:
                world.refuse(name, message)


def cycles_until_it_starts(world: World, most: int) -> int:
    for turn in range(most):
        refuse_all(world, f"0/20 nodes are available: {turn}.")
        world.pass_time(2.5)
        if world.verdict("gang") is STARTS:
            return turn
    return most


def test_replacements_that_are_refused_everywhere_do_not_shut_gangs_out() -> None:
    world = World(nodes(*(f"n{n}" for n in range(20)), cpu="4"), node("far", cpu="1"), limits=SMALL)
    world.add(replaced("r", 4)).settle().add(gang("gang", 4)).settle()
    assert len(world.plan("r")) == 4
    assert world.reason("gang") is Reason.WINDOW_FULL
    assert cycles_until_it_starts(world, 80) <= 3


def test_replacements_start_when_there_are_places_again() -> None:
    world = World(nodes("a", "far", cpu="8"), limits=SMALL).add(gang("gang", 3)).settle()
    world.add(replaced("r", 3)).settle()
    assert (len(world.plan("r")), world.reason("r")) == (1, Reason.WINDOW_FULL)
    world.start("gang")
    assert len(world.plan("r")) == 3


def test_endless_elastic_members_do_not_shut_gangs_out() -> None:
    world = World(node("n", cpu="1000"), limits=SMALL)
    world.add(group("e", 1), pod("e-0", "e", on="n"), [pod(f"e-{n}", "e") for n in range(1, 200)]).settle()
    world.add(gang("gang", 4)).settle()
    for _ in range(10):
        started = list(world.plan("e"))[:2]
        world.scheduler_takes(*started).run(*started).settle()
        if world.verdict("gang") is STARTS:
            return
    raise AssertionError(f"still {world.reason('gang')}")


@settings(max_examples=examples(40))
@given(
    groups=st.integers(1, 4),
    missing=st.integers(1, 6),
    elastic=st.integers(0, 20),
    members=st.integers(1, 4),
)
def test_a_gang_that_fits_starts_within_a_bounded_number_of_cycles(
    groups: int, missing: int, elastic: int, members: int
) -> None:
    """Bound the wait although replacements are refused everywhere, and elastic members never end."""
    world = World(nodes(*(f"n{n}" for n in range(30)), cpu="4"), node("far", cpu="64"), limits=SMALL)
    for n in range(groups):
        world.add(replaced(f"r{n}", missing))
    more = [pod(f"e-{n}", "e", gated=False) for n in range(elastic)]
    world.add(group("e", 1), pod("e-s", "e", on="far"), more).settle()
    world.add(gang("gang", members)).settle()
    assert cycles_until_it_starts(world, 40) <= 30


# ---- backing off


def test_replacements_that_are_refused_again_and_again_back_off() -> None:
    world = World(nodes(*(f"n{n}" for n in range(9)), cpu="1"), node("far", cpu="1")).add(replaced("r", 1))
    tried = set()
    for turn in range(3):
        world.settle()
        tried |= set(world.plan("r").values())
        world.refuse("r-1", f"0/10 nodes are available: {turn}.")
        world.pass_time(2.5)
    assert len(tried) == 3, "the first refusals only move it"
    assert (world.verdict("r"), world.reason("r"), world.plan("r")) == (RUNS, Reason.BACKING_OFF, {})
    assert "0/10 nodes" in world.detail("r")
    world.pass_time(LIMITS.backoff)
    assert len(world.plan("r")) == 1
    world.start("r")
    assert (world.reason("r"), world.ledger.snapshot().groups[key("r")].start.failures) == (None, 0)


def test_a_zone_that_refuses_a_shape_is_not_tried_node_by_node() -> None:
    zones = [node(f"{zone}{n}", cpu="1", zone=zone) for zone in "ab" for n in range(10)]
    world = World(zones, gang("gang", 1, gated=False)).settle()
    tried: list[str] = []
    for turn in range(4):
        tried += world.plan("gang").values()
        world.refuse("gang-0", f"0/20 nodes are available: {turn}.")
        world.pass_time(2.5)
        world.pass_time(max(world.decision("gang").retry_at - world.now, 0.0) + 0.1)
    assert [name[0] for name in tried] == ["a", "a", "a", "b"]


def test_a_cluster_of_one_zone_learns_nothing_of_it() -> None:
    world = World([node(f"a{n}", cpu="1", zone="a") for n in range(9)], gang("gang", 1, gated=False)).settle()
    tried = set()
    for turn in range(4):
        tried |= set(world.plan("gang").values())
        world.refuse("gang-0", f"0/9 nodes are available: {turn}.")
        world.pass_time(2.5)
        world.pass_time(max(world.decision("gang").retry_at - world.now, 0.0) + 0.1)
    assert len(tried) == 4
    assert ZONE


# ---- reserved capacity


def claimed(limits: object = None, cpu: str = "6", **claimant: str) -> World:
    """Return a world where queue r's gang, within its share, lacks one cpu of a node where another pod runs.

    It has no reservation; q would borrow two.
    """
    world = World(node("n", cpu=cpu), queue("q"), queue("r", reserve_after="99h"), foreign_pod("s", on="n"))
    world.add(gang("a", 3, queue="q", created="2026-01-01")).start("a")
    world.add(gang("claimant", 3, queue="r", created="2026-01-03", **claimant))  # type: ignore[arg-type]
    return world.add(gang("b", 1, queue="q", created="2026-01-02")).settle()


def test_capacity_is_reserved_for_a_bounded_time_and_then_borrowed() -> None:
    world = claimed()
    assert [world.reason("claimant"), world.reason("b")] == [Reason.NO_ROOM, Reason.QUEUE_SHARE]
    world.pass_time(LIMITS.capacity_reserved - 1.0)
    assert world.reason("b") is Reason.QUEUE_SHARE
    world.pass_time(2.0)
    assert world.verdict("b") is STARTS


def test_capacity_that_was_not_borrowed_meanwhile_is_reserved_again() -> None:
    world = claimed()
    world.delete("b-0")
    world.pass_time(2.0 * LIMITS.capacity_reserved + 1.0)
    world.add(gang("b2", 1, queue="q")).settle()
    assert world.reason("b2") is Reason.QUEUE_SHARE


def test_nothing_is_reserved_where_the_whole_group_would_not_fit() -> None:
    """The scheduler refuses its members on one of the two nodes that they need."""
    world = World(nodes("n", "m", cpu="3"), queue("q"), queue("r", 10))
    world.add(gang("big", 2, queue="r", cpu="2", gated=False)).settle()
    world.refuse(next(name for name, where in world.plan("big").items() if where == "m"))
    world.pass_time(3.0)
    world.add(foreign_pod("t", on="m", cpu="2"))
    world.pass_time(6.0)
    assert world.reason("big") is Reason.NO_ROOM
    assert world.add(gang("small", 3, queue="q")).settle().verdict("small") is STARTS


# ---- only what a pod asks for


@each_of(False, True)
def test_a_node_that_lacks_an_unrequested_device_is_used(planned_before: bool) -> None:
    """A device vanished under a pod that runs on the node."""
    gpu = pod("old", "", more={"x.io/gpu": "1"}, on="n", scheduler="default-scheduler", gated=False)
    world = World(node("n", more={"x.io/gpu": "1"}), gpu)
    if planned_before:
        world.add(gang("gang", 2)).settle()
    world.add(node("n", more={"x.io/gpu": "0"}), gang("gang", 2)).settle()
    assert world.plan("gang") == {"gang-0": "n", "gang-1": "n"}
    world.start("gang")
    assert world.verdict("gang") is RUNS


# ---- words


def test_fragmented_counts_members_that_fit_at_once() -> None:
    """Members of two shapes that fit alone, but not together."""
    world = World(nodes("a", "b", cpu="3"), group("g", 4))
    world.add(pod("x", "g", cpu="2"), pod("y", "g", cpu="2"), foreign_pod("s", on="a", cpu="0"))
    world.add(pod("v", "g", cpu="1500m"), pod("w", "g", cpu="500m"))
    world.add(node("c", cpu="1"), node("d", cpu="9"), foreign_pod("t", on="d", cpu="9")).settle()
    assert world.reason("g") is Reason.FRAGMENTED
    assert world.figures("g") == ["3", "4"]
