"""Kind `podgroup.build`: the PodGroup that Muster's controller creates for pods without one."""

from collections.abc import Iterator
from typing import Any

import msgspec

from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.api.units import rounded_up
from extender.controllers.auto_podgroups import AutoPodGroupsController
from extender.controllers.controller import ControllerContext
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership, auto_group_name, queue_named_by
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import CaseData
from tests.controllers.api import Api
from tests.controllers.bench import AtOnce
from tests.domain.builders import queue

_SCHEDULER = "volcano"
_MILLI = 1000


class _Groups(Api):
    """API that keeps the written PodGroups."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, dict[str, Any]] = {}

    def create_group(self, namespace: str, group: dict[str, Any], timeout: float = 10) -> None:
        self.groups[group["metadata"]["name"]] = group

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        self.groups[name]["spec"] |= patch["spec"]
        return msgspec.convert(self.groups[name], PodGroup)

    def annotate_with_group(
        self, namespace: str, name: str, uid: str, group: str, timeout: float = 10
    ) -> None:
        pass


def check_build(case: Case) -> Iterator[str]:
    data = case.input
    api, ledger = _Groups(), Ledger(Ownership(frozenset({_SCHEDULER}), auto_groups=True))
    grouper = AutoPodGroupsController(ControllerContext(ledger, api, AtOnce(), leads=lambda: True))
    specs = [data["pod"]] if "pod" in data else data["pods"]
    pods = [_pod(spec, number) for number, spec in enumerate(specs)]
    if data.get("owner") and data.get("inheritOwnerAnnotations", True):
        ledger.intake.set_owner(_owner(data["owner"], pods))
    if data.get("existingGroup"):
        for pod in pods[:1]:
            _add_existing_group(data, pod, api, ledger)
    for pod in pods:
        if queue_name := queue_named_by(pod.metadata):
            ledger.intake.set_queue(queue(queue_name))
        ledger.pods.set_pod(pod)
        grouper.see_pod(pod)
    grouper.on_decisions(ledger.decisions)
    yield from _differences(case.expect, api.groups)


def _add_existing_group(data: CaseData, pod: Pod, api: _Groups, ledger: Ledger) -> None:
    """Add the existing group, with other numbers."""
    meta = {"name": auto_group_name(pod), "namespace": pod.metadata.namespace, "uid": "1"}
    references = [msgspec.to_builtins(reference) for reference in pod.metadata.owner_references or ()]
    group = {"metadata": {**meta, "ownerReferences": references}, "spec": dict(data["existingGroup"])}
    api.groups[meta["name"]] = group
    ledger.intake.set_group(msgspec.convert(group, PodGroup))


def _pod(data: CaseData, number: int) -> Pod:
    requests = {"containers": [{"resources": {"requests": data.get("requests") or {}}}]}
    metadata = {
        "name": data["name"],
        "namespace": data.get("namespace", "default"),
        "uid": data.get("uid", f"pod-{number}"),
        "labels": data.get("labels"),
        "annotations": data.get("annotations"),
        "ownerReferences": data.get("ownerReferences"),
    }
    spec = {
        **requests,
        "schedulerName": data.get("schedulerName", _SCHEDULER),
        "priorityClassName": data.get("priorityClassName", ""),
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, Pod)


def _owner(data: CaseData, pods: list[Pod]) -> Workload:
    namespace = pods[0].metadata.namespace if pods else "ns"
    fields = ("name", "uid", "annotations")
    metadata = {name: data[name] for name in fields if name in data} | {"namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": data.get("replicas")}}, Workload)


def _differences(expect: CaseData, created: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not expect.get("created", True):
        yield from unequal("created", False, bool(created))
        return
    yield from unequal("groups", expect.get("groups", 1), len(created))
    for group in list(created.values())[:1]:
        yield from _group_differences(expect, group)


def _group_differences(expect: CaseData, group: dict[str, Any]) -> Iterator[str]:
    meta, spec = group["metadata"], group["spec"]
    actual = {
        "name": meta["name"],
        "ownerReferences": meta.get("ownerReferences", []),
        "ownerReferencesCount": len(meta.get("ownerReferences", [])),
        "minMember": spec["minMember"],
        "queue": spec.get("queue", ""),
        "priorityClassName": spec.get("priorityClassName", ""),
        "phase": group.get("status", {}).get("phase", ""),
    }
    for name in actual.keys() & expect.keys():
        yield from unequal(name, expect[name], actual[name])
    for name in ("annotations", "labels"):
        present = meta.get(name) or {}
        yield from _differences_of_map(name, expect.get(name) or {}, present)
    for absent in expect.get("absentAnnotations") or ():
        yield from unequal(f"annotations[{absent}]", None, (meta.get("annotations") or {}).get(absent))
    yield from _amount_differences(expect, spec.get("minResources") or {})


def _differences_of_map(title: str, expected: CaseData, present: CaseData) -> Iterator[str]:
    for key, text in expected.items():
        yield from unequal(f"{title}[{key}]", text, present.get(key))


def _amount_differences(expect: CaseData, present: CaseData) -> Iterator[str]:
    exact = expect.get("minResources")
    if exact is not None:
        yield from unequal("minResources", sorted(exact), sorted(present))
    for name, amount in (exact or expect.get("minResourcesContains") or {}).items():
        yield from unequal(f"minResources[{name}]", _number(amount), _number(present.get(name, "0")))


def _number(quantity: str) -> int:
    return rounded_up(quantity, _MILLI)
