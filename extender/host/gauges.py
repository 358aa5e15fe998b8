"""Metrics that are collected at intervals, and a warning about a scheduler that is not configured to call."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from extender.domain.ledger.ledger import Ledger
from extender.domain.queues.states import QueueState
from extender.domain.snapshot.decisions import Decisions
from extender.host.feed import Feed
from extender.kube.writers import Writers
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_PACE = 1.0  # seconds between two collections
_SILENCE = 60.0  # seconds with pods to start but without a call, after which a warning is logged, repeatedly


class Gauges:
    def __init__(
        self,
        feed: Feed,
        writers: Sequence[Writers],
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._writers = writers
        self._ledger = ledger
        self._clock = clock
        self._counted: Counter[tuple[str, str]] = Counter()
        self._next = clock()
        self._expected_since: float | None = None

    def look(self, decisions: Decisions) -> None:
        """Update all metrics, once a second."""
        if self._clock() >= self._next:
            self._next = self._clock() + _PACE
            self.show(decisions)

    def show(self, decisions: Decisions) -> None:
        metrics.write_queue_depth.set(sum(writer.depth for writer in self._writers))
        copies = (Counter(dict(writer.outcomes)) for writer in self._writers)  # since they go on counting
        for outcome, count in sum(copies, Counter()).items():
            metrics.writes.labels(outcome).inc(self._more("writes", outcome, count))
        for reflector in self._feed.reflectors:
            name = reflector.resource.plural
            metrics.cache_synced.labels(name).set(reflector.synced)
            metrics.relists.labels(name).inc(self._more("relists", name, reflector.relists))
            metrics.bad_objects.labels(name).inc(self._more("bad", name, reflector.inventory.bad_objects))
            if reflector.last_contact is not None:
                metrics.cache_age.labels(name).set(self._clock() - reflector.last_contact)
        metrics.view_bypasses.inc(self._more("detours", "", self._ledger.shown.bypasses().calls))
        metrics.show_groups(
            Counter((group.verdict, group.reason or "") for group in decisions.groups.values())
        )
        metrics.show_queues(queue for queue in decisions.queues.values() if queue.uid)
        states = Counter(queue.state for queue in decisions.queues.values())
        for state in QueueState:
            metrics.queues.labels(state).set(states[state])
        self._warn_without_calls()

    def _more(self, kind: str, name: str, count: int) -> int:
        """By how much a count has grown since the last call."""
        more = count - self._counted[kind, name]
        self._counted[kind, name] = count
        return more

    def _warn_without_calls(self) -> None:
        if metrics.first_call.is_set() or not self._ledger.awaits_the_scheduler():
            self._expected_since = None
            return
        now = self._clock()
        self._expected_since = self._expected_since or now
        if now - self._expected_since > _SILENCE:
            self._expected_since = now
            log.warning(
                "the scheduler has never called: check that it runs, that its extenders name this server, and"
                " that their urlPrefix is the address of --listen"
            )
