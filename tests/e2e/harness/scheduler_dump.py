"""Cache and queue of a kube-scheduler, which SIGUSR2 makes it log.

The scheduler also compares its cache with its informer's store. Tests do not rely on this: it reports pods of
other schedulers and of the current attempt as missing. They compare the cache with the API.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]
_NODES, _QUEUE = '"Dump of cached NodeInfo"', '"Dump of scheduling queue"'
_MISMATCH = '"Cache mismatch"'
_POD = re.compile(r"name: (\S+), namespace: \S+, uid: (\S+), phase: \S*, nominated node: (\S*)")
_NODE_LINE = re.compile(r"Node name: (\S+)$")
_PODS_END = re.compile(r'^ >$|^pods=""$', re.MULTILINE)  # end of the queue, the last part of the dump
ENDED = ("Succeeded", "Failed")


class Dump(NamedTuple):
    """Dump of a scheduler. All fields but the last are by UID of pods."""

    cached: dict[str, str]  # nodes of cached pods, also of assumed ones
    queued: dict[str, str]  # names of queued pods: active, in backoff, or unschedulable
    nominated: dict[str, str]  # nominated nodes
    mismatches: list[str]  # differences that the scheduler reports between cache and informer

    @classmethod
    def read(cls, log: str) -> "Dump | None":
        """Return the dump in a log; None if it is incomplete."""
        head, separator, queue = log.partition(_QUEUE)
        _summary, key, pods = queue.partition("pods=")
        if not separator or not _PODS_END.search(key + pods):
            return None
        cached, nominated = _nodes_of_pods(head.partition(_NODES)[2])
        queued = {uid: name for name, uid, _ in _POD.findall(pods)}
        return cls(cached, queued, nominated, [line for line in log.splitlines() if _MISMATCH in line])

    def differences(self, pods: Iterable[Json]) -> list[str]:
        """Return the differences from the pods in the API. A busy scheduler differs by its assumed pods."""
        alive = [pod for pod in pods if pod["status"].get("phase") not in ENDED]
        nodes = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in alive}
        bound = {uid: node for uid, node in nodes.items() if node}
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in alive}
        return [
            *(
                f"pod {names[uid]} is on {node}, the scheduler has it {_location(self.cached, uid)}"
                for uid, node in bound.items()
                if self.cached.get(uid) != node
            ),
            *(
                f"pod {names.get(uid, uid)} is not bound, the scheduler has it on {node}"
                for uid, node in self.cached.items()
                if uid not in bound
            ),
            *(
                f"pod {name} is not waiting, the scheduler has it in its queue"
                for uid, name in self.queued.items()
                if nodes.get(uid) != ""
            ),
        ]


def _location(cached: dict[str, str], uid: str) -> str:
    return f"on {cached[uid]}" if uid in cached else "nowhere"


def _nodes_of_pods(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the nodes of cached pods, and those of nominated pods."""
    cached, nominated = dict[str, str](), dict[str, str]()
    node, section = "", cached
    for line in text.splitlines():
        if node_line := _NODE_LINE.search(line):
            node = node_line[1]
        elif "Scheduled Pods(number:" in line or "Nominated Pods(number:" in line:
            section = cached if "Scheduled" in line else nominated
        elif pod := _POD.search(line):
            section[pod[2]] = node
    return cached, nominated
