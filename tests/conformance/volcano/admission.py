"""Kinds `admission.*`: a case is reviewed as the AdmissionReview that an API server would send."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import Queue
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.webhooks.lookups import LatestQueues, Sources
from extender.webhooks.reviews import Reviewer
from extender.webhooks.rules import AdmissionRules
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import UNLISTED_NODE
from tests.domain.builders import pod

Json = dict[str, Any]
_SCHEDULERS = frozenset({"volcano"})
_BATCH = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
_DEPTH = 5


def check_queue(case: Case) -> Iterator[str]:
    data, stored = case.input, queue_object(case.input.get("object"))
    if data.get("options", {}).get("withSchema") and _operation(case) == "CREATE":
        stored = _patched(stored, _patch(_review("/queues/mutate", case, stored)))
    answer = _review("/queues/validate", case, stored, queue_object(data.get("oldObject")))
    yield from _verdict_differences(case, answer)
    for field, value in (case.expect.get("stored") or {}).items():
        yield from unequal(f"stored {field}", value, stored.get("spec", {}).get(field))


def check_queue_defaults(case: Case) -> Iterator[str]:
    yield from _default_differences(case, _review("/queues/mutate", case, queue_object(case.input["object"])))


def check_group(case: Case) -> Iterator[str]:
    yield from _verdict_differences(case, _review("/podgroups/validate", case, _group(case.input["object"])))


def check_group_defaults(case: Case) -> Iterator[str]:
    yield from _default_differences(case, _review("/podgroups/mutate", case, _group(case.input["object"])))


def check_job(case: Case) -> Iterator[str]:
    before = _job(case.input.get("object") or case.input.get("oldObject") or {})
    changed = _changed_job(before, case.input.get("change") or {})
    yield from _verdict_differences(case, _review("/jobs/validate", case, changed, before))


def _job(data: Mapping[str, Any]) -> Json:
    tasks = [
        {**task, "dependsOn": {"name": task["dependsOn"]}} if task.get("dependsOn") else task
        for task in data.get("tasks") or ()
    ]
    meta = {"name": data.get("name", "job"), "namespace": "ns"}
    return {"metadata": meta, "spec": {**data, "tasks": tasks}}


def _changed_job(job: Json, change: Mapping[str, Any]) -> Json:
    spec = job["spec"]
    replicas = {"replicas": change["replicas"]} if change.get("replicas") is not None else {}
    renamed = {"name": "renamed"} if change.get("renameTask") else {}
    tasks = [{**task, **replicas, **renamed} for task in spec["tasks"]]
    tasks += [{"name": "added", "replicas": 1}] if change.get("addTask") else []
    minimum = {"minAvailable": change["minAvailable"]} if change.get("minAvailable") is not None else {}
    other_fields = {"maxRetry": 7} if change.get("changeOtherSpec") else {}
    return {**job, "spec": {**spec, "tasks": tasks, **minimum, **other_fields}}


def check_pod(case: Case) -> Iterator[str]:
    data = case.input["object"]
    meta = {key: data[key] for key in ("name", "namespace", "annotations", "labels") if key in data}
    obj = {"metadata": meta, "spec": {"schedulerName": data.get("schedulerName", "volcano")}}
    yield from _verdict_differences(case, _review("/pods/validate", case, obj))


# ---- the objects of a case


def queue_object(data: Mapping[str, Any] | None) -> Json:
    if data is None:
        return {}
    meta = {key: data[key] for key in ("name", "annotations") if key in data}
    copied_fields = ("weight", "capability", "deserved", "reclaimable", "parent")
    spec = {key: data[key] for key in copied_fields if key in data}
    if "guarantee" in data:
        spec["guarantee"] = {"resource": data["guarantee"]}
    return {"metadata": meta, "spec": spec, "status": {"state": data.get("state", "")}}


def _group(data: Mapping[str, Any]) -> Json:
    meta = {"name": data.get("name", "pg"), "namespace": data.get("namespace", "ns")}
    return {"metadata": meta, "spec": data.get("spec", {})}


# ---- reviews


def _review(path: str, case: Case, obj: Json, before: Json | None = None) -> Json:
    data = case.input
    request = {
        "uid": "u",
        "operation": _operation(case),
        "kind": _BATCH,
        "name": data.get("requestName", ""),
        "namespace": obj.get("metadata", {}).get("namespace", ""),
        "object": obj or None,
        "oldObject": before or None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = _reviewer(case).answer(path, json.dumps(review).encode())
    response: Json = json.loads(answer)["response"]
    return response


def _operation(case: Case) -> str:
    return str(case.input.get("operation", "CREATE"))


def _reviewer(case: Case) -> Reviewer:
    ledger = Ledger(Ownership(_SCHEDULERS))
    for data in case.input.get("existingQueues") or ():
        _add_queue(ledger, data)
    for name, value in case.input.get("namespaceAnnotations", {}).items():
        _annotate(ledger, _group(case.input["object"])["metadata"]["namespace"], name, value)
    ledger.snapshot()
    depth = case.input.get("options", {}).get("maxQueueDepth", _DEPTH)
    latest = partial(LatestQueues, ledger, Sources(*[lambda name, timeout: None] * 3))
    rules = AdmissionRules(
        ledger, latest, lambda subject, queue, timeout: True, tuple(_SCHEDULERS), depth, lambda: True
    )
    return Reviewer(rules.paths(), is_synced=lambda: True)


def _add_queue(ledger: Ledger, data: Mapping[str, Any]) -> None:
    """Add a queue and its allocated amount, as pods that run in it."""
    ledger.intake.set_queue(msgspec.convert(queue_object(data), Queue))
    for number in range(int((data.get("allocated") or {}).get("pods", 0))):
        name = f"{data['name']}-{number}"
        ledger.pods.set_pod(pod(name, queue=data["name"], on=UNLISTED_NODE, scheduler="volcano"))


def _annotate(ledger: Ledger, namespace: str, name: str, value: str) -> None:
    ledger.intake.set_namespace(Namespace(Meta(name=namespace, annotations={name: value})))


# ---- comparison of answers


def _verdict_differences(case: Case, answer: Json) -> Iterator[str]:
    yield from unequal("allowed", case.expect["allowed"], answer["allowed"])
    if "reason" in case.expect:
        expected = case.expect["reason"] or []
        yield from unequal(
            "reason", {expected} if isinstance(expected, str) else set(expected), _reasons(answer)
        )


def _reasons(answer: Json) -> set[str]:
    """Return the codes of all faults, in the spelling of the cases."""
    causes = answer.get("status", {}).get("details", {}).get("causes", [])
    return {re.sub(r"(?<!^)(?=[A-Z])", "-", cause["reason"]).lower() for cause in causes}


def _default_differences(case: Case, answer: Json) -> Iterator[str]:
    if "reason" in case.expect:
        yield from _verdict_differences(case, answer)
    else:
        ignored_paths = ("/spec/state",)  # Volcano's queues have none in their spec
        operations = [
            operation
            for operation in _patch(answer)
            if keys.SUBMITTER not in str(operation["value"]) and operation["path"] not in ignored_paths
        ]
        yield from unequal("patch", case.expect["patch"], operations)


def _patch(answer: Json) -> list[Json]:
    operations: list[Json] = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    return operations


def _patched(obj: Json, patch: list[Json]) -> Json:
    """Apply a patch that has only `add` of a field at any depth, as defaults are."""
    patched: Json = json.loads(json.dumps(obj))
    for operation in patch:
        *steps, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        parent = patched
        for step in steps:
            parent = parent[step]
        parent[last] = operation["value"]
    return patched
