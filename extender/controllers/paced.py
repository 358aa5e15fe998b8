"""Controllers that write numbers: what changes an object's course goes at once, mere numbers share a budget.

One pod of somebody else may move the numbers of ten thousand groups and of all queues. Lane 0 of such a
controller is for courses; keys in the lanes behind it are taken out only while the budget has a token and the
writers are not busy. Whose numbers wait is parked: it is not looked at again before its turn, unless its
course changes. All budgets together are the PATCHes for numbers that a cluster sees in a second.
"""

from collections.abc import Hashable
from typing import ClassVar, TypeVar

from extender.controllers.controller import Controller
from extender.domain.model.token_bucket import TokenBucket

_BUSY = 16  # writes under way with which none of numbers is begun
_AT_ONCE = 100  # keys whose turn has come that one look compares: most have nothing to write after all

K = TypeVar("K", bound=Hashable)


class PacedController(Controller[K]):
    lanes = 2
    rate: ClassVar[float]  # writes of numbers a second
    burst: ClassVar[int]  # and at once

    def prepare(self) -> None:
        self._budget = TokenBucket(self.rate, self.burst, self._clock())
        self._parked: dict[K, object] = {}  # keys that wait in a lane of numbers, and on what course

    def rest(self) -> None:
        self._parked.clear()

    def _is_parked(self, key: K, course: object) -> bool:
        """Whether `key` waits to write numbers and is still on this course."""
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
