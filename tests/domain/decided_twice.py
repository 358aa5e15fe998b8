"""Any course of events in which each decision is made twice: with what is remembered of earlier ones, and
from nothing. Both say the same."""

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.domain.scheduling.decide import decide
from tests.domain.world import World, comparable


class DecidedTwice(RuleBasedStateMachine):
    """A machine of this kind sets `world`, at the latest in a rule to initialize it."""

    world: World

    @rule()
    def decisions_are_published(self) -> None:
        self.world.settle()

    @invariant()
    def decided_as_from_nothing(self) -> None:
        snapshot = self.world.ledger.snapshot()
        assert comparable(decide(snapshot, self.world.decisions)) == comparable(decide(snapshot))
