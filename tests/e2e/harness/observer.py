"""Observer that checks all events of a test by separate watches and separate arithmetic.

The observer does not ask Muster or the scheduler. `assert_clean` first waits until the observer has received
all events, so that a slow watch cannot hide a violation.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.e2e.harness import objects
from tests.e2e.harness.amounts import Amounts, amounts, requests
from tests.e2e.harness.client import Client
from tests.e2e.harness.follower import Follower, Following
from tests.e2e.harness.judge import GangSeen, NodeSeen, PodSeen, Review, Seen, Violation
from tests.e2e.harness.objects import GROUP_NAME
from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
Reading = Callable[[str, Json, int, float], Seen]
GANG_DEADLINE = 30.0  # seconds
ENDED = ("Succeeded", "Failed")
OUR_SCHEDULERS = ("muster", "volcano", "default-scheduler")


class Observer(Following):
    """Observer of the events in a cluster.

    Example: `with Observer(client, deadline=...) as observer: ...; observer.assert_clean()`.
    """

    def __init__(
        self,
        client: Client,
        deadline: float = GANG_DEADLINE,
        *,
        sight: float = 0.0,
        undisturbed_time: Callable[[float], float] = lambda at: at,
        restarts: Sequence[float] = (),
    ) -> None:
        """Observe a cluster. `judge.Review` explains `sight`, `undisturbed_time` and `restarts`."""
        self.deadline = deadline
        self._client = client
        self._sight = sight
        self._undisturbed_time = undisturbed_time
        self._restarts = restarts
        self._history: list[Seen] = []
        self._last_states: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._followers = [
            Follower(client, NODES, self._recorder(read_node)),
            Follower(client, POD_GROUPS, self._recorder(read_gang)),
            Follower(client, PODS, self._recorder(read_pod)),
        ]

    def violations(self) -> list[str]:
        """Return the messages of all violations until now, without duplicates."""
        return _distinct_messages(self.found())

    def found(self) -> list[Violation]:
        """Wait until the observer has received all events, and return the violations."""
        self._wait_settled()
        return self._reviewed_history().violations

    def incomplete_gangs(self) -> list[str]:
        """Return the gangs that are incomplete now."""
        self._wait_settled()
        return self._reviewed_history().incomplete_gangs()

    def _wait_settled(self) -> None:
        """Wait until each watch has received all events until now."""
        for follower in self._followers:
            follower.ask()
        wait_for(self._is_settled, what="observer settled")

    def _catch_up(self, namespace: str) -> None:
        """Wait until all earlier events have been received.

        The observer creates an object of each kind, and waits for the events of these objects, which come
        last.
        """
        try:
            created_objects = [self._client.create(kind, body) for kind, body in _last_objects(namespace)]
        except ApiError:  # A test's admission policy may refuse the object.
            return self._wait_settled()
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in created_objects]
        last_versions = list(zip(self._followers, versions, strict=True))
        wait_for(lambda: all(follower.has_reached(version) for follower, version in last_versions))

    def _reviewed_history(self) -> Review:
        """Return a review that has replayed all recorded states."""
        with self._lock:
            history = list(self._history)
        review = Review(
            self.deadline, sight=self._sight, undisturbed_time=self._undisturbed_time, restarts=self._restarts
        )
        review.replay(history, time.monotonic())
        return review

    def gaps(self) -> list[str]:
        """Return the gaps in the watches. In a gap, the API server had forgotten events."""
        return [gap for follower in self._followers for gap in follower.gaps]

    def assert_clean(self, *, gaps_allowed: bool = False, namespace: str = "") -> None:
        """Fail if there are violations, or gaps in the watches.

        Args:
            gaps_allowed: Whether gaps are ignored, for tests that restart the API server. A restarted API
                server forgets earlier events.
            namespace: Namespace in which the observer may create objects to find the end of the watches.
        """
        if namespace:
            self._catch_up(namespace)
        else:
            self._wait_settled()
        faults = _distinct_messages(self._reviewed_history().violations)
        if not gaps_allowed:
            faults += [f"events lost: {gap}" for gap in self.gaps()]
        assert not faults, "the observer saw:\n  " + "\n  ".join(faults)

    def _is_settled(self) -> bool:
        """Return whether all followers have settled.

        All followers are asked, so that they settle in parallel.
        """
        return False not in [follower.is_settled() for follower in self._followers]

    def _recorder(self, read: Reading) -> Callable[[str, Json, int], None]:
        """Return a function that records each event of one kind, after `read` has converted the object."""

        def record(kind: str, item: Json, version: int) -> None:
            self._record(item["metadata"]["uid"], read(kind, item, version, time.monotonic()))

        return record

    def _record(self, uid: str, state: Seen) -> None:
        """Record a state, unless it equals the previous state of the object, as after a heartbeat."""
        values = [getattr(state, name) for name in type(state).__slots__]
        with self._lock:
            if self._last_states.get(uid) != values:
                self._last_states[uid] = values
                self._history.append(state)


def _distinct_messages(violations: Sequence[Violation]) -> list[str]:
    return list(dict.fromkeys(violation.message for violation in violations))


def _last_objects(namespace: str) -> list[tuple[Resource, Json]]:
    """Return an object of each kind for `_catch_up`, in the order of the followers."""
    return [
        (NODES, objects.node("seen-last")),
        (POD_GROUPS, objects.pod_group("seen-last", namespace=namespace, min_member=1)),
        (PODS, objects.pod("seen-last", namespace=namespace, scheduler="nobody")),
    ]


def read_pod(kind: str, item: Json, version: int, at: float) -> PodSeen:
    """Return the state of a pod at the time `at`. `kind` is the type of the watch event."""
    metadata, spec = item["metadata"], item["spec"]
    group = metadata.get("annotations", {}).get(GROUP_NAME)
    node = spec.get("nodeName", "")
    is_deleted, phase = kind == "DELETED", item.get("status", {}).get("phase")
    return PodSeen(
        version,
        at,
        _key(metadata),
        uid=metadata["uid"],
        node=node,
        gang=f"{metadata['namespace']}/{group}" if group else None,
        holds_capacity=bool(node) and not is_deleted and phase not in ENDED,
        requests=_counted_by_node(item, requests(item)),
        succeeded=not is_deleted and phase == "Succeeded",
        foreign=spec["schedulerName"] not in OUR_SCHEDULERS,
    )


def _counted_by_node(pod: Json, requests: Amounts) -> Amounts:
    """Return a pod's requests that count against the node's capacity.

    Left out are extended resources for which the scheduler has allocated devices through a claim.
    """
    mappings = pod.get("status", {}).get("extendedResourceClaimStatus", {}).get("requestMappings", ())
    claimed_resources = {mapping["resourceName"] for mapping in mappings}
    return Amounts({name: amount for name, amount in requests.items() if name not in claimed_resources})


def read_node(kind: str, item: Json, version: int, at: float) -> NodeSeen:
    """Return the state of a node. A deleted node has the capacity None."""
    capacity: Amounts | None = amounts(item.get("status", {}).get("allocatable"))
    return NodeSeen(version, at, _key(item["metadata"]), None if kind == "DELETED" else capacity)


def read_gang(kind: str, item: Json, version: int, at: float) -> GangSeen:
    """Return the state of a gang. minMember is 1 by default, and None for a deleted gang."""
    minimum = int(item.get("spec", {}).get("minMember", 1))
    return GangSeen(version, at, _key(item["metadata"]), None if kind == "DELETED" else minimum)


def _key(metadata: Json) -> str:
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
