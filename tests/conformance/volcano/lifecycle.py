"""Kinds `queue.state`, `queue.state.handler` and `queue.sync`: the life of a queue.

In Volcano, status.state is both the desired and the observed state of a queue. In Muster, spec.state is the
desired state, which actions set. A case whose handler is not that of its stored state is impossible in
Volcano; in Muster it is a queue whose spec and status have different states.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from extender.api.objects.queues import PodGroup
from extender.domain.queues.records import QueueRecord, queue_record
from extender.domain.queues.states import QueueAction, desired_state, read_state, state_of
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano import objects
from tests.domain.builders import group
from tests.domain.world import World

_SYNC = "SyncQueue"


def check_state(case: Case) -> Iterator[str]:
    record = _record(case)
    yield from unequal(
        "state", case.expect["state"], state_of(desired_state(record), case.input["podGroups"] > 0)
    )


def _record(case: Case) -> QueueRecord:
    handler, stored = case.input["handler"], case.input["storedState"]
    if case.input["action"] != _SYNC:
        desired = QueueAction(case.input["action"]).spec_state
        return QueueRecord("q", spec_state=desired, status_state=stored)
    if read_state(stored) == handler:
        return QueueRecord("q", status_state=stored)
    return QueueRecord("q", spec_state=stored, status_state=handler)


def check_handler(case: Case) -> Iterator[str]:
    yield from unequal("handler", case.expect["handler"], read_state(case.input["storedState"]))


def check_sync(case: Case) -> Iterator[str]:
    """Check the status that the ledger and a decision give a queue."""
    queue, action = objects.queue(case.input["queue"]), case.input.get("action", _SYNC)
    if action != _SYNC:
        queue = replace(queue, spec=replace(queue.spec, state=QueueAction(action).spec_state))
    name = queue_record(queue).name
    world = World(queue, [_group(number, name, data) for number, data in enumerate(case.input["podGroups"])])
    yield from unequal("state", case.expect["state"], world.settle().queue(name).state)


def _group(number: int, queue: str, data: Any) -> PodGroup:
    phase = data.get("phase", "") if isinstance(data, dict) else ""
    return group(f"group-{number}", 1, queue, phase=phase)


def keeps_closed_with_groups(case: Case) -> bool:
    """Return whether a queue is to stay Closed although it has groups that came after it was closed."""
    if case.kind not in ("queue.state", "queue.sync") or case.expect["state"] != "Closed":
        return False
    return bool(case.input["podGroups"])
