"""Posted bindings that no watch has confirmed: their pods are read until the outcome is known.

A request that was cut off may have taken effect, so its claim on room stays. One thread reads one pod after
the other; while no API server answers, no other pod can be bound into that room either.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from extender.domain.cache.claims import Claim
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, NotFound
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 10.0  # seconds until a pod whose outcome is still unknown is read again


class Unconfirmed:
    """`patience`: seconds after which the call that posted a claim has ended in any case."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: ApiClient,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._patience = patience
        self._clock = clock
        self._queue: SimpleQueue[Claim] = SimpleQueue()
        self._due: dict[int, float] = {}  # by token: when a claim's pod is read next

    def start(self) -> None:
        threading.Thread(target=self._run, name="unconfirmed", daemon=True).start()

    def look(self, _: Decisions) -> None:
        """Have the pods of all claims that are due read. Called in every cycle, only by its thread."""
        now = self._clock()
        found = {claim.token: claim for claim in self._ledger.posted_before(now - self._patience)}
        self._due = {token: due for token, due in self._due.items() if token in found}
        for token, claim in found.items():
            if self._due.get(token, now) <= now:
                self._due[token] = now + _AGAIN
                self._queue.put(claim)

    def work_off(self) -> None:
        """Read the pods of all claims that are queued now."""
        while True:
            try:
                self._resolve(self._queue.get_nowait())
            except Empty:
                return

    def _run(self) -> None:
        while True:
            self._resolve(self._queue.get())

    def _resolve(self, claim: Claim) -> None:
        try:
            if not self._is_bound(claim):
                log.warning("a posted binding had no effect", pod=claim.pod.key, node=claim.node)
                for posting in claim.posting:
                    self._ledger.release(claim.pod.uid, posting.token)
        except ApiError as fault:
            log.info("a posted pod cannot be read yet", pod=claim.pod.key, error=str(fault))
        except Exception:
            log.exception("a posted pod could not be judged", pod=claim.pod.key)

    def _is_bound(self, claim: Claim) -> bool:
        """Whether the pod is on a node: then the watch will show it, and the claim follows the watch."""
        if self._ledger.claim(claim.pod.uid) is not claim:
            return True
        try:
            found = self._cluster.pod(claim.pod.namespace, claim.pod.name)
        except NotFound:
            return False
        return found.metadata.uid == claim.pod.uid and bool(found.spec.node_name)
