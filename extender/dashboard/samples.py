"""What part of its deserved amounts each queue held over the last hour, as far as somebody looked: kept in
this process, a sample each half minute."""

import threading
from collections import defaultdict, deque
from collections.abc import Sequence

from extender.api.summaries import Overview

SPAN, STEP = 3600, 30  # seconds
Samples = Sequence[tuple[float, float]]  # moment, share


class LastHour:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares: dict[str, deque[tuple[float, float]]] = {}
        self._last = float("-inf")

    def note(self, overview: Overview, now: float) -> None:
        """Queues that are gone are forgotten."""
        with self._lock:
            if now - self._last < STEP:
                return
            self._last = now
            shares = defaultdict(lambda: deque[tuple[float, float]](maxlen=SPAN // STEP), self._shares)
            for queue in overview.queues:
                if queue.share is not None:
                    shares[queue.name].append((now, queue.share))
            self._shares = {
                queue.name: shares[queue.name] for queue in overview.queues if queue.name in shares
            }

    def of(self, queue: str, now: float) -> Samples:
        with self._lock:
            return [it for it in self._shares.get(queue, ()) if it[0] >= now - SPAN]
