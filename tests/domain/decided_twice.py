"""State machine in which each decision is made twice, with and without caches, with equal results.

The groups of a queue are also compared with those that a search of all groups finds.
"""

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.domain.scheduling.decide import decide
from tests.domain.world import World, comparable


class DecidedTwice(RuleBasedStateMachine):
    """Base of state machines. Subclasses set `world`, at the latest in an initializing rule."""

    world: World

    @rule()
    def decisions_are_published(self) -> None:
        self.world.settle()

    @invariant()
    def decided_as_from_nothing(self) -> None:
        self._find_groups_by_queue()  # before their infos are updated, and afterwards
        snapshot = self.world.ledger.snapshot()
        self._find_groups_by_queue()
        assert comparable(decide(snapshot, self.world.decisions)) == comparable(decide(snapshot))

    def _find_groups_by_queue(self) -> None:
        registry = self.world.ledger.registry
        queues = {key: registry.routes.queue_of(group) for key, group in registry.groups.items()}
        for name in {*queues.values(), *registry._groups_by_queue}:
            keys = registry._groups_of({name})
            assert sorted(keys) == sorted(key for key, queue in queues.items() if queue == name)
