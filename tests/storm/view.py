"""View of pods and nodes, from separate watches of the campaign, with counts of events."""

import threading
import time
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from tests.e2e.harness.client import Client
from tests.e2e.harness.follower import Follower, Following
from tests.e2e.harness.resources import NODES, PODS
from tests.storm.gang_specs import GANG

Json = dict[str, Any]
ENDED = ("Succeeded", "Failed")


class Eviction(NamedTuple):
    """Eviction by Muster; nothing else evicts pods here."""

    at: float
    gang: str
    pod: str


class View(Following):
    """Pods and nodes as watches show them, so a little late: `with View(client) as view: ...`."""

    def __init__(self, client: Client) -> None:
        self._pods = Follower(client, PODS, self._record_pod)
        self._nodes = Follower(client, NODES, lambda *_: None)
        self._followers = (self._pods, self._nodes)
        self._by_gang: dict[str, dict[str, Json]] = defaultdict(dict)
        self._bound: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.evictions: list[Eviction] = []
        self.bindings: list[float] = []  # their times

    def pods(self) -> list[Json]:
        return list(self._pods.known.values())

    def nodes(self) -> list[Json]:
        return list(self._nodes.known.values())

    def members(self, gang: str) -> list[Json]:
        """Return the existing pods of one gang, in any state."""
        with self._lock:
            return list(self._by_gang[gang].values()) if gang in self._by_gang else []

    def _record_pod(self, kind: str, pod: Json, _version: int) -> None:
        uid, gang = pod["metadata"]["uid"], pod["metadata"].get("labels", {}).get(GANG)
        with self._lock:
            if gang is None:
                return
            self._count(kind, uid, pod)
            if kind == "DELETED":
                self._by_gang[gang].pop(uid, None)
                self._bound.discard(uid)
                if not self._by_gang[gang]:
                    del self._by_gang[gang]
            else:
                self._by_gang[gang][uid] = pod

    def _count(self, kind: str, uid: str, pod: Json) -> None:
        if kind != "DELETED" and pod["spec"].get("nodeName") and uid not in self._bound:
            self._bound.add(uid)
            self.counts["bound"] += 1
            self.bindings.append(time.monotonic())
        if kind == "DELETED" and evicted(pod):
            self.counts["evicted"] += 1
            metadata = pod["metadata"]
            self.evictions.append(Eviction(time.monotonic(), metadata["labels"][GANG], metadata["name"]))


def evicted(pod: Json) -> bool:
    """Return whether the eviction API evicted the pod: this API sets the condition, a deletion does not."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True" for condition in conditions
    )


def is_unbound(pod: Json) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and pod["status"].get("phase") == "Pending"
        and not is_terminating(pod)
    )


def is_terminating(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def holds_capacity(pod: Json) -> bool:
    """Return whether the pod uses capacity of its node: until it has ended or is gone."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ENDED


def is_complete_member(pod: Json) -> bool:
    """Return whether a pod counts as a member of a complete gang."""
    return (holds_capacity(pod) and not is_terminating(pod)) or pod["status"].get("phase") == "Succeeded"
