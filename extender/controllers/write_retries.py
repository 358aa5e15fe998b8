"""What becomes of a write that failed: when its object is due again.

not sent, another leads     at once, by the next leader
not there any more          never: the watch tells of its end
a conflict                  as soon as the watch shows the newer copy, which makes the object due, or after
                            a pause that grows with each failure in a row
a passing failure           the writers try it a few times; after that as with a conflict
a refusal for good          as with a conflict, and the pauses grow longer: rights may yet be granted
"""

from collections.abc import Hashable
from typing import TypeVar

from extender.controllers.work_queue import LONGEST, WorkQueue
from extender.kube.errors import ApiError, Conflict, Fenced, NotFound

_LONGEST_REFUSED = 300.0  # seconds

K = TypeVar("K", bound=Hashable)


def heed(queue: WorkQueue[K], key: K, fault: ApiError | None) -> None:
    """Have `key` due again as its last write demands; None: it was written."""
    match fault:
        case None | NotFound():
            queue.settle(key)
        case Fenced():
            queue.add(key)
        case Conflict():
            queue.retry(key)
        case _:
            queue.retry(key, LONGEST if fault.transient else _LONGEST_REFUSED)
