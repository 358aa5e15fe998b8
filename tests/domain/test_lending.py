"""Protection of borrowed capacity: no more of it than the lending queue allows."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.keys import PREEMPTABLE, SYSTEM_PRIORITY
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import QueuePreemption
from extender.domain.model.evictions import EvictionCause, Protection
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.records import queue_record
from tests.domain.builders import budget, group, node, pod, preemption, queue
from tests.domain.world import World, gang, names, timestamp
from tests.property_examples import examples
from tests.rows import each_of

BUDGETS, PREEMPTABLE_POLICY = "PodDisruptionBudgets", "Preemptable"
NOT_PREEMPTABLE = {PREEMPTABLE: "false"}
ALL = {"team": "b"}


def evicted(world: World) -> list[str]:
    return sorted(eviction.victim.name for eviction in world.decisions.evictions.values())


def borrowing(honour: list[str] | None, *others: Any, above: list[str] | None = None, **gangs: Any) -> World:
    """Return a world where queue b runs two gangs of two, and queue a wants its share, one of them."""
    rules = QueuePreemption(honour=above)
    world = World(node("n"), queue("up", preemption=rules), queue("a"), *others)
    world.add(queue("b", parent="up", preemption=preemption(honour=honour)))
    for number, name in enumerate(("early", "late"), 1):
        created = f"2026-01-0{number}T00:00:00Z"
        world.add(gang(name, 2, queue="b", created=created, labels=ALL, **gangs)).start(name)
    return world.add(gang("x", 2, queue="a")).settle()


@each_of(
    (None, None, True, False),  # without any setting
    ([], None, False, False),
    ([BUDGETS], None, True, False),
    ([PREEMPTABLE_POLICY], None, False, True),
    ([BUDGETS, PREEMPTABLE_POLICY], None, True, True),
    (None, [PREEMPTABLE_POLICY], False, True),  # as the queue above says
    (None, [], False, False),
    ([BUDGETS], [PREEMPTABLE_POLICY], True, False),  # its own word counts alone
)
def test_borrowed_capacity_is_protected_by_what_the_queue_honours(
    honour: list[str] | None, above: list[str] | None, by_budget: bool, by_word: bool
) -> None:
    for others, gangs, keeps in (
        ([budget("p", 0, team="b")], {}, by_budget),
        ([budget("p", 9, team="b"), budget("q", 9, team="b")], {}, by_budget),
        ([], {"annotations": NOT_PREEMPTABLE}, by_word),  # on its pods
        ([], {"notes": NOT_PREEMPTABLE}, by_word),  # on the PodGroup
        ([], {}, False),
    ):
        world = borrowing(honour, *others, above=above, **gangs)
        assert evicted(world) == ([] if keeps else [*names("late", 2)]), (others, gangs)
        assert (world.reason("x") is Reason.RECLAIMING) is not keeps


def test_a_share_is_not_taken_whatever_is_honoured() -> None:
    world = borrowing([]).delete(*names("late", 2)).settle().start("x").add(gang("y", 2, queue="a")).settle()
    assert (world.verdict("y"), evicted(world)) == (Verdict.WAITING, [])


def test_a_kubernetes_priority_class_keeps_no_borrowed_capacity() -> None:
    """Kubernetes lets users who may create pods name a class, in every namespace."""
    assert evicted(borrowing([], priority=SYSTEM_PRIORITY)) == [*names("late", 2)]


@each_of(*product(["DaemonSet", "Node"], [False, True]))
def test_an_owner_that_any_user_may_write_keeps_no_borrowed_capacity(kind: str, controls: bool) -> None:
    world = World(node("n"), queue("a"), queue("b", preemption=preemption(honour=[])))
    held = pod("d", queue="b", cpu="4", on="n")
    owned = [OwnerReference("example.com/v1", kind, "d", "uid-d", controls)]
    world.add(replace(held, metadata=replace(held.metadata, owner_references=owned)))
    assert evicted(world.add(gang("x", 2, queue="a")).settle()) == ["d"]


@each_of((200.0, False), (3600.0, True), (2e9, True))
def test_the_grace_period_of_a_deletion_does_not_extend_protection_of_borrowed_capacity(
    left: float, is_cut: bool
) -> None:
    world = World(node("n"), queue("a"), queue("b"), gang("g", 2, queue="b", cpu="2")).start("g")
    for name in names("g", 2):
        before = world.pods[name]
        going = replace(before.metadata, deletion_timestamp=timestamp(world.now + left))
        world.add(replace(before, metadata=going))
    assert evicted(world.settle()) == []
    world.add(gang("x", 2, queue="a")).settle()
    assert world.reason("x") is Reason.NO_ROOM
    causes = {eviction.victim.cause for eviction in world.decisions.evictions.values()}
    assert (evicted(world), causes) == (
        ([*names("g", 2)], {EvictionCause.RECLAIM}) if is_cut else ([], set())
    )


@each_of(
    ({}, {}, Protection()),
    ({"max_grace_period": "10m"}, {"honour": []}, Protection(frozenset(), 600.0)),
    (
        {"honour": [PREEMPTABLE_POLICY], "max_grace_period": "0s"},
        {"honour": []},
        Protection(frozenset({PREEMPTABLE_POLICY}), 0.0),
    ),
    ({}, {"max_grace_period": "1h"}, Protection(max_grace=3600.0)),
)
def test_each_part_comes_from_the_nearest_queue_that_says_it(
    own: dict[str, Any], above: dict[str, Any], expected: Protection
) -> None:
    world = World(queue("up", preemption=QueuePreemption(**above)))
    world.add(queue("b", parent="up", preemption=QueuePreemption(**own))).settle()
    assert world.ledger.snapshot().queues["b"].protection == expected
    world.add(queue("up", preemption=QueuePreemption(honour=[BUDGETS, PREEMPTABLE_POLICY]))).settle()
    assert world.ledger.snapshot().queues["b"].protection.honours_preemptable is (
        "honour" not in own or PREEMPTABLE_POLICY in own["honour"]
    )


def test_an_unknown_honour_value_is_a_fault_of_the_queue() -> None:
    assert (
        "spec.preemption.honour: 'Finalizers' is not one of PodDisruptionBudgets, Preemptable"
        in queue_record(queue("q", preemption=QueuePreemption(honour=["Finalizers"]))).fault
    )


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 2),
    st.integers(1, 4),
)
def test_protections_that_the_queue_does_not_honour_change_nothing(
    gangs: list[tuple[int, bool, bool]], allowed: int, wanted: int
) -> None:
    """Evict the same pods whether or not the borrower's gangs have budgets and notes."""

    def result(is_protected: bool) -> tuple[Reason | None, list[str]]:
        world = World(node("n", cpu="8"), queue("a"), queue("b", preemption=preemption(honour=[])))
        if is_protected:
            world.add(budget("p", allowed, team="b"))
        for number, (size, by_word, by_budget) in enumerate(gangs):
            more: dict[str, Any] = {"annotations": NOT_PREEMPTABLE} if by_word and is_protected else {}
            labels = ALL if by_budget else {}
            world.add(gang(f"b{number}", size, queue="b", labels=labels, **more)).settle()
            if world.plan(f"b{number}"):
                world.start(f"b{number}")
        world.add(group("x", wanted, "a"), [pod(f"x-{n}", "x") for n in range(wanted)]).settle()
        return world.reason("x"), evicted(world)

    assert result(is_protected=True) == result(is_protected=False)
