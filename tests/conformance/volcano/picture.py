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
    return total(pod_requests(pod(each).spec) for each in data)


def running(case: Case) -> list[CaseData]:
    return [each for each in case.input.get("pods", ()) if each.get("node")]


def pending(case: Case, group: CaseData) -> list[CaseData]:
    """Return the pods of a group that are on no node yet."""
    name = (group["namespace"], group["name"])
    return [
        each
        for each in case.input.get("pods", ())
        if (each["namespace"], each["podgroup"]) == name and each.get("phase") == "Pending"
    ]


def queue_of(case: Case, each: CaseData) -> str:
    groups = {key(group): group["queue"] for group in case.input["podGroups"]}
    return str(groups.get(f"{each['namespace']}/{each['podgroup']}", ""))


def idle(case: Case) -> Resources:
    """Return the free amounts of all nodes together."""
    sums = total(offered(each["allocatable"]) for each in case.input.get("nodes", ()))
    add(sums, requests(running(case)), -1)
    return sums


class After:
    """Muster's view of a session once everything that the case expects is bound."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._binds = case.expect.get("binds") or case.expect.get("exampleBinds") or {}
        self.pods = [{**each, "node": self._node(each)} for each in case.input.get("pods", ())]
        self._world = World(*objects({**case.input, "pods": self.pods})).settle()

    def _node(self, each: CaseData) -> str | None:
        node = each.get("node") or self._binds.get(key(each))
        return str(node) if node else None

    def planned(self) -> list[PodRecord]:
        """Return the pods that Muster would start in addition."""
        return [claim.pod for claim in self._world.ledger.claims_to_release()]

    def planned_sums(self) -> dict[str, dict[str, int]]:
        """Return the same as sums by queue."""
        sums: dict[str, dict[str, int]] = {}
        for member in self.planned():
            queue = self._world.decisions.groups[member.group].queue
            add(sums.setdefault(queue, {}), member.shape.requests)
        return sums

    def waiting(self, queue: str) -> list[dict[str, int]]:
        """Return the requests of each pod of a queue that still waits."""
        pods = [each for each in self.pods if not each["node"] and queue_of(self._case, each) == queue]
        return [requests([each]) for each in pods]

    def has_share_for(self, queue: str, requests_: Resources) -> bool:
        """Return whether the share gate lets a queue have `requests_` in addition to its holdings."""
        now = self._world.queue(queue)
        return within(requests_, now.allocated, now.deserved, _NOT_COMPARED)

    def is_above_share(self, queue: str) -> bool:
        now = self._world.queue(queue)
        return not within(now.allocated, {}, now.deserved, _NOT_COMPARED)
