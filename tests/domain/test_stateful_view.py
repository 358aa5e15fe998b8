"""Ledger under any order of events, with a scheduler that reads its pods through Muster.

The pods shown always add up to those that may start.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, refusal
from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance
from tests.domain.builders import node
from tests.domain.test_stateful import Events, some_pod
from tests.domain.world import World, gang
from tests.property_examples import examples

TEXTS = ("", "0/2 nodes are available.", refusal(Reason.NO_ROOM))


class ViewedEvents(Events):
    """Events with `believed`: the scheduler's knowledge of unbound pods, by UID."""

    @initialize()
    def begin(self) -> None:
        self.believed: dict[Uid, Appearance] = {}
        super().begin()
        self.world = World(node("n0"), node("n1"), gang("g0", 3, gated=False), through_proxy=True).settle()

    @rule()
    def planned_pods_are_released(self) -> None:
        self.world._release_due_groups()

    @rule(name=some_pod, text=st.sampled_from(TEXTS))
    def scheduler_reports(self, name: str, text: str) -> None:
        if self.there(name):
            self.world.report(name, text)

    @rule()
    def scheduler_restarts(self) -> None:
        self.world.ledger.shown_pods.record_fresh_start()

    @rule()
    def another_replica_leads(self) -> None:
        self.world.ledger.shown_pods.take_all_back()

    @invariant()
    def the_scheduler_believes_what_is_shown(self) -> None:
        for uid, appearance in self.world.ledger.shown_pods.take_changes():
            if appearance is None:
                self.believed.pop(uid, None)
            else:
                self.believed[uid] = appearance
        unbound = {pod.metadata.uid for pod in self.world.pods.values() if not pod.spec.node_name}
        self.believed = {uid: looks for uid, looks in self.believed.items() if uid in unbound}
        assert self.believed == self.world.ledger.shown_pods._releases.appearances

    @invariant()
    def only_pods_with_a_firm_claim_are_shown(self) -> None:
        for uid in self.world.ledger.shown_pods._releases.appearances:
            record, claim = self.world.ledger.pods.get(uid), self.world.ledger.claims.get(uid)
            assert record is not None
            assert record.is_waiting
            assert not record.has_foreign_gates
            assert claim is not None
            assert claim.is_fixed

    @invariant()
    def nominations_end(self) -> None:
        """Check that counted nominations await their first bind call."""
        releases = self.world.ledger.shown_pods._releases
        for where, uids in releases._nominated_uids.items():
            for uid in uids:
                claim = self.world.ledger.claims.get(uid)
                assert claim is not None
                assert claim.stage is ClaimStage.ANSWERED
                assert releases.appearances[uid].node == where


ViewedEvents.TestCase.settings = settings(max_examples=examples(24), stateful_step_count=40)
TestViewedEvents = ViewedEvents.TestCase


def test_a_pod_that_is_deleted_before_its_plan_is_known_is_not_shown() -> None:
    state = ViewedEvents()
    state.begin()
    state.pod_is_gone(name="g0-0")
    state.pod_comes(cpu="1", gated=False, kind={}, name="g0-0")
    state.decide_only()
    state.pod_is_marked_deleted(name="g0-0")
    state.publish_late()
    state.planned_pods_are_released()
    state.only_pods_with_a_firm_claim_are_shown()
