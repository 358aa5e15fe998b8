"""Posting of bindings, in a limited pool of threads.

An interrupted request can have taken effect. The claim of its pod therefore stays until the outcome is known.
If no watch confirms the binding, the pods are read one after the other until each outcome is known. One
thread reads the pods of all such claims. While no API server answers, the claims stay, and no other pod can
be bound to the claimed capacity.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from extender.domain.ledger.claims import Claim
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.queue_of_group import entry_annotation
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import Ambiguous, ApiError, Conflict, Forbidden, NotFound, message_for_user
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.verbs.barrier import ABANDONED, BOUND_ELSEWHERE, POD_GONE, POSTING_FAILED, TOO_LATE, Hold

log = logger(__name__)

_MAX_TIMEOUT = 10.0  # seconds
_MAX_MESSAGE_LENGTH = 500  # most characters of a message from the API server
_NO_RIGHT = 'cannot create resource "pods/binding"'  # part of the API server's answer if the right is missing
_RIGHTS_TIMEOUT = 5.0  # seconds in which a new API server loads the rights
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0
_BOUND_COUNT, _FAILED_COUNT = map(metrics.bindings.labels, ("bound", "failed"))
_READ_PERIOD = 10.0  # seconds until a pod is read again whose outcome is still unknown


class Binder:
    """Pool of threads that bind pods: `post(hold)` returns at once, and a thread finishes the hold.

    `release` frees the claim of a hold that led to no binding. `queue_uid_of` returns the UID of the queue in
    which a group starts. The binding records this UID on the pod, and the pod counts in this queue until it
    ends.
    """

    def __init__(
        self,
        cluster: ApiClient,
        release: Callable[[Hold], None],
        queue_uid_of: Callable[[GroupKey], str],
        thread_count: int,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._release = release
        self._queue_uid_of = queue_uid_of
        self._clock = clock
        self._pause = pause
        self._queue: SimpleQueue[Hold] = SimpleQueue()
        self._thread_count = thread_count

    def start(self) -> None:
        for number in range(self._thread_count):
            threading.Thread(target=self._run, name=f"bind-{number}", daemon=True).start()

    def post(self, hold: Hold) -> None:
        self._queue.put(hold)

    def _run(self) -> None:
        while True:
            self.bind(self._queue.get())

    def bind(self, hold: Hold) -> None:
        """Bind a held pod, and finish its hold."""
        try:
            error = self._bind(hold)
        except Exception:
            log.exception("a binding could not be posted", pod=hold.pod.key)
            error = POSTING_FAILED
        (_FAILED_COUNT if error else _BOUND_COUNT).inc()
        if error:
            log.warning("a binding failed", pod=hold.pod.key, group=hold.pod.group, error=error)
        try:
            if error and not hold.may_be_bound:
                self._release(hold)
        except Exception:
            log.exception("a claim could not be released", pod=hold.pod.key)
        finally:
            hold.finish(error)

    def _bind(self, hold: Hold) -> str:
        """Post a binding until the result is known; return the error, empty for success."""
        pod, pause, queue_uid = hold.pod, _FIRST_PAUSE, self._queue_uid_of(hold.pod.group)
        started_at = self._clock()
        annotations = entry_annotation(queue_uid, pod.uid) if queue_uid else {}
        while not hold.caller.has_hung_up():
            remaining = hold.deadline - self._clock()
            if remaining <= 0:
                return TOO_LATE
            error: str | None = ""  # empty if the pod is bound; None to send the request again
            try:
                timeout = min(remaining, _MAX_TIMEOUT)
                self._cluster.bind(pod.namespace, pod.name, pod.uid, hold.node, annotations, timeout)
            except (Ambiguous, Conflict) as fault:
                hold.may_be_bound = hold.may_be_bound or isinstance(fault, Ambiguous)
                error = self._read_result(hold)
            except NotFound:
                hold.may_be_bound = False
                error = POD_GONE
            except ApiError as fault:
                if not (fault.is_transient or self._is_temporary(fault, started_at)):
                    hold.refusal = message_for_user(fault)[:_MAX_MESSAGE_LENGTH]
                    return f"{REFUSAL_PREFIX}{type(fault).__name__}"
                error = None
            if error is not None:
                return error
            self._pause(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        return ABANDONED

    def _is_temporary(self, fault: ApiError, started_at: float) -> bool:
        """Return whether a refusal can end by itself, because a new API server has not read its RBAC rules.

        Other refusals do not end soon, for example refusals by a policy or in a namespace that is being
        deleted. A retry after such a refusal would block a thread that other pods need.
        """
        is_right_missing = isinstance(fault, Forbidden) and _NO_RIGHT in fault.message
        return is_right_missing and self._clock() < started_at + _RIGHTS_TIMEOUT

    def _read_result(self, hold: Hold) -> str | None:
        """Read the pod, and return the result of a binding whose request got no clear answer.

        None means that the caller has to send the same request again.
        """
        try:
            stored_pod = self._cluster.pod(hold.pod.namespace, hold.pod.name)
        except NotFound:
            hold.may_be_bound = False
            return POD_GONE
        except ApiError:
            return None
        hold.may_be_bound = False
        if stored_pod.metadata.uid != hold.pod.uid or stored_pod.metadata.deletion_timestamp is not None:
            return POD_GONE
        if not stored_pod.spec.node_name:
            return None
        return "" if stored_pod.spec.node_name == hold.node else BOUND_ELSEWHERE


class UnclearClaims:
    """Posted claims without a result, whose pods are read from the API server.

    The pod of a claim is read once the posting is `min_age` seconds old, since all its requests have ended by
    then.
    """

    def __init__(
        self, ledger: Ledger, cluster: ApiClient, min_age: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._min_age = min_age
        self._clock = clock
        self._queue: SimpleQueue[Claim] = SimpleQueue()
        self._has_work = threading.Event()
        self._next_reads: dict[int, float] = {}  # time of the next read, by token of the claim

    def start(self) -> None:
        threading.Thread(target=self._run, name="unconfirmed", daemon=True).start()

    def read_due(self, _: Decisions) -> None:
        """Request reads of the pods of all due claims.

        Only the thread of the scheduling cycles calls this method.
        """
        now = self._clock()
        claims = {c.token: c for c in self._ledger.assumed_pods.posted_before(now - self._min_age)}
        self._next_reads = {token: read_at for token, read_at in self._next_reads.items() if token in claims}
        for token, claim in claims.items():
            if self._next_reads.get(token, now) <= now:
                self._next_reads[token] = now + _READ_PERIOD
                self._queue.put(claim)
                self._has_work.set()

    def resolve_queued(self) -> None:
        """Read the pods of all queued claims."""
        with suppress(Empty):
            while True:
                self._resolve(self._queue.get_nowait())

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._has_work.clear()
            self.resolve_queued()

    def _resolve(self, claim: Claim) -> None:
        """Read the pod of a posted claim; if the pod is not bound, release the claim."""
        pod, is_bound = claim.pod, False
        try:
            if self._ledger.claims.get(pod.uid) is not claim:
                return
            with suppress(NotFound):
                stored_pod = self._cluster.pod(pod.namespace, pod.name)
                is_bound = stored_pod.metadata.uid == pod.uid and bool(stored_pod.spec.node_name)
            if not is_bound:  # otherwise the watch will show the binding
                log.warning("a posted binding had no effect", pod=pod.key, node=claim.node)
                for posting in claim.postings:
                    self._ledger.assumed_pods.release(pod.uid, posting.token)
        except ApiError as fault:
            log.info("a posted pod cannot be read yet", pod=pod.key, error=str(fault))
        except Exception:
            log.exception("cannot decide on a posted pod", pod=pod.key)
