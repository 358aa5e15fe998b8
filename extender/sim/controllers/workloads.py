"""All workload controllers in one thread, and the garbage collector.

- Deleted objects are created again. Only Jobs replace ended pods.
- A new template replaces all pods at once.
- Pods are not compared if only a status may have changed.
- Pods that a ResourceQuota refused are created after other pods have ended or are deleted.

Statuses have the fields that kubectl shows and waits for, computed from the owned objects. Jobs of operators
get only the fields of their outcome in the table of kinds.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from extender.api.workloads.children import SHAPE_ERRORS, count_pods, is_job_suspended, kind_of
from extender.api.workloads.shape import JobOutcome, Path, outcome_of
from extender.apimachinery import kinds
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.objects import condition, find_stored_condition, now, set_condition
from extender.apimachinery.quotas import BeyondQuota, recount
from extender.apimachinery.service import Service
from extender.apimachinery.store import Change, StoreFollower, key_of
from extender.files.offspring import compare_offspring, ending_outcome, find_in_store, has_ended, owner_uid
from extender.sim.controllers.jobs import JobEndings, JobPods, count_ready, is_finished, job_status
from extender.terminal.text import counted

_PERIOD = 0.05  # seconds between two reconciliations, in which changes gather
_COMPONENT = "workload-controllers"  # the source of Events
# Kinds of owned objects, except the PodGroups that Muster makes.
_OWNED_KINDS = (*kinds.OPERATOR_KINDS, kinds.JOBS, kinds.REPLICA_SETS, kinds.PODS)


class RefusedOffspring(NamedTuple):
    """Refusal of a workload's next pod by the API server, with the numbers of existing and wanted pods."""

    workload: Json
    existing_count: int
    wanted_count: int
    reason: str

    def __str__(self) -> str:
        meta, kind = self.workload["metadata"], self.workload["kind"].lower()
        created = f"its controller has created {self.existing_count} of {counted(self.wanted_count, 'pod')}"
        return f"{meta['namespace']}/{kind}/{meta['name']}: {created}: {self.reason}"


class WorkloadControllers(StoreFollower):
    """Controllers of workloads.

    Attributes:
        refusal_by_uid: Refusals by UID of the workload, until all its objects exist.
        creation_lock: Held while children are created, by these controllers or together with their owner.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service.store, "controllers")
        self._service = service
        self._endings = JobEndings(service.store)
        self._find = find_in_store(service.store)
        self.refusal_by_uid: dict[str, RefusedOffspring] = {}
        self.creation_lock = threading.Lock()
        self._refusal_times: dict[str, float] = {}  # time of the last refusal, by UID of the topmost owner
        self._free_times: dict[str, float] = {}  # time of the last decrease of usage, by namespace

    def refusals(self) -> list[RefusedOffspring]:
        """Return one refusal for each topmost owner, which is the JobSet for the Jobs of a JobSet."""
        refusal_by_owner: dict[str, RefusedOffspring] = {}
        for refusal in [*self.refusal_by_uid.values()]:
            top = self._top(refusal.workload)
            if top is not refusal.workload and top["metadata"]["uid"] not in refusal_by_owner:
                pods = (self._top(pod) for pod in self._store.all(kinds.PODS))
                count = sum(other["metadata"]["uid"] == top["metadata"]["uid"] for other in pods)
                refusal = RefusedOffspring(top, count, count_pods(top), refusal.reason)
            refusal_by_owner.setdefault(top["metadata"]["uid"], refusal)
        return [*refusal_by_owner.values()]

    def was_refused_lately(self, uid: str, namespace: str) -> bool:
        """Return whether pods of a workload were refused since the namespace's usage last decreased."""
        return self._refusal_times.get(uid, 0.0) > self._free_times.get(namespace, 0.0)

    def _top(self, obj: Json) -> Json:
        """Return the topmost owner of an object, or the object itself."""
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        owner = next((owner for owner in owners if owner.get("controller")), None)
        kind = kinds.KIND_BY_NAME.get((owner["apiVersion"], owner["kind"])) if owner else None
        owner_object = self._store.get(kind, meta["namespace"], owner["name"]) if owner and kind else None
        return self._top(owner_object) if owner_object else obj

    def _list_all(self) -> int:
        version = self._store.version
        workloads = (obj for kind in kinds.WORKLOAD_KINDS for obj in self._store.all(kind))
        with self.creation_lock:
            self._reconcile({obj["metadata"]["uid"] for obj in workloads}, set())
        return version

    def _handle_changes(self, changes: Sequence[Change]) -> None:
        if changes:
            deleted_uids, uids_to_remake, uids_to_refresh = set[str](), set[str](), set[str]()
            for change in changes:
                self._endings.observe(change)
                uid, owner = change.object["metadata"]["uid"], owner_uid(change.object)
                if change.type == "DELETED":
                    deleted_uids.add(uid)
                    self.refusal_by_uid.pop(uid, None)
                    self._refusal_times.pop(uid, None)
                elif change.kind is kinds.EVENTS and change.object.get("reason") == "FailedCreate":
                    # Muster, which creates the pods of Volcano Jobs, writes this Event, too
                    self._refusal_times[change.object["involvedObject"].get("uid", "")] = time.monotonic()
                elif change.kind in kinds.WORKLOAD_KINDS:  # a status changes often
                    before = (change.old_object or {}).get("metadata", {}).get("generation")
                    if before != change.object["metadata"]["generation"]:
                        uids_to_remake.add(uid)
                (uids_to_remake if _is_leaving(change) else uids_to_refresh).add(owner)
            uids_to_remake |= self._recount_quotas(changes)
            collect(self._service, deleted_uids)
            with self.creation_lock:
                self._reconcile(uids_to_remake, uids_to_refresh)
            self._stop_event.wait(_PERIOD)

    def _recount_quotas(self, changes: Sequence[Change]) -> set[str]:
        """Count the usage of quotas again. Return the UIDs of the workloads that may create more pods now."""
        freeing_changes = [change for change in changes if _frees_quota(change)]
        namespaces = {change.object["metadata"]["namespace"] for change in freeing_changes}
        for change in freeing_changes:  # unbound pods do not count: a withdrawn start deletes them
            if change.kind is kinds.RESOURCE_QUOTAS or change.object["spec"].get("nodeName"):
                self._free_times[change.object["metadata"]["namespace"]] = time.monotonic()
        for namespace in namespaces:
            recount(self._store, namespace)
        refusals = self.refusal_by_uid.items()
        return {uid for uid, refusal in refusals if refusal.workload["metadata"]["namespace"] in namespaces}

    def _reconcile(self, uids_to_remake: set[str], uids_to_refresh: set[str]) -> None:
        """Create and delete the children of the workloads in `uids_to_remake`, and write changed statuses.

        Statuses are written for the workloads in both sets, and for their owners. The caller holds
        `creation_lock`.
        """
        objects_by_owner = defaultdict[str, list[Json]](list)  # existing objects, by UID of the owner
        for kind in _OWNED_KINDS:
            for obj in self._store.all(kind):
                if "deletionTimestamp" not in obj["metadata"]:
                    objects_by_owner[owner_uid(obj)].append(obj)
        uids_to_update = uids_to_remake | uids_to_refresh
        children = chain.from_iterable(objects_by_owner.values())
        owners = {owner_uid(obj) for obj in children if obj["metadata"]["uid"] in uids_to_update}
        for kind in kinds.WORKLOAD_KINDS:
            for obj in self._store.all(kind):
                uid = obj["metadata"]["uid"]
                with suppress(StatusError, *SHAPE_ERRORS):  # skip a deleted or malformed object
                    if uid in uids_to_remake:
                        self._remake(kind, obj, objects_by_owner[uid])
                    if uid in uids_to_update or uid in owners:
                        self._write_status(kind, obj, list(_ending_objects(objects_by_owner, uid)))

    # ---- children

    def _remake(self, kind: ResourceKind, obj: Json, owned: list[Json]) -> None:
        """Create the missing children of a workload, and remove surplus and outdated children."""
        self.refusal_by_uid.pop(obj["metadata"]["uid"], None)
        has_run = obj["kind"] == "CronJob" and "lastScheduleTime" in (obj.get("status") or {})
        if "deletionTimestamp" in obj["metadata"] or has_ended(obj) or has_run:  # it needs no children
            return
        job_pods = JobPods(obj, owned, self._endings) if kind is kinds.JOBS else None
        comparison = job_pods.compare() if job_pods else compare_offspring(obj, owned, self._find)
        existing_count = len(owned)
        try:
            for child in comparison.missing:
                child_kind = _kind(child)  # the PodGroup of an operator is made only once
                if child_kind is not kinds.POD_GROUPS or not self._store.get(child_kind, *key_of(child)):
                    self._service.create(child_kind, "", child)
                existing_count += 1
        except BeyondQuota as refusal:
            wanted_count = len(owned) + len(comparison.missing)
            self._record_refusal(RefusedOffspring(obj, existing_count, wanted_count, refusal.message))
        for child in comparison.surplus:
            self._remove(child)
        for child, template in comparison.retained:
            if _kind(child) is kinds.REPLICA_SETS:
                self._scale(child, template["spec"].get("replicas", 1))
            elif _revision(child) != _revision(template):
                self._remove(child)  # it is created again after its deletion

    def _record_refusal(self, refusal: RefusedOffspring) -> None:
        obj = refusal.workload
        self.refusal_by_uid[obj["metadata"]["uid"]] = refusal
        self._refusal_times[self._top(obj)["metadata"]["uid"]] = time.monotonic()
        message = f"Error creating: {refusal.reason}"
        self._service.record(obj, "Warning", "FailedCreate", "Creating", message, _COMPONENT)

    def _remove(self, child: Json) -> None:
        """Remove a child. An old ReplicaSet stays, but without pods."""
        if _kind(child) is kinds.REPLICA_SETS:
            return self._scale(child, 0)
        self._endings.record_deletion(child)
        self._service.delete_this(_kind(child), child["metadata"])

    def _scale(self, replica_set: Json, replicas: int) -> None:
        def change(before: Json) -> Json:
            spec = {**before["spec"], "replicas": replicas}
            return {**before, "metadata": {**before["metadata"]}, "spec": spec}

        meta = replica_set["metadata"]
        self._service.amend(kinds.REPLICA_SETS, meta["namespace"], meta["name"], change)

    def _write_status(self, kind: ResourceKind, obj: Json, owned: list[Json]) -> None:
        def new_status(before: Json) -> Json:
            if kind is kinds.JOBS:
                return job_status(before, JobPods(before, owned, self._endings))
            return (operator_status if kind in kinds.OPERATOR_KINDS else status_of)(before, owned)

        self._service.set_status(kind, obj["metadata"], new_status)


def _ending_objects(owned: Mapping[str, list[Json]], uid: str) -> Iterator[Json]:
    """Yield the owned objects that can end.

    A RayCluster never ends by itself, so this yields the objects that the RayCluster owns instead of it.
    """
    for obj in owned.get(uid, ()):
        row = kind_of(obj)
        if row is not None and row.manageable and not row.success:
            yield from _ending_objects(owned, obj["metadata"]["uid"])
        else:
            yield obj


def _is_leaving(change: Change) -> bool:
    """Return whether the object of a change has ended or is being deleted."""
    is_deleted = change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]
    return is_deleted or has_ended(change.object)


def _frees_quota(change: Change) -> bool:
    if change.kind is kinds.RESOURCE_QUOTAS:  # its status changes with each new pod
        return change.type == "DELETED" or (change.old_object or {}).get("spec") != change.object["spec"]
    return change.kind is kinds.PODS and _is_leaving(change)


def _kind(obj: Json) -> ResourceKind:
    return kinds.KIND_BY_NAME[obj["apiVersion"], obj["kind"]]


def _revision(obj: Json) -> str:
    return str((obj["metadata"].get("labels") or {}).get(REVISION, ""))


def collect(service: Service, deleted_uids: set[str]) -> None:
    """Delete objects whose owners have all been deleted.

    `deleted_uids` are the UIDs of the deleted owners.
    """
    namespaced_kinds = [kind for kind in kinds.KINDS if kind.namespaced] if deleted_uids else []
    for kind in namespaced_kinds:
        for obj in service.store.all(kind):
            owners = [owner.get("uid") for owner in obj["metadata"].get("ownerReferences") or ()]
            if owners and deleted_uids.issuperset(owners):
                with suppress(StatusError):
                    service.delete_this(kind, obj["metadata"])


# ---- statuses

_SUSPENDED, _RUNNING, _READY, _STARTING = "Suspended", "Running", "ready", ""


def operator_status(workload: Json, owned: list[Json]) -> Json:
    """Return the status that an operator would write. A finished workload keeps its status."""
    status: Json = {**(workload.get("status") or {})}
    row = kind_of(workload)
    if row is None or outcome_of(row, workload) is not None:
        return status
    outcomes = [ending_outcome(obj) for obj in owned]
    if not row.success:  # a RayCluster never ends by itself
        running_state = _READY if owned and count_ready(owned) == len(owned) else _STARTING
        status["state"] = _SUSPENDED.lower() if is_job_suspended(workload) else running_state
    elif outcomes and None not in outcomes:
        outcome_fields = (row.failure if JobOutcome.FAILED in outcomes else row.success)[0]
        if outcome_fields.condition:
            set_condition(status, condition(outcome_fields.condition, "True", outcome_fields.condition))
        for (_, *path), values in outcome_fields.fields.items():
            _set_nested(status, tuple(path), values[0])
    else:
        # A suspension is shown as a condition, also after the first resumption, or as a state.
        paused = is_job_suspended(workload)
        for _, *path in row.success[0].fields:
            _set_nested(status, tuple(path), _SUSPENDED if paused else _RUNNING)
        if row.success[0].condition and (paused or find_stored_condition({"status": status}, _SUSPENDED)):
            reason = _SUSPENDED if paused else "Resumed"
            set_condition(status, condition(_SUSPENDED, str(paused), reason))
    return status


def _set_nested(status: Json, path: Path, value: str) -> None:
    first, *rest = path
    if rest:
        status[first] = {**(status.get(first) or {})}
        return _set_nested(status[first], tuple(rest), value)
    status[first] = value
    return None


# ---- Kubernetes' own workloads

REVISION = "controller-revision-hash"


def _ready_fields(ready: int) -> Json:
    return {"readyReplicas": ready, "availableReplicas": ready}


def _deployment_status(workload: Json, replica_sets: list[Json]) -> Json:
    """Return the status of a Deployment: sums over its ReplicaSets.

    Only the current ReplicaSet is up to date.
    """
    newest_first = sorted(replica_sets, key=lambda obj: obj["metadata"]["creationTimestamp"], reverse=True)
    # Only the ReplicaSet of the current revision has pods. Without any pods, the newest is current.
    current = max(newest_first, key=lambda replica_set: replica_set["spec"].get("replicas", 1), default={})
    ready = sum(_number(replica_set, "readyReplicas") for replica_set in replica_sets)
    target = workload["spec"].get("replicas", 1)
    status: Json = {
        "observedGeneration": workload["metadata"]["generation"],
        "replicas": sum(_number(replica_set, "replicas") for replica_set in replica_sets),
        "updatedReplicas": _number(current, "replicas"),
        **_ready_fields(ready),
        "unavailableReplicas": max(target - ready, 0),
        "conditions": list((workload.get("status") or {}).get("conditions") or ()),
    }
    is_available = ready >= target
    reason = "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if is_available else 'does not have'} minimum availability."
    set_condition(status, condition("Available", str(is_available), reason, message))
    return status


def _number(obj: Json, field: str) -> int:
    number: int = (obj.get("status") or {}).get(field, 0)
    return number


def status_of(workload: Json, owned: list[Json]) -> Json:
    """Return the status of a workload. `owned` are its existing children."""
    status: Json = {**(workload.get("status") or {})}
    match workload["kind"]:
        case "CronJob":
            names = [job["metadata"]["name"] for job in owned if not is_finished(job)]
            last_run = status.get("lastScheduleTime")
            status |= {"lastScheduleTime": last_run or now()} if owned or last_run else {}
            return {**status, "active": [{"kind": "Job", "name": name} for name in names]}
        case "Deployment":
            return status | _deployment_status(workload, owned)
        case "StatefulSet":
            revisions = [(pod["metadata"].get("labels") or {}).get(REVISION, "") for pod in owned]
            status |= dict.fromkeys(("currentRevision", "updateRevision"), max(revisions, default=""))
            status |= dict.fromkeys(("currentReplicas", "updatedReplicas"), len(owned))
        case "ReplicaSet":
            status["fullyLabeledReplicas"] = len(owned)
    common_fields = {"observedGeneration": workload["metadata"]["generation"], "replicas": len(owned)}
    return {**status, **common_fields, **_ready_fields(count_ready(owned))}
