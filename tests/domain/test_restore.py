"""A ledger that is restored from a snapshot leads to the same decisions."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant
from msgspec.structs import replace

from extender.api import keys
from extender.domain.explain.dump import as_bytes
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.restore import restore
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, Uid
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, VerdictAndReason, verdict_of
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import node
from tests.domain.inadmissible_world import crowd, divided_cluster, full_cluster
from tests.domain.test_jobs_properties import Jobs
from tests.domain.test_stateful_inadmissible import Events, Waiting
from tests.domain.test_stateful_sharing import Sharing
from tests.domain.world import World, gang, key
from tests.property_examples import examples
from tests.rows import each_of

few = settings(
    max_examples=examples(1),
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def restored(snapshot: Snapshot) -> Snapshot:
    now, wall = snapshot.now, snapshot.epoch + snapshot.now
    ledger = Ledger(Ownership(frozenset()), snapshot.limits, lambda: now, wall_clock=lambda: wall)
    restore(ledger, snapshot)
    return ledger.snapshot()


def decided(decisions: Decisions) -> bytes:
    return as_bytes(replace(decisions, version=0))


@each_of(crowd, full_cluster, divided_cluster)
def test_the_same_is_decided(world: Callable[[], World]) -> None:
    snapshot = world().ledger.snapshot()
    assert decided(decide(restored(snapshot))) == decided(decide(snapshot))


def test_a_new_member_of_a_restored_group_shares_its_domain() -> None:
    nodes = [node(f"{rack}{n}", "4", labels={"rack": rack}) for rack in "ab" for n in range(3)]
    world = World(nodes, gang("g", 2, cpu="4", notes={keys.REQUIRED_TOPOLOGY: "rack"})).start("g")
    snapshot = world.ledger.snapshot()
    now = snapshot.now
    ledger = Ledger(Ownership(frozenset()), snapshot.limits, lambda: now)
    restore(ledger, snapshot)
    like = next(group for group in ledger.snapshot().groups[key("g")].placed_pods)
    ledger.pods.put(replace(like, uid=Uid("new"), name="g-2", node="", phase="Pending", pod_sets=()))
    (new,) = ledger.snapshot().groups[key("g")].waiting_pods
    assert new.pod_sets == like.pod_sets


class Restored:
    """Mixin for a machine with a world: a restored ledger leads to the same decisions."""

    @invariant()
    def the_same_is_decided_by_a_restored_ledger(self: Any) -> None:
        snapshot = self.world.ledger.snapshot()
        assert decided(decide(restored(snapshot))) == decided(decide(snapshot))


class RestoredCrowds(Restored, Waiting):
    pass


class RestoredShares(Restored, Sharing):
    pass


class RestoredEvents(Restored, Events):
    pass


def courses(snapshot: Snapshot) -> dict[GroupKey, VerdictAndReason]:
    return {key: verdict_of(decision) for key, decision in decide(snapshot).groups.items()}


class RestoredJobs(Jobs):
    """Jobs whose snapshot has only their suspension and their expected pods."""

    @invariant()
    def groups_of_jobs_stand_as_before(self) -> None:
        snapshot = self.world.ledger.snapshot()
        assert courses(restored(snapshot)) == courses(snapshot)


TestCrowds = RestoredCrowds.TestCase
TestCrowds.settings = few
TestShares = RestoredShares.TestCase
TestShares.settings = few
TestEvents = RestoredEvents.TestCase
TestEvents.settings = few
TestJobs = RestoredJobs.TestCase
TestJobs.settings = few
