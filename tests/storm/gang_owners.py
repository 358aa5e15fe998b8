"""Owners of all gangs: they create the objects, replace lost members, let pods finish, and delete the rest.

Calls fail while the API server is down, and are made again later.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import urllib3

from tests.e2e.harness.client import Client
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.resources import JOBS, POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from tests.e2e.harness.watch import ApiError
from tests.storm.gang_specs import GangSpec, NewObject
from tests.storm.view import View, is_complete_member, is_terminating, is_unbound

Json = dict[str, Any]
Call = Callable[[], object]
API_ERRORS = (ApiError, urllib3.exceptions.HTTPError, OSError)  # the API server is down, or refuses
CONFLICT, NOT_FOUND = 409, 404
MAX_UNBOUND_PODS = 250  # pods; further gangs are refused, as by a quota
THREADS = 6
SETTLING_SECONDS = 8.0  # undisturbed seconds


class Gang:
    """Gang on the cluster: the objects that its owner still has to create, and its state."""

    def __init__(self, gang_spec: GangSpec, namespace: str, now: float) -> None:
        self.spec = gang_spec
        self.to_create: list[NewObject] = gang_spec.bodies(namespace)
        self.arrived_at = now
        self.created_pods = gang_spec.size
        self.started: float | None = None
        self.whole_since: float | None = None  # in undisturbed seconds
        self.leaving = False
        self.needs_group = False  # its PodGroup was deleted, and has to be created again

    def has_run_its_time(self, now: float) -> bool:
        return self.started is not None and now - self.started > self.spec.runtime

    def is_out_of_patience(self, now: float) -> bool:
        return self.started is None and now - self.arrived_at > self.spec.patience


class GangOwners:
    """The gangs of a campaign: call `add` for each new gang, and `act` at short intervals."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        view: View,
        kubelet: Kubelet,
        undisturbed_time: Callable[[float], float],
    ) -> None:
        self.gangs: dict[str, Gang] = {}
        self.counts: Counter[str] = Counter()
        self.finishing = True  # False: running pods do not end, and owners wait without limit
        self.settled: dict[str, float] = {}  # when each gang had run fully for a while
        self._client = client
        self._namespace = namespace
        self._view = view
        self._kubelet = kubelet
        self._undisturbed_time = undisturbed_time
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="owner")

    def add(self, gang_spec: GangSpec) -> bool:
        """Add a gang; return False if too many pods wait."""
        waiting = sum(map(is_unbound, self._view.pods()))
        if waiting + gang_spec.size > MAX_UNBOUND_PODS:
            self.counts["turned away"] += 1
            return False
        self.gangs[gang_spec.name] = Gang(gang_spec, self._namespace, time.monotonic())
        self.counts["arrived"] += 1
        return True

    def act(self) -> None:
        """Let the owner of each gang take one step."""
        now = time.monotonic()
        calls = [call for gang in list(self.gangs.values()) for call in self._next_calls(gang, now)]
        list(self._threads.map(_ignoring_errors, calls))

    def close(self) -> None:
        self._threads.shutdown()

    def _next_calls(self, gang: Gang, now: float) -> Iterable[Call]:
        pods = self._view.members(gang.spec.name)
        self._record_progress(gang, pods, now)
        if gang.leaving:
            return self._deletion_calls(gang, pods)
        if self.finishing and gang.is_out_of_patience(now):
            self.counts["gave up"] += 1
            return self._leave(gang)
        if gang.to_create:
            return [partial(self._create, gang)]
        if self.finishing and gang.has_run_its_time(now):
            return self._end_calls(gang, pods)
        if gang.needs_group:
            gang.needs_group = False
            gang.to_create.append((POD_GROUPS, gang.spec.group(self._namespace)))
        return self._replacement_calls(gang, pods)

    def _record_progress(self, gang: Gang, pods: list[Json], now: float) -> None:
        if sum(_has_run(pod) for pod in pods) < gang.spec.min_member:
            gang.whole_since = None
            return
        if gang.started is None:
            gang.started = now
            self.counts["started"] += 1
        undisturbed = self._undisturbed_time(now)
        gang.whole_since = undisturbed if gang.whole_since is None else gang.whole_since
        if undisturbed - gang.whole_since > SETTLING_SECONDS and not gang.spec.roles:
            self.settled.setdefault(gang.spec.name, now)

    def _create(self, gang: Gang) -> None:
        """Create the objects in order; the next call continues with the failed one."""
        while gang.to_create:
            resource, body = gang.to_create[0]
            _ignoring_status(CONFLICT, partial(self._client.create, resource, body))
            gang.to_create.pop(0)

    def _replacement_calls(self, gang: Gang, pods: list[Json]) -> list[Call]:
        """Return calls that replace failed pods; none for a job, whose controller replaces them."""
        if not gang.spec.replaces_members or gang.spec.is_job or gang.has_run_its_time(time.monotonic()):
            return []
        failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
        alive = [pod for pod in pods if pod not in failed and not is_terminating(pod)]
        for _ in range(gang.spec.size - len(alive)):
            gang.to_create.append((PODS, gang.spec.pod(gang.created_pods, self._namespace)))
            gang.created_pods += 1
        return [self._delete(PODS, pod["metadata"]["name"]) for pod in failed]

    def _end_calls(self, gang: Gang, pods: list[Json]) -> Iterable[Call]:
        running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
        if not running:
            self.counts["finished"] += 1
            return self._leave(gang)
        phase = "Failed" if gang.spec.fails and not gang.spec.is_job else "Succeeded"
        return [partial(self._kubelet.finish, self._namespace, [name], phase) for name in running]

    def _leave(self, gang: Gang) -> list[Call]:
        gang.leaving = True
        gang.to_create.clear()
        return []

    def _deletion_calls(self, gang: Gang, pods: list[Json]) -> list[Call]:
        """Return calls that delete a gang: its Job before its pods, and its PodGroup last."""
        name = gang.spec.name
        for resource in {"job": [JOBS], "volcano": [VOLCANO_JOBS]}.get(gang.spec.kind, []):
            _ignoring_errors(self._delete(resource, name))
        if pods:
            return [self._delete(PODS, pod["metadata"]["name"]) for pod in pods if not is_terminating(pod)]
        if gang.spec.kind == "pods" or self._is_gone(POD_GROUPS, name):
            del self.gangs[name]
            return []
        return [self._delete(POD_GROUPS, name)]

    def _is_gone(self, resource: Resource, name: str) -> bool:
        try:
            return self._client.find(resource, name, self._namespace) is None
        except API_ERRORS:
            return False

    def _delete(self, resource: Resource, name: str) -> Call:
        return partial(
            _ignoring_status, NOT_FOUND, partial(self._client.delete, resource, name, self._namespace)
        )


def _has_run(pod: Json) -> bool:
    return is_complete_member(pod) and pod["status"].get("phase") in ("Running", "Succeeded")


def _ignoring_status(status: int, call: Call) -> None:
    try:
        call()
    except ApiError as error:
        if error.status != status:
            raise


def _ignoring_errors(call: Call) -> None:
    """Call, and ignore failures: the call is made again later."""
    try:
        call()
    except API_ERRORS:
        return
