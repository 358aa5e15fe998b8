"""Kinds `admission.*`: a case as the AdmissionReview that an API server would send, put to the reviewer."""

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
from extender.webhooks.latest import Latest, Sources
from extender.webhooks.reviews import Reviewer
from extender.webhooks.rules import AdmissionRules
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import SOMEWHERE
from tests.domain.builders import pod

Json = dict[str, Any]
_SCHEDULERS = frozenset({"volcano"})
_BATCH = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
_DEPTH = 5


def check_queue(case: Case) -> Iterator[str]:
    given, stored = case.input, queue_object(case.input.get("object"))
    if given.get("options", {}).get("withSchema") and _operation(case) == "CREATE":
        stored = _patched(stored, _patch(_ask("/queues/mutate", case, stored)))
    answer = _ask("/queues/validate", case, stored, queue_object(given.get("oldObject")))
    yield from _verdict(case, answer)
    for field, value in (case.expect.get("stored") or {}).items():
        yield from unequal(f"stored {field}", value, stored.get("spec", {}).get(field))


def check_queue_defaults(case: Case) -> Iterator[str]:
    yield from _defaults(case, _ask("/queues/mutate", case, queue_object(case.input["object"])))


def check_group(case: Case) -> Iterator[str]:
    yield from _verdict(case, _ask("/podgroups/validate", case, _group(case.input["object"])))


def check_group_defaults(case: Case) -> Iterator[str]:
    yield from _defaults(case, _ask("/podgroups/mutate", case, _group(case.input["object"])))


def check_job(case: Case) -> Iterator[str]:
    before = _job(case.input.get("object") or case.input.get("oldObject") or {})
    thing = _changed(before, case.input.get("change") or {})
    yield from _verdict(case, _ask("/jobs/validate", case, thing, before))


def _job(given: Mapping[str, Any]) -> Json:
    tasks = [
        {**task, "dependsOn": {"name": task["dependsOn"]}} if task.get("dependsOn") else task
        for task in given.get("tasks") or ()
    ]
    meta = {"name": given.get("name", "job"), "namespace": "ns"}
    return {"metadata": meta, "spec": {**given, "tasks": tasks}}


def _changed(job: Json, change: Mapping[str, Any]) -> Json:
    spec = job["spec"]
    replicas = {"replicas": change["replicas"]} if change.get("replicas") is not None else {}
    renamed = {"name": "renamed"} if change.get("renameTask") else {}
    tasks = [{**task, **replicas, **renamed} for task in spec["tasks"]]
    tasks += [{"name": "added", "replicas": 1}] if change.get("addTask") else []
    least = {"minAvailable": change["minAvailable"]} if change.get("minAvailable") is not None else {}
    more = {"maxRetry": 7} if change.get("changeOtherSpec") else {}
    return {**job, "spec": {**spec, "tasks": tasks, **least, **more}}


def check_pod(case: Case) -> Iterator[str]:
    given = case.input["object"]
    meta = {key: given[key] for key in ("name", "namespace", "annotations", "labels") if key in given}
    thing = {"metadata": meta, "spec": {"schedulerName": given.get("schedulerName", "volcano")}}
    yield from _verdict(case, _ask("/pods/validate", case, thing))


# ---- the objects of a case


def queue_object(given: Mapping[str, Any] | None) -> Json:
    if given is None:
        return {}
    meta = {key: given[key] for key in ("name", "annotations") if key in given}
    same = ("weight", "capability", "deserved", "reclaimable", "parent")
    spec = {key: given[key] for key in same if key in given}
    if "guarantee" in given:
        spec["guarantee"] = {"resource": given["guarantee"]}
    return {"metadata": meta, "spec": spec, "status": {"state": given.get("state", "")}}


def _group(given: Mapping[str, Any]) -> Json:
    meta = {"name": given.get("name", "pg"), "namespace": given.get("namespace", "ns")}
    return {"metadata": meta, "spec": given.get("spec", {})}


# ---- asking


def _ask(path: str, case: Case, thing: Json, before: Json | None = None) -> Json:
    given = case.input
    request = {
        "uid": "u",
        "operation": _operation(case),
        "kind": _BATCH,
        "name": given.get("requestName", ""),
        "namespace": thing.get("metadata", {}).get("namespace", ""),
        "object": thing or None,
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
    for each in case.input.get("existingQueues") or ():
        _put(ledger, each)
    for name, value in case.input.get("namespaceAnnotations", {}).items():
        _annotate(ledger, _group(case.input["object"])["metadata"]["namespace"], name, value)
    ledger.snapshot()
    depth = case.input.get("options", {}).get("maxQueueDepth", _DEPTH)
    latest = partial(Latest, ledger, Sources(*[lambda name, timeout: None] * 3))
    rules = AdmissionRules(
        ledger, latest, lambda subject, queue, timeout: True, tuple(_SCHEDULERS), depth, lambda: True
    )
    return Reviewer(rules.paths(), synced=lambda: True)


def _put(ledger: Ledger, given: Mapping[str, Any]) -> None:
    """Add a queue and its allocated amount, as pods that run in it."""
    ledger.intake.set_queue(msgspec.convert(queue_object(given), Queue))
    for number in range(int((given.get("allocated") or {}).get("pods", 0))):
        name = f"{given['name']}-{number}"
        ledger.pods.set(pod(name, queue=given["name"], on=SOMEWHERE, scheduler="volcano"))


def _annotate(ledger: Ledger, namespace: str, name: str, value: str) -> None:
    ledger.intake.set_namespace(Namespace(Meta(name=namespace, annotations={name: value})))


# ---- judging


def _verdict(case: Case, answer: Json) -> Iterator[str]:
    yield from unequal("allowed", case.expect["allowed"], answer["allowed"])
    if "reason" in case.expect:
        wanted = case.expect["reason"] or []
        yield from unequal("reason", {wanted} if isinstance(wanted, str) else set(wanted), _reasons(answer))


def _reasons(answer: Json) -> set[str]:
    """Return the codes of all faults, in the spelling of the cases."""
    causes = answer.get("status", {}).get("details", {}).get("causes", [])
    return {re.sub(r"(?<!^)(?=[A-Z])", "-", cause["reason"]).lower() for cause in causes}


def _defaults(case: Case, answer: Json) -> Iterator[str]:
    if "reason" in case.expect:
        yield from _verdict(case, answer)
    else:
        own = ("/spec/state",)  # Volcano's queues have none in their spec
        of_volcano = [
            each
            for each in _patch(answer)
            if keys.SUBMITTER not in str(each["value"]) and each["path"] not in own
        ]
        yield from unequal("patch", case.expect["patch"], of_volcano)


def _patch(answer: Json) -> list[Json]:
    found: list[Json] = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    return found


def _patched(thing: Json, patch: list[Json]) -> Json:
    """Apply a patch that has only `add` of a field at any depth, as defaults are."""
    made: Json = json.loads(json.dumps(thing))
    for operation in patch:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        at = made
        for step in way:
            at = at[step]
        at[last] = operation["value"]
    return made
