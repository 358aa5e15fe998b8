"""The owners of all gangs: they create them, replace members that are lost, let them finish, and clear up.

Every call may fail while the API server is away; what was not done is done later.
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
from tests.storm.view import View, going, stands, unbound
from tests.storm.wishes import Wanted, Wish

Json = dict[str, Any]
Call = Callable[[], object]
TROUBLE = (ApiError, urllib3.exceptions.HTTPError, OSError)  # the API server is away, or refuses
CONFLICT, NOT_FOUND = 409, 404
MOST_WAITING = 250  # pods; gangs that come beyond are turned away, as by a quota
HANDS = 6
GOOD_WHILE = 8.0  # calm seconds


class Gang:
    """One wish on the cluster: what its owner has still to create, and when it is to end."""

    def __init__(self, wish: Wish, namespace: str, now: float) -> None:
        self.wish = wish
        self.to_create: list[Wanted] = wish.bodies(namespace)
        self.came = now
        self.made = wish.size
        self.started: float | None = None
        self.whole_since: float | None = None  # in calm seconds
        self.leaving = False
        self.remade = False  # its PodGroup was deleted, and is to be made again

    def due(self, now: float) -> bool:
        return self.started is not None and now - self.started > self.wish.runtime

    def out_of_patience(self, now: float) -> bool:
        return self.started is None and now - self.came > self.wish.patience


class Crowd:
    """The gangs of a campaign: call `arrive` for each wish, and `tend` at short intervals."""

    def __init__(
        self, client: Client, namespace: str, view: View, kubelet: Kubelet, calm: Callable[[float], float]
    ) -> None:
        self.gangs: dict[str, Gang] = {}
        self.counts: Counter[str] = Counter()
        self.finishing = True  # off: running pods stay, no owner loses patience
        self.settled: dict[str, float] = {}  # gangs that have run fully for a while, and since when
        self._client = client
        self._namespace = namespace
        self._view = view
        self._kubelet = kubelet
        self._calm = calm
        self._hands = ThreadPoolExecutor(HANDS, thread_name_prefix="owner")

    def arrive(self, wish: Wish) -> bool:
        """Register a gang for a wish; return False if it is turned away."""
        waiting = sum(map(unbound, self._view.pods()))
        if waiting + wish.size > MOST_WAITING:
            self.counts["turned away"] += 1
            return False
        self.gangs[wish.name] = Gang(wish, self._namespace, time.monotonic())
        self.counts["came"] += 1
        return True

    def tend(self) -> None:
        """Act for all gangs once; every owner does one thing at a time."""
        now = time.monotonic()
        calls = [call for gang in list(self.gangs.values()) for call in self._calls(gang, now)]
        list(self._hands.map(_forgiving, calls))

    def close(self) -> None:
        self._hands.shutdown()

    def _calls(self, gang: Gang, now: float) -> Iterable[Call]:
        pods = self._view.members(gang.wish.name)
        self._notice(gang, pods, now)
        if gang.leaving:
            return self._clearing(gang, pods)
        if self.finishing and gang.out_of_patience(now):
            self.counts["gave up"] += 1
            return self._leave(gang)
        if gang.to_create:
            return [partial(self._create, gang)]
        if self.finishing and gang.due(now):
            return self._finishing(gang, pods)
        if gang.remade:
            gang.remade = False
            gang.to_create.append((POD_GROUPS, gang.wish.group(self._namespace)))
        return self._replacing(gang, pods)

    def _notice(self, gang: Gang, pods: list[Json], now: float) -> None:
        if sum(_runs(pod) for pod in pods) < gang.wish.min_member:
            gang.whole_since = None
            return
        if gang.started is None:
            gang.started = now
            self.counts["started"] += 1
        calm = self._calm(now)
        gang.whole_since = calm if gang.whole_since is None else gang.whole_since
        if calm - gang.whole_since > GOOD_WHILE and not gang.wish.roles:
            self.settled.setdefault(gang.wish.name, now)

    def _create(self, gang: Gang) -> None:
        """Create one object after the other, so that a failed one is first the next time."""
        while gang.to_create:
            resource, body = gang.to_create[0]
            _unless(CONFLICT, partial(self._client.create, resource, body))
            gang.to_create.pop(0)

    def _replacing(self, gang: Gang, pods: list[Json]) -> list[Call]:
        """Return calls that replace failed pods; for a job its own controller does that."""
        if not gang.wish.replaced or gang.wish.is_job or gang.due(time.monotonic()):
            return []
        failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
        alive = [pod for pod in pods if pod not in failed and not going(pod)]
        for _ in range(gang.wish.size - len(alive)):
            gang.to_create.append((PODS, gang.wish.pod(gang.made, self._namespace)))
            gang.made += 1
        return [self._delete(PODS, pod["metadata"]["name"]) for pod in failed]

    def _finishing(self, gang: Gang, pods: list[Json]) -> Iterable[Call]:
        running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
        if not running:
            self.counts["finished"] += 1
            return self._leave(gang)
        phase = "Failed" if gang.wish.fails and not gang.wish.is_job else "Succeeded"
        return [partial(self._kubelet.finish, self._namespace, [name], phase) for name in running]

    def _leave(self, gang: Gang) -> list[Call]:
        gang.leaving = True
        gang.to_create.clear()
        return []

    def _clearing(self, gang: Gang, pods: list[Json]) -> list[Call]:
        """Return calls that delete a gang: the Job before its pods, or it would recreate them.

        The group last.
        """
        name = gang.wish.name
        for resource in {"job": [JOBS], "volcano": [VOLCANO_JOBS]}.get(gang.wish.kind, []):
            _forgiving(self._delete(resource, name))
        if pods:
            return [self._delete(PODS, pod["metadata"]["name"]) for pod in pods if not going(pod)]
        if gang.wish.kind == "pods" or self._gone(POD_GROUPS, name):
            del self.gangs[name]
            return []
        return [self._delete(POD_GROUPS, name)]

    def _gone(self, resource: Resource, name: str) -> bool:
        try:
            return self._client.find(resource, name, self._namespace) is None
        except TROUBLE:
            return False

    def _delete(self, resource: Resource, name: str) -> Call:
        return partial(_unless, NOT_FOUND, partial(self._client.delete, resource, name, self._namespace))


def _runs(pod: Json) -> bool:
    return stands(pod) and pod["status"].get("phase") in ("Running", "Succeeded")


def _unless(status: int, call: Call) -> None:
    try:
        call()
    except ApiError as error:
        if error.status != status:
            raise


def _forgiving(call: Call) -> None:
    """Call, and ignore failures: the call is made again later."""
    try:
        call()
    except TROUBLE:
        return
