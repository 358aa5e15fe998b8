"""When an object is due again after a write that failed.

not sent, another leads     at once, by the next leader
a conflict                  as soon as the watch shows the newer copy, which makes the object due, or after
                            a pause that grows with each failure in a row
a transient failure         the writers try it a few times; after that as with a conflict
a permanent refusal         as with a conflict, but with longer pauses: the right may still be granted
the object is not there     as with a refusal, until the watch shows its deletion: it may be there, while its
                            kind is not served
"""

from collections.abc import Hashable
from typing import TypeVar

from extender.controllers.work_queue import LONGEST, WorkQueue
from extender.kube.errors import ApiError, Conflict, Fenced

_LONGEST_REFUSED = 300.0  # seconds

K = TypeVar("K", bound=Hashable)


def schedule_retry(queue: WorkQueue[K], key: K, fault: ApiError | None) -> None:
    """Make `key` due again according to the `fault` of its last write; None: it was written."""
    match fault:
        case None:
            queue.settle(key)
        case Fenced():
            queue.add(key)
        case Conflict():
            queue.retry(key)
        case _:
            queue.retry(key, LONGEST if fault.transient else _LONGEST_REFUSED)
