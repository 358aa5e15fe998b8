"""The writes and single reads that Muster makes, one small request each. All raise ApiError.

A request that names a pod or a group also names its UID: if the object was deleted and created again under
the same name, the request raises Conflict instead of changing the new object. Most answers to writes are not
decoded: the watch brings the results.
"""

from typing import Any

import msgspec

from extender.api.objects.base import Meta, Wire
from extender.api.objects.cluster import Lease
from extender.api.objects.groups import PodGroup
from extender.kube.admission import AccessReview
from extender.kube.errors import Conflict, Forbidden, NotFound
from extender.kube.events import Identified
from extender.kube.pod_calls import PodCalls
from extender.kube.queue_calls import QueueCalls
from extender.kube.requests import JSON_PATCH, decoded
from extender.kube.resources import (
    COMMANDS,
    EVENTS,
    LEASES,
    POD_GROUPS,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    SELF_ACCESS_REVIEWS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    Resource,
)


class _Served(msgspec.Struct):
    """A resource in an answer of the discovery API."""

    name: str


class _ServedList(msgspec.Struct):
    resources: list[_Served] = []


class _Owned(Wire, frozen=True):
    metadata: Meta


class _PolicySpec(Wire, frozen=True):
    failure_policy: str = "Fail"


class _Policy(Wire, frozen=True):
    spec: _PolicySpec = _PolicySpec()


class _PolicyBindingSpec(Wire, frozen=True):
    policy_name: str = ""
    validation_actions: list[str] | None = None
    match_resources: msgspec.Raw = msgspec.Raw()


class _PolicyBinding(Wire, frozen=True):
    spec: _PolicyBindingSpec = _PolicyBindingSpec()


MARKS_POLICY = "kube-muster-marks"


class ApiClient(PodCalls, QueueCalls):
    """Typed requests over a Connection. `timeout` is always in seconds."""

    def lease(self, namespace: str, name: str, timeout: float = 10) -> Lease:
        return self._get(LEASES.path(namespace, name), Lease, timeout)

    def keeps_marks(self, timeout: float = 10) -> bool:
        """Whether the API server lets only Muster write its marks on PodGroups: the policy exists, is bound
        for all PodGroups, and denies. The right to read the policy is granted together with it."""
        try:
            policy = self._get(VALIDATING_POLICIES.path(name=MARKS_POLICY), _Policy, timeout).spec
            bound = self._get(VALIDATING_BINDINGS.path(name=MARKS_POLICY), _PolicyBinding, timeout).spec
        except (NotFound, Forbidden):
            return False
        refuses = policy.failure_policy == "Fail" and "Deny" in (bound.validation_actions or ())
        return refuses and bound.policy_name == MARKS_POLICY and not bytes(bound.match_resources)

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        """Merge `patch` ({"status": …}) into a PodGroup, which has no status subresource. Returns the
        result."""
        guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        answer = self._patch(POD_GROUPS.path(namespace, name), guarded, timeout)
        return decoded(answer, PodGroup, name)

    def create_group(self, namespace: str, group: dict[str, Any], timeout: float = 10) -> None:
        """Raises Conflict if a PodGroup of this name exists already."""
        self._post(POD_GROUPS.path(namespace), group, timeout)

    def note_on_group(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        uid: str,
        notes: dict[str, str | None],
        timeout: float = 10,
    ) -> None:
        """Write annotations on a group whose status another controller writes; None removes one."""
        patch = {"metadata": {"uid": uid, "annotations": notes}}
        self._patch(kind.path(namespace, name), patch, timeout)

    def may(self, verb: str, resource: Resource, timeout: float = 10) -> bool:
        """Whether Muster has the right in all namespaces. Everybody may ask that of themselves."""
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural}
        review = {
            "apiVersion": SELF_ACCESS_REVIEWS.version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        answer = self._post(SELF_ACCESS_REVIEWS.path(), review, timeout)
        return decoded(answer, AccessReview, "an access review").status.allowed

    def serves(self, resource: Resource, timeout: float = 10) -> bool:
        """Whether the API server has a resource."""
        try:
            return resource.plural in {
                each.name for each in self._get(resource.root, _ServedList, timeout).resources
            }
        except NotFound:
            return False

    def create_event(self, event: dict[str, Any], timeout: float = 10) -> None:
        """Raises Conflict if an event of this name exists already."""
        self._post(EVENTS.path(event["metadata"]["namespace"]), event, timeout)

    def patch_event(self, namespace: str, name: str, patch: dict[str, Any], timeout: float = 10) -> None:
        """Raises NotFound if the event has expired, an hour after it was last written."""
        self._patch(EVENTS.path(namespace, name), patch, timeout)

    def delete_group(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._delete(POD_GROUPS.path(namespace, name), uid, timeout)

    def create_provisioning_request(
        self, namespace: str, request: dict[str, Any], timeout: float = 10
    ) -> str:
        """Returns its UID, also if one of this name exists already."""
        try:
            answer = self._post(PROVISIONING_REQUESTS.path(namespace), request, timeout)
        except Conflict:
            path = PROVISIONING_REQUESTS.path(namespace, request["metadata"]["name"])
            return self._get(path, Identified, timeout).metadata.uid
        return decoded(answer, Identified, "a ProvisioningRequest").metadata.uid

    def delete_provisioning_request(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._delete(PROVISIONING_REQUESTS.path(namespace, name), uid, timeout)

    def create_pod_template(
        self, namespace: str, template: dict[str, Any], owner: str, timeout: float = 10
    ) -> None:
        """Nothing is done if this owner, a UID, has one of this name already. Raises Conflict if another
        has."""
        try:
            self._post(POD_TEMPLATES.path(namespace), template, timeout)
        except Conflict:
            path = POD_TEMPLATES.path(namespace, template["metadata"]["name"])
            owners = self._get(path, _Owned, timeout).metadata.owner_references or ()
            if all(each.uid != owner for each in owners):
                raise

    def job(self, kind: Resource, namespace: str, name: str, timeout: float = 10) -> dict[str, Any]:
        """A job of any kind, with all fields."""
        return self._get(kind.path(namespace, name), dict[str, Any], timeout)

    def patch_job(
        self, kind: Resource, namespace: str, name: str, changes: list[dict[str, Any]], timeout: float = 10
    ) -> None:
        """A JSON patch. Raises Invalid if one of its tests fails."""
        self._patch(kind.path(namespace, name), changes, timeout, JSON_PATCH)

    def merge_job(
        self, kind: Resource, namespace: str, name: str, patch: dict[str, Any], timeout: float = 10
    ) -> None:
        """A merge patch. Raises Conflict if it names another UID or version than the job has."""
        self._patch(kind.path(namespace, name), patch, timeout)

    def delete_command(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._delete(COMMANDS.path(namespace, name), uid, timeout)
