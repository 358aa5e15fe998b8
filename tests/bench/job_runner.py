"""Simulated job controller without pods. It finishes an admitted job after the job's run time.

If a job is suspended before its end, the job starts from the beginning at its next admission.
"""

import heapq
import http.client
import json
import threading
import time
from datetime import UTC, datetime

import msgspec

from tests.bench.api_connection import MERGE, ApiConnection
from tests.bench.job_load import class_of
from tests.bench.load import EventWatch, ObjectMeta
from tests.e2e.harness.client import Access
from tests.e2e.harness.resources import JOBS
from tests.e2e.harness.watch import ApiError

_CLIENTS = 4


class _Spec(msgspec.Struct):
    suspend: bool = False


class _Job(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    code: int = 0


class _JobEvent(msgspec.Struct):
    type: str
    object: _Job


class JobRunner(EventWatch[_JobEvent]):
    """Runner that finishes jobs: `with JobRunner(access, namespace) as runner: ...`.

    All times are in seconds of the monotonic clock, keyed by the name of the job.
    """

    def __init__(self, access: Access, namespace: str) -> None:
        super().__init__(access, f"{JOBS.path(namespace)}?", _JobEvent)
        self._namespace = namespace
        self.sent_at: dict[str, float] = {}
        self.admitted: dict[str, float] = {}  # time of each job's first admission
        self.finished: dict[str, float] = {}
        self.interrupted = 0  # number of times that a running job was suspended
        self.cpu_seconds = 0.0  # CPU seconds of all runs
        self.failures: list[BaseException] = []
        self._run_starts: dict[str, float] = {}  # start time of each running job
        self._planned_ends: list[tuple[float, str]] = []
        self._state_changed = threading.Condition()
        self._client_threads = [
            threading.Thread(target=self._finish_all, daemon=True) for _ in range(_CLIENTS)
        ]

    def __enter__(self) -> "JobRunner":
        super().__enter__()
        for client in self._client_threads:
            client.start()
        return self

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        with self._state_changed:
            self._state_changed.notify_all()

    def record_sent(self, name: str) -> None:
        self.sent_at[name] = time.monotonic()

    def record(self, event: _JobEvent) -> str:
        if event.type == "ERROR":
            raise ApiError(event.object.code, "the watch was refused")
        name, now = event.object.metadata.name, time.monotonic()
        if event.type in ("ADDED", "MODIFIED") and name in self.sent_at:
            with self._state_changed:
                self._record_state(name, event.object.spec.suspend, now)
        return event.object.metadata.resource_version

    def _record_state(self, name: str, suspended: bool, now: float) -> None:
        """Record that a job was admitted or suspended."""
        if suspended and name in self._run_starts:
            self._end(name, now)
            self.interrupted += 1
        elif not (suspended or name in self._run_starts or name in self.finished):
            self.admitted.setdefault(name, now)
            self._run_starts[name] = now
            heapq.heappush(self._planned_ends, (now + class_of(name).run_seconds, name))
            self._state_changed.notify()

    def _end(self, name: str, now: float) -> None:
        """Forget a running job, and add the CPU seconds of its run."""
        self.cpu_seconds += class_of(name).cpu * (now - self._run_starts.pop(name))

    def _finish_all(self) -> None:
        """Write the status of finished jobs until the context ends."""
        connection = ApiConnection.to(self._access, content=MERGE)
        try:
            while (name := self._next_finished()) is not None:
                connection.expect_success(
                    "PATCH", JOBS.path(self._namespace, name, "status"), _completed_status()
                )
        except (ApiError, OSError, http.client.HTTPException) as fault:
            self.failures.append(fault)
        finally:
            connection.close()

    def _next_finished(self) -> str | None:
        """Wait for the next job whose run time is over, and return its name. Return None at the end."""
        with self._state_changed:
            while not self._has_ended.is_set():
                now = time.monotonic()
                if not self._planned_ends or self._planned_ends[0][0] > now:
                    self._state_changed.wait(
                        min(self._planned_ends[0][0] - now, 1.0) if self._planned_ends else 1.0
                    )
                    continue
                planned_end, name = heapq.heappop(self._planned_ends)
                actual_end = self._run_starts.get(name, now) + class_of(name).run_seconds
                if actual_end <= planned_end:  # Otherwise, the entry belongs to an interrupted run.
                    self._end(name, now)
                    self.finished[name] = now
                    return name
        return None


def _completed_status() -> bytes:
    """Return the status of a completed job as the job controller writes it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    common_fields = {
        "status": "True",
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": "CompletionsReached",
    }
    conditions = [{"type": kind, **common_fields} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
    return json.dumps({"status": status}).encode()
