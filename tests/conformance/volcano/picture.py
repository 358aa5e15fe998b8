"""Sums of a session: before its first cycle, and after all bindings that it expects."""

from collections.abc import Iterable, Mapping
from typing import Any

from extender.domain.model.records import PodRecord
from extender.domain.model.resources import PODS, Resources, add, offered, pod_requests, total
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import key, objects, pod
from tests.domain.world import World
from tests.sharing import within

CaseData = Mapping[str, Any]
_NOT_COMPARED = frozenset({PODS})


def requests(data: Iterable[CaseData]) -> dict[str, int]:
    return total(pod_requests(pod(pod_data).spec) for pod_data in data)


def running(case: Case) -> list[CaseData]:
    return [pod_data for pod_data in case.input.get("pods", ()) if pod_data.get("node")]


def pending(case: Case, group: CaseData) -> list[CaseData]:
    """Return the pods of a group that are on no node yet."""
    name = (group["namespace"], group["name"])
    return [
        pod_data
        for pod_data in case.input.get("pods", ())
        if (pod_data["namespace"], pod_data["podgroup"]) == name and pod_data.get("phase") == "Pending"
    ]


def queue_of(case: Case, pod_data: CaseData) -> str:
    groups = {key(group): group["queue"] for group in case.input["podGroups"]}
    return str(groups.get(f"{pod_data['namespace']}/{pod_data['podgroup']}", ""))


def idle(case: Case) -> Resources:
    """Return the free amounts of all nodes together."""
    sums = total(offered(node["allocatable"]) for node in case.input.get("nodes", ()))
    add(sums, requests(running(case)), -1)
    return sums


class StateAfterBindings:
    """Muster's state of a session once all bindings that the case expects are done."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._binds = case.expect.get("binds") or case.expect.get("exampleBinds") or {}
        self.pods = [{**pod_data, "node": self._node(pod_data)} for pod_data in case.input.get("pods", ())]
        self._world = World(*objects({**case.input, "pods": self.pods})).settle()

    def _node(self, pod_data: CaseData) -> str | None:
        node = pod_data.get("node") or self._binds.get(key(pod_data))
        return str(node) if node else None

    def planned(self) -> list[PodRecord]:
        """Return the pods that Muster would start in addition."""
        return [claim.pod for claim in self._world.ledger.claims_to_release()]

    def planned_sums(self) -> dict[str, dict[str, int]]:
        """Return the requests of the planned pods, summed by queue."""
        sums: dict[str, dict[str, int]] = {}
        for member in self.planned():
            queue = self._world.decisions.groups[member.group].queue
            add(sums.setdefault(queue, {}), member.shape.requests)
        return sums

    def waiting(self, queue: str) -> list[dict[str, int]]:
        """Return the requests of each pod of a queue that still waits."""
        pods = [
            pod_data
            for pod_data in self.pods
            if not pod_data["node"] and queue_of(self._case, pod_data) == queue
        ]
        return [requests([pod_data]) for pod_data in pods]

    def has_share_for(self, queue: str, amounts: Resources) -> bool:
        """Return whether the share gate lets a queue have `amounts` in addition to its holdings."""
        queue_decision = self._world.queue(queue)
        return within(amounts, queue_decision.allocated, queue_decision.deserved, _NOT_COMPARED)

    def is_above_share(self, queue: str) -> bool:
        queue_decision = self._world.queue(queue)
        return not within(queue_decision.allocated, {}, queue_decision.deserved, _NOT_COMPARED)
