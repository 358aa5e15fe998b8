"""Pods that are left to another scheduler for a while, and come back."""

from extender.domain.ledger.claims import ClaimStage
from tests.domain.builders import SCHEDULER, node, pod
from tests.domain.world import World, gang, key, nodes

OURS: frozenset[str] = frozenset()
LEFT = frozenset({SCHEDULER})


def test_groups_of_pods_that_muster_has_left_are_not_evaluated() -> None:
    world = World(node("a"), gang("g", 2), pod("lonely")).settle()
    world.ledger.pods.set_unmanaged(LEFT)
    world.settle()
    assert [len(group.waiting_pods) for group in world.ledger.snapshot().groups.values()] == [0]
    assert not world.ledger.pods.owns(world.pods["g-0"])
    assert world.ledger.pods.is_unmanaged(SCHEDULER)
    assert world.ledger.groups.may_be_foreign(key("g"))


def test_pods_that_muster_has_left_keep_their_capacity_and_lose_their_plans() -> None:
    world = World(nodes("a", "b", cpu="1"), pod("runs", on="a"), pod("planned")).settle()
    assert world.stage("planned") is ClaimStage.PLANNED
    world.ledger.pods.set_unmanaged(LEFT)
    world.settle()
    assert world.claim("planned") is None
    claim = world.claim("runs")
    assert claim is not None
    assert (claim.stage, claim.pod.group) == (ClaimStage.BOUND, "")


def test_new_pods_of_a_left_scheduler_are_left_as_well() -> None:
    world = World(node("a"))
    world.ledger.pods.set_unmanaged(LEFT)
    world.add(pod("late")).settle()
    assert not world.decisions.groups
    assert [each.name for each in world.ledger.pods.gated_unmanaged_pods()] == ["late"]


def test_pods_that_muster_left_come_back_unchanged() -> None:
    world = World(nodes("a", "b"), gang("g", 2), pod("lonely")).settle()
    before = world.decisions.groups
    world.ledger.pods.set_unmanaged(LEFT)
    world.settle()
    world.ledger.pods.set_unmanaged(OURS)
    world.settle()
    assert world.decisions.groups == before
    assert world.ledger.pods.gated_unmanaged_pods() == []
    assert not world.ledger.groups.may_be_foreign(key("g"))


def test_pods_of_other_schedulers_are_unchanged() -> None:
    world = World(node("a"), pod("p")).settle()
    version = world.ledger.version
    world.ledger.pods.set_unmanaged(frozenset({"volcano"}))
    assert world.ledger.version == version


def test_a_scheduler_name_that_muster_never_served_is_not_taken_over() -> None:
    """Keep to its own name if Muster serves only that, next to Volcano."""
    world = World(node("a"), pod("theirs", scheduler="volcano"))
    for left in (frozenset({"volcano"}), frozenset[str]()):
        world.ledger.pods.set_unmanaged(left)
        assert not world.ledger.groups.members(key("pod:theirs"))
