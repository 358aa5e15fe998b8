"""Shares of a tree of queues: deserved amounts at each level, binding limits, and borrowing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.deserved import Division, Holdings
from extender.domain.queues.share_tree import QueueDemand
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import NO_QUANTITY, node, queue
from tests.domain.world import World, gang
from tests.rows import each_of
from tests.sharing import divide

STARTS, WAITS = Verdict.STARTING, Verdict.WAITING


# ---- the division


def cpus(total: int, *demands: QueueDemand) -> dict[str, float]:
    """Return the deserved cpu of each queue."""
    shares = divide({"cpu": total}, demands)
    return {name: share.deserved.get("cpu", 0.0) for name, share in shares.items()}


def wants(name: str, request: int, parent: str = "", weight: int = 1, **more: Any) -> QueueDemand:
    amounts: dict[str, Any] = {field: {"cpu": n} if isinstance(n, int) else n for field, n in more.items()}
    return QueueDemand(name, weight, {"cpu": request}, parent=parent, has_groups=request > 0, **amounts)


@each_of(
    (  # weights at every level
        [wants("p", 0, weight=3), wants("a", 99, "p", weight=2), wants("b", 99, "p"), wants("q", 99)],
        {"p": 72, "a": 48, "b": 24, "q": 24},
    ),
    (  # what one leaves, its sibling has first
        [wants("p", 0), wants("a", 10, "p"), wants("b", 99, "p"), wants("q", 99)],
        {"p": 48, "a": 10, "b": 38, "q": 48},
    ),
    (  # what a subtree leaves, others have
        [wants("p", 0), wants("a", 10, "p"), wants("b", 5, "p"), wants("q", 99)],
        {"p": 15, "a": 10, "b": 5, "q": 81},
    ),
    (  # the capability of a parent
        [wants("p", 0, capability=30), wants("a", 99, "p"), wants("b", 99, "p"), wants("q", 99)],
        {"p": 30, "a": 15, "b": 15, "q": 66},
    ),
    # a parent asks for no more than its children may hold
    ([wants("p", 0), wants("a", 99, "p", capability=4), wants("q", 99)], {"p": 4, "a": 4, "q": 92}),
    (  # a parent's own groups count as one more child
        [wants("p", 40), wants("a", 40, "p"), wants("b", 40, "p"), wants("q", 99)],
        {"p": 48, "a": 16, "b": 16, "q": 48},
    ),
    (  # a guarantee below a parent
        [wants("p", 0), wants("a", 99, "p", guarantee=40), wants("b", 99, "p"), wants("q", 99)],
        {"p": 48, "a": 40, "b": 8, "q": 48},
    ),
    (  # the guarantee of an idle queue is kept for it
        [wants("p", 0), wants("idle", 0, "p", guarantee=40), wants("b", 99, "p"), wants("q", 99)],
        {"p": 48, "b": 8, "q": 48},
    ),
    (  # what is given by name comes first, the rest is divided
        [wants("a", 99, deserved=50), wants("b", 99, deserved=20), wants("c", 99)],
        {"a": 58 + 2 / 3, "b": 28 + 2 / 3, "c": 8 + 2 / 3},
    ),
    (  # more is given than there is
        [wants("a", 999, deserved=150), wants("b", 999, deserved=50), wants("c", 99)],
        {"a": 72, "b": 24, "c": 0},
    ),
    # what is given and not asked for is divided among others
    ([wants("a", 10, deserved=50), wants("b", 99)], {"a": 10, "b": 86}),
    # the borrowing limit
    ([wants("a", 99, deserved=10, borrowing_limit=5), wants("b", 99)], {"a": 15, "b": 81}),
    # the lending limit: 35 of 50 are kept
    ([wants("a", 10, deserved=50, lending_limit=15), wants("b", 99)], {"a": 35, "b": 61}),
    # no queue deserves more because more may be admitted
    ([wants("a", 99, capability=30, oversell=2.0), wants("b", 99)], {"a": 30, "b": 66}),
    (  # a cycle, and a parent that does not exist
        [wants("a", 99, "b"), wants("b", 99, "a"), wants("lost", 99, "nowhere"), wants("c", 99, "lost")],
        {"a": 32, "b": 32, "lost": 32, "c": 16},
    ),
)
def test_division(demands: list[QueueDemand], deserved: dict[str, float]) -> None:
    assert cpus(96, *demands) == pytest.approx(deserved, abs=0.5)


# ---- ceilings, at every level


def tree(*queues: Any, cpu: str = "32", limits: Limits | None = None) -> World:
    return World(node("n", cpu=cpu), *queues, limits=limits or Limits())


def test_the_ceiling_of_the_parent_binds_all_its_children_together() -> None:
    world = tree(queue("p", capability={"cpu": "4"}), queue("a", parent="p"), queue("b", parent="p"))
    world.add([gang(f"g{n}", 1, queue="ab"[n % 2]) for n in range(20)]).settle()
    assert world.verdicts(*(f"g{n}" for n in range(20))).count(STARTS) == 4
    waits = next(group for group in world.decisions.groups.values() if group.verdict is WAITS)
    assert (waits.reason, world.figures(waits.key.partition("/")[2])) == (
        Reason.QUEUE_CEILING,
        ["4", "1", "4"],
    )
    assert " queue p " in waits.detail


def test_elastic_members_stay_within_the_ceiling_of_the_parent() -> None:
    world = tree(queue("p", capability={"cpu": "4"}), queue("a", parent="p"), queue("b", parent="p"))
    for name in "ab":
        world.add(gang(f"of-{name}", 9, min_member=1, queue=name)).bind(f"of-{name}-0", "n")
    world.run("of-a-0", "of-b-0").settle()
    assert [len(world.plan("of-a")), len(world.plan("of-b"))] == [1, 1]
    assert world.reason("of-a") is Reason.QUEUE_CEILING


def test_a_group_larger_than_the_ceiling_of_the_parent_never_fits() -> None:
    world = tree(queue("p", capability={"cpu": "4"}), queue("a", parent="p"), gang("g", 5, queue="a"))
    assert world.settle().reason("g") is Reason.NEVER_FITS


def test_amounts_and_groups_are_summed_up_to_root() -> None:
    world = tree(queue("root"), queue("p"), queue("a", parent="p"), queue("b", parent="p"), queue("q"))
    world.add([gang(f"of-{name}", 2, queue=name) for name in ("a", "b", "q", "p")])
    world.start("of-a", "of-b", "of-q", "of-p")
    cpu = {name: world.queue(name).allocated["cpu"] // 1000 for name in ("a", "b", "p", "q", "root")}
    assert cpu == {"a": 2, "b": 2, "p": 6, "q": 2, "root": 8}
    running = {name: world.queue(name).counts["running"] for name in ("a", "p", "q", "root")}
    assert running == {"a": 1, "p": 3, "q": 1, "root": 4}
    assert world.queue("p").requested["cpu"] == 6000


# ---- order


@each_of(
    # p has four children and q has none; each has half of the cluster
    ([queue("p"), queue("q"), *(queue(name, parent="p") for name in "abcd")], "16", "abcdq", [2, 2, 2, 2, 8]),
    ([queue("p"), queue("a", 3, parent="p"), queue("b", 1, parent="p")], "16", "ab", [12, 4]),
    (  # a and b deserve half a cpu each; b comes first of the two, and takes nothing of what q deserves
        [queue("p"), queue("a", parent="p"), queue("b", priority=9, parent="p"), queue("q")],
        "2",
        "abq",
        [0, 1, 1],
    ),
)
def test_capacity_is_divided_among_siblings_by_weight_and_priority(
    queues: list[Any], cpu: str, names: str, started: list[int]
) -> None:
    world = tree(*queues, cpu=cpu)
    world.add([gang(f"{name}{n}", 1, queue=name) for name in names for n in range(16)]).settle()
    assert [[world.verdict(f"{name}{n}") for n in range(16)].count(STARTS) for name in names] == started


# ---- borrowing and lending


def test_an_unused_share_goes_to_its_siblings_first() -> None:
    """Queue a, which is due 2 of the 4 cpus of its parent, finds no node for its gang."""
    world = tree(queue("p"), queue("a", parent="p"), queue("b", parent="p"), queue("q"), cpu="8")
    world.add(gang("never", 4, queue="a", selector={"no": "such"}))
    world.add([gang(f"{name}{n}", 1, queue=name) for name in "bq" for n in range(8)]).settle()
    started = [world.verdicts(*(f"{name}{n}" for n in range(8))).count(STARTS) for name in "bq"]
    assert (world.queue("b").deserved["cpu"], started) == (2000, [4, 4])


def test_a_queue_that_may_borrow_no_more_waits_and_says_so() -> None:
    world = tree(queue("a", deserved={"cpu": "2"}, borrowing_limit={"cpu": "1"}), queue("b"))
    world.add([gang(f"g{n}", 1, queue="a") for n in range(5)]).settle()
    assert world.verdicts(*(f"g{n}" for n in range(5))) == [STARTS, STARTS, STARTS, WAITS, WAITS]
    assert world.figures("g4") == ["3", "1", "3", "2", "1"]


def test_the_limit_of_a_queue_without_an_amount_is_above_its_share() -> None:
    world = tree(queue("a", borrowing_limit={"cpu": "1"}), queue("b"), cpu="8")
    world.add(gang("never", 8, queue="b", selector={"no": "such"}))
    world.add([gang(f"g{n}", 1, queue="a") for n in range(8)]).settle()
    assert world.queue("a").deserved["cpu"] == 4000
    assert world.verdicts(*(f"g{n}" for n in range(8))).count(STARTS) == 5


def test_capacity_above_the_lending_limit_stays_free_for_its_queue() -> None:
    world = tree(
        queue("a", deserved={"cpu": "6"}, lending_limit={"cpu": "2"}), queue("b"), queue("c"), cpu="8"
    )
    world.add([gang(f"{name}{n}", 1, queue=name) for name in "bc" for n in range(4)]).settle()
    assert world.verdicts(*(f"{name}{n}" for name in "bc" for n in range(4))).count(STARTS) == 4
    waits = next(group for group in world.decisions.groups.values() if group.verdict is WAITS)
    assert world.figures(waits.key.partition("/")[2]) == ["4", "4", "1", "8"]
    world.add(gang("mine", 4, queue="a")).settle()
    assert world.verdict("mine") is STARTS


def test_a_guarantee_is_reserved_from_all_others_together() -> None:
    world = tree(queue("a", guarantee={"cpu": "4"}), queue("b"), queue("c"), cpu="8")
    world.add([gang(f"{name}{n}", 1, queue=name) for name in "bc" for n in range(4)]).settle()
    assert world.verdicts(*(f"{name}{n}" for name in "bc" for n in range(4))).count(STARTS) == 4


def test_guarantees_above_capacity_are_met_in_proportion() -> None:
    """Divide in proportion: 1,000 and 3,000 of 8 cpus are guaranteed, which gives 2 and 6.

    The first in order has no more than its part.
    """
    world = tree(queue("a", guarantee={"cpu": "1000"}), queue("b", guarantee={"cpu": "3000"}), cpu="8")
    assert world.settle().queue("a").unmet == {"cpu": 2000}
    world.add([gang(f"a{n}", 1, queue="a") for n in range(8)]).settle()
    assert [world.verdict(f"a{n}") for n in range(8)].count(STARTS) == 2
    world.add([gang(f"b{n}", 1, queue="b") for n in range(8)]).settle()
    assert [world.verdict(f"b{n}") for n in range(8)].count(STARTS) == 6
    assert (world.queue("a").deserved["cpu"], world.queue("b").unmet) == (2000, {"cpu": 6000})


def test_a_guarantee_above_capacity_does_not_make_other_groups_too_large() -> None:
    """It may be lowered, or nodes come."""
    world = tree(queue("a", guarantee={"cpu": "1000"}), queue("b"), cpu="8")
    world.add(gang("g", 2, queue="b"), gang("huge", 9, queue="b")).settle()
    assert (world.reason("g"), world.reason("huge")) == (Reason.QUEUE_CEILING, Reason.NEVER_FITS)
    assert world.detail("g") == (
        "queue b: cpu: 0 held + 2 asked > 0 (queues are guaranteed more than nodes offer)"
    )
    world.add(queue("a", guarantee={"cpu": "8"})).settle()
    assert (world.reason("g"), world.queue("a").unmet) == (Reason.NEVER_FITS, {})
    world.add(queue("a", guarantee={"cpu": "6"})).settle()
    assert (world.verdict("g"), world.queue("a").unmet) == (STARTS, {})


def test_guarantees_are_unmet_when_nodes_leave_and_met_when_they_come_back() -> None:
    world = tree(queue("a", guarantee={"cpu": "6"}), queue("b"), cpu="4").add(node("m", cpu="8"))
    assert world.settle().queue("a").unmet == {}
    world.ledger.intake.drop_node("m")
    assert world.settle().queue("a").unmet == {"cpu": 4000}
    world.add(node("m", cpu="8"))
    assert world.settle().queue("a").unmet == {}


def test_guarantees_above_capacity_are_reserved_in_proportion() -> None:
    """Below a parent, too: p keeps 12 in all, and 8 are there."""
    world = tree(
        queue("p"),
        queue("a", parent="p", deserved={"cpu": "8"}, lending_limit={"cpu": "0"}),
        queue("b", parent="p", guarantee={"cpu": "4"}),
        cpu="6",
    ).settle()
    assert [world.queue(name).unmet for name in "pab"] == [{}, {"cpu": 4000}, {"cpu": 2000}]


def test_borrowed_amounts_are_reported() -> None:
    world = tree(queue("a"), queue("b"), cpu="8")
    world.add([gang(f"g{n}", 1, queue="a") for n in range(8)]).start(*(f"g{n}" for n in range(8)))
    assert world.queue("a").borrowed == {}
    world.add([gang(f"h{n}", 1, queue="b") for n in range(8)]).settle()
    assert world.queue("a").borrowed == {"cpu": 4000}


# ---- oversell


@each_of((None, 1.0, 4), ("1.5", 1.0, 6), (None, 2.0, 8), ("1", 2.0, 4))
def test_oversell_is_a_factor_on_the_capability(own: str | None, of_cluster: float, started: int) -> None:
    limited = queue("a", capability={"cpu": "4"}, oversell=own)
    world = tree(limited, limits=Limits(oversell=of_cluster))
    world.add([gang(f"g{n}", 1, queue="a") for n in range(9)]).settle()
    assert world.verdicts(*(f"g{n}" for n in range(9))).count(STARTS) == started
    assert world.queue("a").deserved["cpu"] == 4000


# ---- bad input


@each_of(
    ([queue("a", parent="none")], "queue a: its parent none does not exist"),
    ([queue("p", parent="none"), queue("a", parent="p")], "queue p: its parent none does not exist"),
    ([queue("a", parent="a")], "queue a: spec.parent leads back to the queue itself: a > a"),
    (
        [queue("a", parent="p"), queue("p", parent="a")],
        "queue a: spec.parent leads back to the queue itself: a > p > a",
    ),
    (
        [queue("p", capability={"cpu": "much"}), queue("a", parent="p")],
        f"queue p: 'much' {NO_QUANTITY}",
    ),
    ([queue("a", oversell="0.5")], "queue a: spec.oversell is 0.5: must be 1 to 100"),
    (
        [queue("a", lending_limit={"cpu": "-1"})],
        "queue a: spec.lendingLimit[cpu] is -1: must be 0 or more",
    ),
)
def test_a_queue_that_raises_an_error_reports_it_and_others_are_decided(
    queues: list[Any], fault: str
) -> None:
    world = tree(*queues, queue("b"), gang("g", 1, queue="a"), gang("h", 1, queue="b")).settle()
    assert (world.reason("g"), world.detail("g")) == (Reason.INVALID_SPEC, fault)
    assert world.queue("a").fault == fault
    assert world.verdict("h") is STARTS


def test_running_groups_of_a_missing_parent_go_on_and_request_no_more() -> None:
    world = tree(queue("p"), queue("a", parent="p"), gang("g", 2, queue="a"), cpu="8").start("g")
    world.ledger.intake.drop_queue("p")
    world.add(gang("more", 4, queue="a")).settle()
    assert [world.verdict("g"), world.reason("more")] == [Verdict.RUNNING, Reason.INVALID_SPEC]
    assert world.queue("a").deserved["cpu"] == 2000


# ---- properties

RESOURCES = ("cpu", "memory", "x.io/gpu")
few = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 1000))
absurd = st.dictionaries(st.sampled_from(RESOURCES), st.integers(-(2**70), 2**70))
NAMES = [f"q{n}" for n in range(9)]


@st.composite
def forests(draw: st.DrawFn, amounts: st.SearchStrategy[dict[str, int]] = few) -> dict[str, QueueDemand]:
    """Draw queues with any parents: some form cycles, some do not exist."""
    return {
        name: QueueDemand(
            name,
            draw(st.integers(1, 9)),
            draw(amounts),
            draw(st.none() | amounts),
            draw(amounts) if draw(st.booleans()) else {},
            has_groups=draw(st.booleans()),
            parent=draw(st.sampled_from(["", "root", "nowhere", *NAMES])),
            deserved=draw(st.none() | amounts),
            borrowing_limit=draw(st.none() | amounts),
            lending_limit=draw(st.none() | amounts),
            oversell=draw(st.sampled_from([1.0, 1.5])),
        )
        for name in NAMES[: draw(st.integers(1, 9))]
    }


@given(few, forests(), forests())
def test_a_division_made_from_an_earlier_one_is_the_same(
    total: dict[str, int], first: dict[str, QueueDemand], second: dict[str, QueueDemand]
) -> None:
    before, fresh = Division.divide(total, first), Division.divide(total, second)
    later = Division.divide(total, second, before)
    half = {name: second[name] if n % 2 else first[name] for n, name in enumerate(first) if name in second}
    for one, other in (
        (fresh, later),
        (Division.divide(total, half), Division.divide(total, half, Division.divide(total, half | first))),
    ):
        assert np.array_equal(one.deserved, other.deserved)
        assert np.array_equal(one.ceilings, other.ceilings)
        assert np.array_equal(one.potential, other.potential)
        assert [one.share(n) for n in range(len(one.tree))] == [
            other.share(n) for n in range(len(other.tree))
        ]


@given(few, forests(), st.data())
def test_one_change_at_a_time_gives_the_same_division_and_holdings(
    total: dict[str, int], demands: dict[str, QueueDemand], data: st.DataObject
) -> None:
    division = Division.divide(total, demands)
    own = {name: dict(each.request) for name, each in demands.items()}
    holdings = Holdings(division, own)
    for _ in range(4):
        name = data.draw(st.sampled_from(sorted(demands)))
        changed = replace(
            demands[name],
            request=data.draw(few),
            has_groups=data.draw(st.booleans()),
            guarantee=data.draw(few),
        )
        demands, own = {**demands, name: changed}, {**own, name: dict(changed.request)}
        division = Division.divide(total, demands, division)
        holdings = holdings.for_division(division, own)
        fresh = Division.divide(total, demands)
        assert np.array_equal(division.deserved, fresh.deserved)
        assert np.array_equal(division.ceilings, fresh.ceilings)
        for each in range(len(fresh.tree)):
            assert division.share(each) == fresh.share(each)
            new = Holdings(fresh, own)
            assert positive(holdings.held(each)) == positive(new.held(each))
            assert positive(holdings.held_or_reserved(each)) == positive(new.held_or_reserved(each))


def positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


@given(absurd, forests(absurd))
def test_absurd_amounts_never_raise(total: dict[str, int], demands: dict[str, QueueDemand]) -> None:
    division = Division.divide(total, demands)
    Holdings(division, {name: each.request for name, each in demands.items()})
    assert not np.isnan(division.deserved).any()
    assert not np.isnan(division.ceilings).any()


def test_a_late_guarantee_does_not_raise_the_ceiling_above_it() -> None:
    """Its sibling holds all of the parent's capability: the queue takes its guarantee back, and no more."""
    world = tree(queue("p", capability={"cpu": "2"}), queue("a", parent="p"), queue("b", parent="p"))
    world.add(gang("old", 2, min_member=1, queue="a")).settle().start("old")
    world.settle().scheduler_takes(*world.plan("old")).run("old-0", "old-1").settle()
    world.add(queue("b", parent="p", guarantee={"cpu": "1"}, reclaimable=False), gang("new", 1, queue="b"))
    elastic = gang("more", 2, min_member=0, queue="b")
    world.add(elastic).settle()
    assert (world.reason("new"), world.plan("more")) == (Reason.RECLAIMING, {})
