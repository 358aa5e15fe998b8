"""Whether a LocalQueue leads anywhere: the condition Active."""

from collections.abc import Iterator
from typing import NamedTuple

from extender.domain.queues.local_queue_records import LocalQueueRecord
from extender.domain.queues.namespace_selectors import not_selected
from extender.domain.queues.queue_states import QueueState
from extender.domain.queues.queue_view import QueueView

READY = "Ready"


class Activity(NamedTuple):
    reason: str  # a code; READY: groups may start
    message: str  # for people, without numbers

    @property
    def is_active(self) -> bool:
        return self.reason == READY


def activity_of(local: LocalQueueRecord, queue: QueueView, namespace_allowed: bool) -> Activity:
    """The first thing that keeps all its groups from starting. `queue`: the one that it leads to, whether
    that exists or not."""
    return next(
        _obstacles(local, queue, namespace_allowed), Activity(READY, f"it leads to queue {local.queue}")
    )


def _obstacles(local: LocalQueueRecord, queue: QueueView, namespace_allowed: bool) -> Iterator[Activity]:
    name = local.queue
    if local.fault:
        yield Activity("InvalidSpec", local.fault)
    if not queue.exists:
        yield Activity("QueueNotFound", f"queue {name} does not exist")
    if queue.fault:
        yield Activity("InvalidSpec", queue.fault)
    if queue.state != QueueState.OPEN:
        yield Activity("QueueNotOpen", f"queue {name} is {queue.state}")
    if not namespace_allowed:
        yield Activity("NamespaceNotAllowed", not_selected(name, local.namespace))
    policies = {f"queue {name}": queue.record.stop_policy, "this LocalQueue": local.stop_policy}
    for whose, policy in policies.items():
        if policy:
            yield Activity("Stopped", f"spec.stopPolicy of {whose} is {policy}")
