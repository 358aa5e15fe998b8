"""Faults that the cases, or cases like them, have found in the code that serves."""

from extender.domain.model.reasons import Verdict
from extender.domain.queues.share_tree import share
from tests.domain.builders import group, node, pod
from tests.domain.world import World


def test_a_member_that_fits_nowhere_does_not_stop_one_that_does() -> None:
    lost = pod("g-0", "g", selector={"zone": "nowhere"})
    world = World(node("n"), group("g", 1), lost, pod("g-1", "g")).settle()
    assert world.plan("g") == {"g-1": "n"}


def test_a_large_member_does_not_stop_enough_small_ones() -> None:
    small = [pod(f"g-{n}", "g", cpu="2") for n in (1, 2)]
    world = World(node("n", cpu="4"), group("g", 2), pod("g-0", "g", cpu="4"), small).settle()
    assert world.plan("g") == {"g-1": "n", "g-2": "n"}


def test_surplus_members_start_by_priority() -> None:
    members = [pod(f"g-{n}", "g", priority=n) for n in (1, 3, 2)]
    world = World(node("n", cpu="1"), group("g", 0), members).settle()
    assert world.plan("g") == {"g-3": "n"}


def test_a_group_whose_members_all_leave_is_not_reported_as_waiting() -> None:
    members = [pod(f"g-{n}", "g", on="n") for n in (0, 1)]
    world = World(node("n"), group("g", 2), members).settle()
    world.mark_deleted("g-0")
    world.mark_deleted("g-1")
    assert world.settle().decision("g").verdict is Verdict.RUNNING
    assert world.delete("g-0", "g-1").settle().decision("g").verdict is Verdict.WAITING


def test_a_queue_that_holds_what_it_does_not_deserve_is_at_its_share() -> None:
    assert share({"cpu": 1000}, {"cpu": 0.0}) == 1.0
    assert share({}, {}) == 0.0
