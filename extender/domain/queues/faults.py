"""What is wrong with a queue or its place in the tree: then its groups wait, since nobody can say what they
may have."""

from collections.abc import Mapping

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_states import parent_of

MOST_LEVELS = 100  # below root; the flag --max-queue-depth allows no more


def fault_of(name: str, queues: Mapping[str, QueueRecord]) -> str:
    """The first fault of an existing queue and those above it, for people; empty if there is none. The limits
    of all queues above bind, so a queue that has one that cannot be judged cannot be judged either."""
    way: list[str] = []
    while name and name != ROOT_QUEUE:
        record = queues.get(name)
        if record is None:
            return _missing(name, way)
        if record.fault:
            return record.fault
        if name in way:
            return f"queue {name}: spec.parent leads back to the queue itself: {' > '.join([*way, name])}"
        if len(way) == MOST_LEVELS:
            return f"queue {way[0]}: more than {MOST_LEVELS} levels of queues are above it"
        way.append(name)
        name = parent_of(name, record)
    return ""


def _missing(name: str, way: list[str]) -> str:
    if not way or name == DEFAULT_QUEUE:
        return ""
    return f"queue {way[-1]}: its parent {name} does not exist"
