"""One group never stops the others: an exception during its evaluation affects only this group."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling import budget
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import group, node, pod
from tests.domain.world import World, gang, key, nodes


class Hostile(dict[Any, Any]):
    """A mapping that raises when it is read."""

    def refuse(self, *_: object) -> Any:
        raise OverflowError("beyond all bounds")

    items = values = keys = get = __iter__ = __getitem__ = __contains__ = refuse


def waiting(world: World) -> World:
    return world.add(gang("g", 2))


def starting(world: World) -> World:
    return world.add(gang("g", 2)).settle()


def replacing(world: World) -> World:
    return world.add(group("g", 2, stood_whole=True), pod("g-0", "g", on="a"), pod("g-1", "g")).settle()


def standing(world: World) -> World:
    return world.add(group("g", 1), pod("g-0", "g", on="a"), pod("g-1", "g"), pod("g-2", "g")).settle()


@pytest.fixture(params=[waiting, starting, replacing, standing])
def world(request: pytest.FixtureRequest) -> World:
    stage: Callable[[World], World] = request.param
    return stage(World(nodes("a", "b", cpu="4"))).add(gang("other", 2, created="2026-01-01"))


def spoilt(snapshot: Snapshot, **fields: Any) -> Snapshot:
    """Return the snapshot with changed fields of group g, whose evaluation raises."""
    view = replace(snapshot.groups[key("g")], **fields)
    return replace(snapshot, groups={**snapshot.groups, key("g"): view})


def decision_of(decisions: Decisions, name: str) -> GroupDecision:
    return decisions.groups[key(name)]


@pytest.mark.parametrize(
    "fields",
    [
        {"min_task_member": Hostile()},
        {"planned_nodes": Hostile()},
        {"attempts": Hostile()},
        {"waiting_pods": None},
        {"start": None},
        {"queue": None},
    ],
)
def test_a_group_that_raises_an_error_waits_and_others_are_decided(
    world: World, fields: dict[str, Any]
) -> None:
    snapshot = world.ledger.snapshot()
    decisions = decide(spoilt(snapshot, **fields))
    faulty, other = decision_of(decisions, "g"), decision_of(decisions, "other")
    if faulty.fault:
        assert (faulty.verdict, faulty.reason) == (Verdict.WAITING, Reason.INVALID_SPEC)
        assert faulty.detail.startswith("evaluation failed: ")
        assert (faulty.plan, faulty.undo) == ({}, ())
    assert other.verdict is Verdict.STARTING
    assert decide(spoilt(snapshot, **fields), decisions).groups == decisions.groups


def test_the_fault_is_named() -> None:
    snapshot = World(node("a"), gang("g", 2)).ledger.snapshot()
    decision = decision_of(decide(spoilt(snapshot, min_task_member=Hostile())), "g")
    assert decision.detail == "evaluation failed: OverflowError"
    assert decision.fault.startswith("OverflowError: beyond all bounds at ")


@pytest.mark.parametrize("members", [1, 2])
def test_capacity_that_a_group_took_before_an_error_is_freed(
    monkeypatch: pytest.MonkeyPatch, members: int
) -> None:
    """The share is counted after the capacity was taken, and this count raises the error."""
    count = budget.Budget.requests

    def fails(self: budget.Budget, view: GroupInfo, *about: Any) -> Any:
        if view.key == key("g"):
            raise MemoryError("too much")
        return count(self, view, *about)

    monkeypatch.setattr(budget.Budget, "requests", fails)
    world = World(node("a", cpu="2"), gang("g", members, created="2026-01-01"))
    world.add(gang("h", 2, created="2026-01-02"))
    decisions = world.decide()
    assert decision_of(decisions, "g").fault.startswith("MemoryError")
    assert len(decision_of(decisions, "h").plan) == 2
