"""What queues and users hold, averaged over time, from the watch and from what statuses said at first."""

from collections.abc import Callable

from extender.api.objects.queues import Queue
from extender.domain.ledger.registry import Registry
from extender.domain.model.resources import Resources
from extender.domain.queues.past_usage import PastUsage, UsedBy, held_by


class UsageMeter:
    """`half_life` in seconds; 0: nothing is kept. Callers hold the ledger's lock."""

    def __init__(self, registry: Registry, half_life: float, wall_clock: Callable[[], float]) -> None:
        self._registry = registry
        self._half_life, self._clock = half_life, wall_clock
        self.past = PastUsage(wall_clock())

    def restore(self, queue: Queue) -> None:
        """What the status of a queue says, unless something is known of it."""
        name, written = queue.metadata.name, queue.status.usage
        if self._half_life and written is not None and UsedBy(name) not in self.past.parts:
            self.past = self.past.restored(name, written, self._half_life)

    def is_due(self) -> bool:
        return bool(self._half_life) and self._clock() >= self.past.due_at(self._half_life)

    def note(self, total: Resources) -> None:
        """What groups hold now of the `total` of all nodes."""
        views = (group.view for group in self._registry.groups.values())
        held = (
            (view.queue, view.spec.submitter, view.key.partition("/")[0], view.allocated)
            for view in views
            if view is not None and view.allocated
        )
        self.past = self.past.after(self._clock(), self._half_life, held_by(held, total))

    def due_in(self) -> float | None:
        """The seconds until it is due; None where there is nothing to note."""
        if not self._half_life or not (self.past.parts or self._registry.groups):
            return None
        return max(self.past.due_at(self._half_life) - self._clock(), 0.0)
