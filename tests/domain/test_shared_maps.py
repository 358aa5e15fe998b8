"""Mappings of many that share what they have in common: what they hold, and what a change costs."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from extender.domain.model import shared_maps
from extender.domain.model.shared_maps import SharedMap, changed_keys, have_same_keys, with_changes
from tests.domain.builders import group, pod, queue
from tests.domain.test_stateful_inadmissible import Waiting
from tests.domain.world import World, key
from tests.property_examples import examples

KEYS = tuple(f"k{n}" for n in range(12))
MANY = {f"many-{n:04}": object() for n in range(1000)}
changes = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(), max_size=4)


@given(st.dictionaries(st.sampled_from(KEYS), st.integers()), st.lists(changes, max_size=8), st.booleans())
def test_shared_maps_equal_the_applied_changes(
    first: dict[str, int], steps: list[dict[str, int | None]], are_many: bool
) -> None:
    others = MANY if are_many else {}
    maps = [({**others, **first}, with_changes({**others, **first}, {}))]
    for step in steps:
        expected = {k: v for k, v in {**maps[-1][0], **step}.items() if v is not None}
        maps.append((expected, with_changes(maps[-1][1], step)))
    for expected, found in maps:
        assert dict(found.items()) == expected
        assert [(k, found[k]) for k in found] == [*zip(found.keys(), found.values(), strict=True)]
        assert len(found) == len(expected)
        for each in (*KEYS, "many-0001"):
            assert (each in found, found.get(each), found.get(each, 7)) == (
                each in expected,
                expected.get(each),
                expected.get(each, 7),
            )
    for expected, found in maps:
        for other_expected, other in maps:
            unlike = {k for k in expected | other_expected if expected.get(k) is not other_expected.get(k)}
            assert set(changed_keys(found, other)) == unlike
            assert have_same_keys(found, other) is (expected.keys() == other_expected.keys())


def test_a_key_that_is_not_there_raises() -> None:
    shared = with_changes(MANY, {"many-0001": None})
    for name in ("many-0001", "none"):
        with pytest.raises(KeyError):
            shared[name]


def test_a_change_among_many_copies_few_and_finds_few() -> None:
    """All are copied at once now and then: as often as looking at few does not cost more."""
    few = changed(with_changes(MANY, {"many-0001": object()}), [number % 7 for number in range(200)])
    assert len({id(each._base) for each in few}) == 1
    assert {*changed_keys(few[-1], few[0])} == {f"many-{number:04}" for number in range(7)}
    many = changed(few[-1], range(200))
    assert 1 < len({id(each._base) for each in many}) < 6
    assert max(len(each._changes) for each in many) < 100


def changed(first: Mapping[str, object], numbers: Iterable[int]) -> list[SharedMap[str, object]]:
    """Return maps, each made from the one before."""
    assert isinstance(first, SharedMap)
    maps = [first]
    for number in numbers:
        maps.append(maps[-1].with_changes({f"many-{number:04}": object()}))
    return maps


def test_shared_mappings_change_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_maps, "_MAX_COPIED_KEYS", 0)
    few = settings(
        max_examples=examples(2), stateful_step_count=15, deadline=None, suppress_health_check=[*HealthCheck]
    )
    run_state_machine_as_test(Waiting, settings=few)


def test_an_event_among_many_queues_and_groups_leaves_the_rest_alone() -> None:
    """Leave groups and queues that the event does not concern without a look or a copy."""
    names = [f"q{n:04}" for n in range(400)]
    world = World([queue(name) for name in names], [group(f"g-{name}", 2, queue=name) for name in names])
    world.settle().add(pod("p", "g-q0003")).settle()
    first, before = world.ledger.snapshot(), world.decisions
    world.add(pod("r", "g-q0007")).settle()
    second, now = world.ledger.snapshot(), world.decisions
    assert {*changed_keys(second.groups, first.groups)} == {key("g-q0007")}
    assert {*changed_keys(second.queues, first.queues)} <= {"q0007"}
    assert {*changed_keys(now.groups, before.groups)} == {key("g-q0007")}
    shared = (second.groups, first.groups), (now.groups, before.groups), (second.queues, first.queues)
    for one, other in shared:
        assert isinstance(one, SharedMap)
        assert isinstance(other, SharedMap)
        assert one._base is other._base
