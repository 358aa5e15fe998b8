"""Any course of events in which each decision is made twice: from cached data, and from nothing.

Both must be equal. And the groups of a queue are found as by looking at all of them.
"""

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
        self._find_groups_by_queue()  # before they have new views, and after
        snapshot = self.world.ledger.snapshot()
        self._find_groups_by_queue()
        assert comparable(decide(snapshot, self.world.decisions)) == comparable(decide(snapshot))

    def _find_groups_by_queue(self) -> None:
        registry = self.world.ledger.registry
        queues = {key: registry.routes.queue_of(group) for key, group in registry.groups.items()}
        for name in {*queues.values(), *registry._queued_in}:
            keys = registry._groups_of({name})
            assert sorted(keys) == sorted(key for key, queue in queues.items() if queue == name)
