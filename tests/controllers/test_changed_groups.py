"""Listeners look only at groups that changed."""

from extender.controllers.cycle import ChangedGroups
from tests.domain.builders import node, pod
from tests.domain.world import World, gang, key, single


def test_equal_decisions_report_no_changed_group() -> None:
    turns, world = ChangedGroups(), World(node("a"), gang("g", 2)).settle()
    assert list(turns.since_last_call(world.decisions)) == [key("g")]
    assert not turns.since_last_call(world.decisions)


def test_only_changed_groups_are_reported() -> None:
    turns, world = ChangedGroups(), World(node("a", cpu="64"), gang("g", 2), gang("h", 2)).settle()
    turns.since_last_call(world.decisions)
    world.add(gang("late", 2))
    world.ledger.publish(world.decide())
    assert list(turns.since_last_call(world.decisions)) == [key("late")]


def test_a_deleted_group_is_reported_as_changed() -> None:
    turns, world = ChangedGroups(), World(pod("p")).settle()
    turns.since_last_call(world.decisions)
    world.delete("p").ledger.publish(world.decide())
    [(group, was, now)] = turns.decision_changes(world.decisions)
    assert (group, was is not None, now) == (key(single("p")), True, None)


def test_a_listener_that_missed_decisions_looks_at_all_groups() -> None:
    turns, world = ChangedGroups(), World(node("a"), gang("g", 2), pod("p")).settle()
    turns.since_last_call(world.decisions)
    world.delete("p").settle().add(gang("late", 9)).settle()
    assert set(turns.since_last_call(world.decisions)) == {key("g"), key(single("p")), key("late")}
