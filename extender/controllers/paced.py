"""Controllers that write numbers: a change of an object's course is written at once, mere numbers share a
budget.

One other pod may change the numbers of ten thousand groups and of all queues. Lane 0 of such a controller is
for courses; keys in the other lanes are taken only while the budget has a token and the writers are not
busy. A key whose numbers wait is parked: it is not looked at again before its turn, unless its course
changes. The budgets of all such controllers together limit the PATCHes per second that a cluster gets for
numbers.
"""

from collections.abc import Hashable
from typing import ClassVar, TypeVar

from extender.controllers.controller import Controller
from extender.domain.model.token_bucket import TokenBucket

_BUSY = 16  # waiting writes from which on no write of numbers is begun
_AT_ONCE = 100  # keys that one look compares: most turn out to have nothing to write

K = TypeVar("K", bound=Hashable)


class PacedController(Controller[K]):
    lanes = 2
    rate: ClassVar[float]  # writes of numbers per second
    burst: ClassVar[int]  # writes of numbers at once

    def prepare(self) -> None:
        self._budget = TokenBucket(self.rate, self.burst, self._clock())
        self._parked: dict[K, object] = {}  # keys that wait in a lane of numbers, with their course

    def rest(self) -> None:
        self._parked.clear()

    def _is_parked(self, key: K, course: object) -> bool:
        """Whether `key` waits to write numbers and its course is still `course`."""
        return key in self._parked and self._parked[key] == course

    def _park(self, key: K, course: object, after: float, lane: int = 1) -> None:
        self._parked[key] = course
        self._queue.move(key, after, lane)

    def _attend(self, key: K) -> None:
        self._parked.pop(key, None)
        super()._attend(key)

    def _work(self, least_urgent: int | None = None) -> None:
        super()._work(0)
        for _ in range(_AT_ONCE):
            if not self._may_begin_numbers() or (key := self._queue.take()) is None:
                return
            self._attend(key)

    def _may_begin_numbers(self) -> bool:
        return self._writers.depth < _BUSY and self._budget.left(self._clock()) >= 1
