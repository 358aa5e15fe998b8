"""Writes and single reads of Muster, one small request each. All methods raise ApiError.

A request that names a pod or a group also names its UID. If the name belongs to a new object by now, the
request raises Conflict. Most answers to writes are not decoded, since the watch shows the results.
"""

from collections.abc import Mapping

import msgspec

from extender.api.keys import GATE, GROUP_ANNOTATION, LAST_COMMAND, NUDGE, POD_SCHEDULED
from extender.api.objects.base import Condition
from extender.api.objects.cluster import Event, Lease
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup, Queue
from extender.api.objects.volcano import CronJob, VolcanoJob
from extender.kube import resources
from extender.kube.access import AccessApi, right_to
from extender.kube.decoding import Identified, Page
from extender.kube.errors import Conflict, Forbidden, NotFound
from extender.kube.requests import APPLY, JSON_PATCH, STRATEGIC, Json, Requests, decode
from extender.kube.resources import Resource
from extender.telemetry import metrics

MARKERS_POLICY = "kube-muster-marks"
USES_POLICY = "kube-muster-uses"
AUTHORS_POLICIES = ("kube-muster-submitters", "kube-muster-authors")
_SMALL_PAGE = 25  # objects in one answer; an object may have more than a megabyte
_AS_QUEUE_CONTROLLER = {"fieldManager": "queue-controller", "force": "true"}
_DRY_RUN = {"dryRun": "All"}
_STATUS_STATES = {"Closed": "Closing"}  # first Closing, until Muster has checked that no groups are left


class ApiClient(Requests):
    """Typed requests over a Connection. Each `timeout` is in seconds."""

    def pod(self, namespace: str, name: str, timeout: float = 10) -> Pod:
        return self._get(resources.PODS.path(namespace, name), Pod, timeout)

    def pod_as_json(self, namespace: str, name: str) -> Json:
        """Return the pod with all fields, including fields that Muster does not know."""
        return self._get(resources.PODS.path(namespace, name), Json)

    def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        timeout: float = 10,
    ) -> None:
        """Bind a pod to a node, and write `annotations` to the pod with the binding.

        Raises:
            Conflict: The pod is bound already.
            NotFound: The pod is gone.
        """
        meta = {"name": name, "namespace": namespace, "uid": uid}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**meta, "annotations": dict(annotations)} if annotations else meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._post(resources.PODS.path(namespace, name, "binding"), binding, timeout)

    def evict(self, namespace: str, name: str, uid: str, max_grace: float | None = None) -> None:
        """Evict a pod.

        `max_grace` limits the grace period, in seconds; None means the grace period of the pod.

        Raises:
            TooManyRequests: A disruption budget forbids the eviction for now.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}, **self._grace(namespace, name, uid, max_grace)},
        }
        self._post(resources.PODS.path(namespace, name, "eviction"), eviction)

    def delete_pod(self, namespace: str, name: str, uid: str, max_grace: float | None = None) -> None:
        """Delete a pod, with the same limit of the grace period as `evict`, despite disruption budgets."""
        grace = self._grace(namespace, name, uid, max_grace) if max_grace is not None else {}
        self._delete(resources.PODS.path(namespace, name), uid, **grace)

    def _grace(self, namespace: str, name: str, uid: str, max_grace: float | None) -> Json:
        """Return the option that limits the grace period, if the pod's own grace period is longer.

        The UID is compared here first. If the precondition of an eviction fails, the API server repeats the
        check twenty times, for ten seconds, before it refuses the eviction.

        Raises:
            Conflict: The name belongs to another pod now.
        """
        pod = self.pod_as_json(namespace, name)
        meta, spec = pod["metadata"], pod["spec"]
        if meta["uid"] != uid:
            raise Conflict(409, "Conflict", f"{namespace}/{name} is a different pod now")
        pod_grace = meta.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 0))
        if max_grace is None or pod_grace <= max_grace:
            return {}
        return {"gracePeriodSeconds": max(int(max_grace), 1)}  # with 0, the API server skips the kubelet

    def set_disrupted(self, namespace: str, name: str, uid: str, condition: Condition) -> None:
        """Set the condition DisruptionTarget of a pod that is being evicted.

        Raises:
            NotFound: The pod is gone.
        """
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [msgspec.to_builtins(condition)]}}
        self._patch(resources.PODS.path(namespace, name, "status"), patch, patch_type=STRATEGIC)

    def open_gate(self, namespace: str, name: str, uid: str) -> None:
        """Remove Muster's scheduling gate from a pod, and no other gate.

        A pod without the gate stays as it is.
        """
        gates = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
        patch = {"metadata": {"uid": uid}, "spec": gates}
        self._patch(resources.PODS.path(namespace, name), patch, patch_type=STRATEGIC)
        metrics.gates_opened.inc()

    def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Write the planned node into the pod's status, where the scheduler looks for a nominated node."""
        patch = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
        self._patch(resources.PODS.path(namespace, name, "status"), patch)

    def set_unscheduled(
        self, namespace: str, name: str, uid: str, version: str, condition: dict[str, str], forgets_node: bool
    ) -> None:
        """Merge `condition` into the pod's condition PodScheduled.

        `forgets_node` means that the nominated node is removed, too.

        Raises:
            Conflict: The pod has another version now, for example because it is bound.
        """
        nomination = {"nominatedNodeName": None} if forgets_node else {}
        status = {"conditions": [{"type": POD_SCHEDULED, **condition}], **nomination}
        patch = {"metadata": {"uid": uid, "resourceVersion": version}, "status": status}
        self._patch(resources.PODS.path(namespace, name, "status"), patch, patch_type=STRATEGIC)

    def trigger_retry(self, namespace: str, name: str, uid: str, token: str) -> None:
        """Change a pod so that the scheduler tries it again. Each call needs a new `token`."""
        patch = {"metadata": {"uid": uid, "annotations": {NUDGE: token}}}
        self._patch(resources.PODS.path(namespace, name), patch)

    def annotate_with_group(self, namespace: str, name: str, uid: str, group: str) -> None:
        patch = {"metadata": {"uid": uid, "annotations": {GROUP_ANNOTATION: group}}}
        self._patch(resources.PODS.path(namespace, name), patch)

    def patch_queue(self, name: str, uid: str, patch: Json) -> None:
        """Merge `patch` into a Queue, except for its status."""
        self._patch(resources.QUEUES.path(name=name), _with_uid(patch, uid))

    def patch_queue_status(self, name: str, patch: Json) -> None:
        """Merge `patch` ({"status": …}) into a Queue through its status subresource."""
        self._patch(resources.QUEUES.path(name=name, subresource="status"), patch)

    def set_queue_status_state(self, name: str, uid: str, state: str, version: str | None = None) -> str:
        """Write status.state of a queue; return the new resourceVersion of the queue.

        The write uses the field manager of Volcano's queue controller. If Muster owned the field, that
        controller could never change it again.
        """
        meta = {"name": name, "uid": uid, **({"resourceVersion": version} if version else {})}
        kind = {"apiVersion": resources.QUEUES.version, "kind": "Queue"}
        patch = {**kind, "metadata": meta, "status": {"state": state}}
        path = resources.QUEUES.path(name=name, subresource="status")
        answer = self._patch(path, patch, patch_type=APPLY, query=_AS_QUEUE_CONTROLLER)
        return decode(answer, Queue, name).metadata.resource_version

    def patch_local_queue_status(self, namespace: str, name: str, patch: Json) -> None:
        """Merge `patch` ({"status": …}) into a LocalQueue through its status subresource."""
        self._patch(resources.LOCAL_QUEUES.path(namespace, name, "status"), patch)

    def set_queue_state(self, name: str, uid: str, state: str, command: str) -> None:
        """Write spec.state, and the UID of the Command that asked for the change.

        If the CRD drops spec.state, status.state is written instead. This happens first, because the Command
        counts as executed once its UID is recorded.
        """
        if not self.keeps_queue_state(name, uid, state):
            self.set_queue_status_state(name, uid, _STATUS_STATES.get(state, state))
        meta = {"annotations": {LAST_COMMAND: command}}
        self.patch_queue(name, uid, {"metadata": meta, "spec": {"state": state}})

    def keeps_queue_state(self, name: str, uid: str, state: str) -> bool:
        """Return whether the CRD keeps spec.state. Volcano's own CRD lacks the field."""
        patch = {"metadata": {"uid": uid}, "spec": {"state": state}}
        answer = self._patch(resources.QUEUES.path(name=name), patch, query=_DRY_RUN)
        return decode(answer, Queue, name).spec.state == state

    def create_queue(self, name: str, spec: Json, annotations: dict[str, str] | None = None) -> None:
        """Create a queue.

        Raises:
            Conflict: A queue of this name exists already.
        """
        metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
        queue = {"apiVersion": resources.QUEUES.version, "kind": "Queue", "metadata": metadata, "spec": spec}
        self._post(resources.QUEUES.path(), queue)

    def delete_queue(self, name: str, uid: str) -> None:
        self._delete(resources.QUEUES.path(name=name), uid)

    def queue_uid(self, name: str) -> str:
        return self._get(resources.QUEUES.path(name=name), Queue).metadata.uid

    def queue_uids(self) -> set[str]:
        queues = self._get(resources.QUEUES.path(), Page[Identified], 30).items or ()
        return {queue.metadata.uid for queue in queues}

    def lease(self, namespace: str, name: str, timeout: float = 10) -> Lease:
        return self._get(resources.LEASES.path(namespace, name), Lease, timeout)

    def enforces(self, policy: str, timeout: float = 10) -> bool:
        """Return whether the API server enforces an admission policy.

        An enforced policy exists, is bound for all objects, denies requests, and fails closed. The right to
        read the policy is granted together with the policy.
        """
        try:
            policy_spec, binding_spec = (
                self._get(kind.path(name=policy), Json, timeout).get("spec") or {}
                for kind in (resources.VALIDATING_POLICIES, resources.VALIDATING_BINDINGS)
            )
        except (NotFound, Forbidden):
            return False
        denies = "Deny" in binding_spec.get("validationActions", ())
        fails_closed = policy_spec.get("failurePolicy", "Fail") == "Fail"
        is_bound = binding_spec.get("policyName") == policy and "matchResources" not in binding_spec
        return denies and fails_closed and is_bound

    def patch_group(self, namespace: str, name: str, uid: str, patch: Json) -> PodGroup:
        """Merge `patch` ({"status": …}) into a PodGroup, which has no status subresource."""
        answer = self._patch(resources.POD_GROUPS.path(namespace, name), _with_uid(patch, uid))
        return decode(answer, PodGroup, name)

    def create_group(self, namespace: str, group: Json) -> None:
        """Create a PodGroup.

        Raises:
            Conflict: A PodGroup of this name exists already.
        """
        self._post(resources.POD_GROUPS.path(namespace), group)

    def record_on_group(
        self, kind: Resource, namespace: str, name: str, uid: str, annotations: dict[str, str | None]
    ) -> None:
        """Write annotations on a group whose status has another owner; None removes an annotation."""
        patch = {"metadata": {"uid": uid, "annotations": annotations}}
        self._patch(kind.path(namespace, name), patch)

    def set_group_condition(
        self, kind: Resource, namespace: str, name: str, uid: str, condition: dict[str, str]
    ) -> None:
        """Merge a condition into the status of a PodGroup or CompositePodGroup of Kubernetes' own API."""
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        self._patch(kind.path(namespace, name, "status"), patch, patch_type=STRATEGIC)

    def has_right(self, verb: str, resource: Resource) -> bool:
        """Return whether Muster has a right in all namespaces. All users may check their own rights."""
        return AccessApi(self._connection).has_own_right(right_to(verb, resource))

    def serves(self, resource: Resource, timeout: float = 10) -> bool:
        """Return whether the API server serves a resource."""
        try:
            served_kinds = self._get(resource.root, Json, timeout).get("resources") or ()
        except NotFound:
            return False
        return resource.plural in {entry["name"] for entry in served_kinds}

    def create_event(self, event: Json) -> None:
        """Create an Event.

        Raises:
            Conflict: An Event of this name exists already.
        """
        self._post(resources.EVENTS.path(event["metadata"]["namespace"]), event)

    def warnings(self, namespace: str, fields: str, max_count: int = 200) -> list[Event]:
        """Return the Events of type Warning that match these field selectors, about `max_count` at most.

        Events are read in small pages, since a tenant may write Events as large as the API server accepts.
        """
        events, query = list[Event](), {"fieldSelector": f"type=Warning,{fields}", "limit": str(_SMALL_PAGE)}
        while len(events) < max_count:
            page = self._get(resources.EVENTS.path(namespace), Page[Event], query=query)
            events += page.items or ()
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        return events

    def patch_event(self, namespace: str, name: str, patch: Json) -> None:
        """Patch an Event.

        Raises:
            NotFound: The Event has expired, an hour after it was last written.
        """
        self._patch(resources.EVENTS.path(namespace, name), patch)

    def delete_group(self, namespace: str, name: str, uid: str) -> None:
        self._delete(resources.POD_GROUPS.path(namespace, name), uid)

    def create_provisioning_request(self, namespace: str, request: Json) -> str:
        """Create a ProvisioningRequest, or find the existing request of this name; return its UID."""
        try:
            answer = self._post(resources.PROVISIONING_REQUESTS.path(namespace), request)
        except Conflict:
            path = resources.PROVISIONING_REQUESTS.path(namespace, request["metadata"]["name"])
            return self._get(path, Identified).metadata.uid
        return decode(answer, Identified, "a ProvisioningRequest").metadata.uid

    def delete_provisioning_request(self, namespace: str, name: str, uid: str) -> None:
        self._delete(resources.PROVISIONING_REQUESTS.path(namespace, name), uid)

    def create_owned(self, kind: Resource, namespace: str, obj: Json, owner: str) -> Json:
        """Create an object of an owner, and return the object.

        `owner` is the UID of the owner. If the owner has an object of this name already, return that object.

        Raises:
            Conflict: The existing object of this name has another owner.
        """
        try:
            return decode(self._post(kind.path(namespace), obj), Json, kind.plural)
        except Conflict:
            existing = self._get(kind.path(namespace, obj["metadata"]["name"]), Json)
            owners = existing["metadata"].get("ownerReferences") or ()
            if all(reference["uid"] != owner for reference in owners):
                raise
            return existing

    def job(self, kind: Resource, namespace: str, name: str) -> Json:
        """Return a job of any kind, with all fields."""
        return self._get(kind.path(namespace, name), Json)

    def patch_job(self, kind: Resource, namespace: str, name: str, changes: list[Json]) -> None:
        """Change a job by a JSON patch.

        Raises:
            Invalid: A test in the patch fails.
        """
        self._patch(kind.path(namespace, name), changes, patch_type=JSON_PATCH)

    def merge_job(self, kind: Resource, namespace: str, name: str, patch: Json) -> None:
        """Change a job by a merge patch.

        Raises:
            Conflict: The job has another UID or version than the patch.
        """
        self._patch(kind.path(namespace, name), patch)

    def patch_volcano_job_status(self, namespace: str, name: str, patch: Json) -> VolcanoJob:
        """Merge `patch` into the status of a job.

        Raises:
            Conflict: The job has another UID or version than the patch.
        """
        path = resources.VOLCANO_JOBS.path(namespace, name, "status")
        return decode(self._patch(path, patch), VolcanoJob, name)

    def patch_cron_job_status(self, namespace: str, name: str, patch: Json) -> CronJob:
        """Merge `patch` into the status of a CronJob.

        Raises:
            Conflict: The CronJob has another UID or version than the patch.
        """
        path = resources.VOLCANO_CRON_JOBS.path(namespace, name, "status")
        return decode(self._patch(path, patch), CronJob, name)

    def delete_volcano_job(self, namespace: str, name: str, uid: str) -> None:
        """Delete a Volcano Job; the garbage collector then deletes the objects that it owns."""
        path = resources.VOLCANO_JOBS.path(namespace, name)
        self._delete(path, uid, propagationPolicy="Background")

    def create_secret(self, namespace: str, secret: Json) -> None:
        """Create a Secret.

        Raises:
            Conflict: A Secret of this name exists already.
        """
        self._post(resources.SECRETS.path(namespace), secret)

    def claim_owners(self, namespace: str, name: str) -> set[str]:
        """Return the UIDs of the owners of a PersistentVolumeClaim.

        Raises:
            NotFound: The claim does not exist.
        """
        claim = self._get(resources.VOLUME_CLAIMS.path(namespace, name), Json)
        return {reference["uid"] for reference in claim["metadata"].get("ownerReferences") or ()}

    def create_command(self, namespace: str, command: Json) -> None:
        self._post(resources.COMMANDS.path(namespace), command)

    def delete_command(self, namespace: str, name: str, uid: str) -> None:
        self._delete(resources.COMMANDS.path(namespace, name), uid)


def _with_uid(patch: Json, uid: str) -> Json:
    """Return a patch that is valid only for the object with this UID."""
    return {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
