"""Several bind calls for one pod, as after restarts of the scheduler.

Its capacity is reserved while any of the bindings may arrive, and no longer.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.records import Uid
from tests.domain.builders import node, pod
from tests.domain.world import World, single
from tests.property_examples import examples

some_node = st.sampled_from(("a", "b"))
UID = Uid("uid-p")


class Calls(RuleBasedStateMachine):
    """State machine of bind calls.

    `held`: the call that holds the claim. `in_flight`: the node of each posted binding that has not
    ended, by the call's token.
    """

    @initialize()
    def begin(self) -> None:
        self.world = World(node("a", cpu="1"), node("b", cpu="1"), pod("p", cpu="1")).settle()
        self.calls = 0
        self.held: int | None = None
        self.in_flight: dict[int, str] = {}
        self.call_comes("a", whole=True)

    @rule(offered=some_node)
    def filter_asks(self, offered: str) -> None:
        self.world.answer("p", [offered])

    @rule(where=some_node, whole=st.booleans())
    def call_comes(self, where: str, whole: bool) -> None:
        self.calls += 1
        if self.world.ledger.assumed_pods.hold(UID, where, self.calls) is None:
            self.held = self.calls
        if whole:
            self.barrier_looks()

    def barrier_looks(self) -> None:
        confirmation = self.world.confirm(single("p"))
        for claim in confirmation.claims_to_post:
            assert claim.token == self.held
            self.in_flight[claim.token] = claim.node
        if confirmation.claims_to_post or confirmation.lost_claims:
            self.held = None

    @rule(data=st.data())
    def call_ends(self, data: st.DataObject) -> None:
        """End a call: it was given up, or its binding failed; the end of a call may be reported twice."""
        token = data.draw(st.integers(1, self.calls))
        self.world.ledger.assumed_pods.release(UID, token)
        self.in_flight.pop(token, None)
        if token == self.held:
            self.held = None

    @rule(where=some_node, cordoned=st.booleans())
    def node_changes(self, where: str, cordoned: bool) -> None:
        self.world.add(node(where, cpu="1", cordoned=cordoned)).settle()
        self.barrier_looks()

    @invariant()
    def capacity_is_reserved_for_calls_and_bindings(self) -> None:
        claim = self.world.claim("p")
        firm = claim is not None and claim.stage >= ClaimStage.HELD
        assert firm is bool(self.held or self.in_flight)
        if claim is not None and firm:
            assert {posting.token for posting in claim.postings} == self.in_flight.keys()
            assert set(self.in_flight.values()) <= {claim.node}
            assert (claim.stage is ClaimStage.HELD) is (claim.token == self.held)


Calls.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=20)
TestCalls = Calls.TestCase
