"""Kind `podgroup.build`: the PodGroup for pods that name none, by the controller that makes it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.api.units import at_least
from extender.controllers.auto_podgroups import AutoPodGroupsController
from extender.controllers.controller import ControllerContext
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership, auto_name, queue_named_by
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import Given
from tests.controllers.api import Api
from tests.controllers.bench import AtOnce
from tests.domain.builders import queue

_SCHEDULER = "volcano"
_MILLI = 1000


class _Groups(Api):
    """Keeps the PodGroups that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, dict[str, Any]] = {}

    def create_group(self, namespace: str, group: dict[str, Any], timeout: float = 10) -> None:
        self.made[group["metadata"]["name"]] = group

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        self.made[name]["spec"] |= patch["spec"]
        return msgspec.convert(self.made[name], PodGroup)

    def name_group(self, namespace: str, name: str, uid: str, group: str, timeout: float = 10) -> None:
        pass


def check_build(case: Case) -> Iterator[str]:
    given = case.input
    api, ledger = _Groups(), Ledger(Ownership(frozenset({_SCHEDULER}), auto_groups=True))
    grouper = AutoPodGroupsController(ControllerContext(ledger, api, AtOnce(), leads=lambda: True))
    specs = [given["pod"]] if "pod" in given else given["pods"]
    pods = [_pod(each, number) for number, each in enumerate(specs)]
    if given.get("owner") and given.get("inheritOwnerAnnotations", True):
        ledger.intake.set_owner(_owner(given["owner"], pods))
    if given.get("existingGroup"):
        for pod in pods[:1]:
            _exists(given, pod, api, ledger)
    for pod in pods:
        if named := queue_named_by(pod.metadata):
            ledger.intake.set_queue(queue(named))
        ledger.pods.set(pod)
        grouper.see_pod(pod)
    grouper.on_decisions(ledger.decisions)
    yield from _differences(case.expect, api.made)


def _exists(given: Given, pod: Pod, api: _Groups, ledger: Ledger) -> None:
    """Add the existing group, with other numbers."""
    meta = {"name": auto_name(pod), "namespace": pod.metadata.namespace, "uid": "1"}
    references = [msgspec.to_builtins(reference) for reference in pod.metadata.owner_references or ()]
    group = {"metadata": {**meta, "ownerReferences": references}, "spec": dict(given["existingGroup"])}
    api.made[meta["name"]] = group
    ledger.intake.set_group(msgspec.convert(group, PodGroup))


def _pod(given: Given, number: int) -> Pod:
    requests = {"containers": [{"resources": {"requests": given.get("requests") or {}}}]}
    metadata = {
        "name": given["name"],
        "namespace": given.get("namespace", "default"),
        "uid": given.get("uid", f"pod-{number}"),
        "labels": given.get("labels"),
        "annotations": given.get("annotations"),
        "ownerReferences": given.get("ownerReferences"),
    }
    spec = {
        **requests,
        "schedulerName": given.get("schedulerName", _SCHEDULER),
        "priorityClassName": given.get("priorityClassName", ""),
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, Pod)


def _owner(given: Given, pods: list[Pod]) -> Workload:
    namespace = pods[0].metadata.namespace if pods else "ns"
    same = ("name", "uid", "annotations")
    metadata = {name: given[name] for name in same if name in given} | {"namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": given.get("replicas")}}, Workload)


def _differences(expect: Given, made: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not expect.get("created", True):
        yield from unequal("created", False, bool(made))
        return
    yield from unequal("groups", expect.get("groups", 1), len(made))
    for group in list(made.values())[:1]:
        yield from _unlike(expect, group)


def _unlike(expect: Given, group: dict[str, Any]) -> Iterator[str]:
    meta, spec = group["metadata"], group["spec"]
    shown = {
        "name": meta["name"],
        "ownerReferences": meta.get("ownerReferences", []),
        "ownerReferencesCount": len(meta.get("ownerReferences", [])),
        "minMember": spec["minMember"],
        "queue": spec.get("queue", ""),
        "priorityClassName": spec.get("priorityClassName", ""),
        "phase": group.get("status", {}).get("phase", ""),
    }
    for name in shown.keys() & expect.keys():
        yield from unequal(name, expect[name], shown[name])
    for name in ("annotations", "labels"):
        present = meta.get(name) or {}
        yield from _lacking(name, expect.get(name) or {}, present)
    for absent in expect.get("absentAnnotations") or ():
        yield from unequal(f"annotations[{absent}]", None, (meta.get("annotations") or {}).get(absent))
    yield from _amounts(expect, spec.get("minResources") or {})


def _lacking(what: str, wanted: Given, present: Given) -> Iterator[str]:
    for key, text in wanted.items():
        yield from unequal(f"{what}[{key}]", text, present.get(key))


def _amounts(expect: Given, present: Given) -> Iterator[str]:
    exact = expect.get("minResources")
    if exact is not None:
        yield from unequal("minResources", sorted(exact), sorted(present))
    for name, amount in (exact or expect.get("minResourcesContains") or {}).items():
        yield from unequal(f"minResources[{name}]", _number(amount), _number(present.get(name, "0")))


def _number(quantity: str) -> int:
    return at_least(quantity, _MILLI)
