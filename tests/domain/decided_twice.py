"""Any course of events in which each decision is made twice: with what is remembered of earlier ones, and
from nothing. Both say the same."""

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.domain.scheduling.decide import decide, decided_with
from extender.domain.scheduling.memory import notes_of
from extender.domain.scheduling.sleepers import Sleepers
from tests.domain.world import World, comparable


class DecidedTwice(RuleBasedStateMachine):
    """A machine of this kind sets `world`, at the latest in a rule to initialize it."""

    world: World

    @rule()
    def decisions_are_published(self) -> None:
        self.world.settle()

    @invariant()
    def decided_as_from_nothing(self) -> None:
        snapshot, before = self.world.ledger.snapshot(), self.world.decisions
        from_nothing = comparable(decide(snapshot))
        assert comparable(decide(snapshot, before)) == from_nothing
        if (notes := notes_of(before)) is not None:  # with no second way, if anything is wrong with them
            assert comparable(decided_with(Sleepers(snapshot, before, notes))) == from_nothing
