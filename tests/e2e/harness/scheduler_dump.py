"""Cache and queue of kube-scheduler, which the scheduler logs after SIGUSR2.

The scheduler also logs differences between its cache and its informer's store. Tests do not rely on these
differences. They include pods of other schedulers and pods of the current attempt, although these pods are no
fault. Instead, tests compare the cache with the API.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]
_NODES, _QUEUE = '"Dump of cached NodeInfo"', '"Dump of scheduling queue"'
_MISMATCH = '"Cache mismatch"'
_POD = re.compile(r"name: (\S+), namespace: \S+, uid: (\S+), phase: \S*, nominated node: (\S*)")
_NODE_LINE = re.compile(r"Node name: (\S+)$")
# end of the queue, which is the last part of the dump
_PODS_END = re.compile(r'^ >$|^pods=""$', re.MULTILINE)
ENDED = ("Succeeded", "Failed")


class Dump(NamedTuple):
    """Dump of a scheduler. All fields except `mismatches` are keyed by UID of pods."""

    cached: dict[str, str]  # nodes of cached pods, including assumed pods
    queued: dict[str, str]  # names of queued pods, which are active, in backoff, or unschedulable
    nominated: dict[str, str]  # nominated nodes of pods
    mismatches: list[str]  # differences that the scheduler reports between its cache and its informer

    @classmethod
    def read(cls, log: str) -> "Dump | None":
        """Return the dump in a log, or None if the dump is incomplete."""
        head, separator, queue = log.partition(_QUEUE)
        _summary, key, pods = queue.partition("pods=")
        if not separator or not _PODS_END.search(key + pods):
            return None
        cached, nominated = _nodes_of_pods(head.partition(_NODES)[2])
        queued = {uid: name for name, uid, _ in _POD.findall(pods)}
        return cls(cached, queued, nominated, [line for line in log.splitlines() if _MISMATCH in line])

    def differences(self, pods: Iterable[Json]) -> list[str]:
        """Return the differences between the dump and the pods in the API.

        A busy scheduler differs by its assumed pods.
        """
        unended_pods = [pod for pod in pods if pod["status"].get("phase") not in ENDED]
        nodes = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in unended_pods}
        bound_nodes = {uid: node for uid, node in nodes.items() if node}
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in unended_pods}
        return [
            *(
                f"pod {names[uid]} is on {node}, the scheduler has it {_location(self.cached, uid)}"
                for uid, node in bound_nodes.items()
                if self.cached.get(uid) != node
            ),
            *(
                f"pod {names.get(uid, uid)} is not bound, the scheduler has it on {node}"
                for uid, node in self.cached.items()
                if uid not in bound_nodes
            ),
            *(
                f"pod {name} is not waiting, the scheduler has it in its queue"
                for uid, name in self.queued.items()
                if nodes.get(uid) != ""
            ),
        ]


def _location(cached: dict[str, str], uid: str) -> str:
    """Return the place of a pod in the scheduler's cache, as text."""
    return f"on {cached[uid]}" if uid in cached else "nowhere"


def _nodes_of_pods(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the nodes of cached pods and the nominated nodes of pods, both keyed by UID."""
    cached, nominated = dict[str, str](), dict[str, str]()
    node, current_section = "", cached
    for line in text.splitlines():
        if node_line := _NODE_LINE.search(line):
            node = node_line[1]
        elif "Scheduled Pods(number:" in line or "Nominated Pods(number:" in line:
            current_section = cached if "Scheduled" in line else nominated
        elif pod := _POD.search(line):
            current_section[pod[2]] = node
    return cached, nominated
