"""API client that records every call, and fails the calls that a test chooses."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from extender.api.objects.base import Condition, Meta
from extender.api.objects.cluster import Event, Lease, LeaseSpec
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, NotFound
from extender.kube.resources import Resource

Call = tuple[Any, ...]  # the verb, the object's name, and further arguments


class Api(ApiClient):
    """API client that records its requests.

    `calls`: the requests, in order. The errors given to `fail` are raised before a request has an effect.
    `patched` is called with each patch of a PodGroup.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: defaultdict[str, deque[ApiError]] = defaultdict(deque)
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[Event]] = {}  # by field selectors
        self.spec: LeaseSpec | None = None
        self.enforced: set[str] = set()
        self.patched: Callable[[str, dict[str, Any]], PodGroup] = lambda name, patch: PodGroup(
            Meta(name=name)
        )

    def fail(self, verb: str, *faults: ApiError) -> None:
        self.faults[verb].extend(faults)

    def done(self, verb: str) -> list[Call]:
        """Return the arguments of the requests with one verb."""
        return [call[1:] for call in self.calls if call[0] == verb]

    def _record(self, verb: str, name: str, *more: Any) -> None:
        self.calls.append((verb, name, *more))
        if self.faults[verb]:
            raise self.faults[verb].popleft()

    def pod(self, namespace: str, name: str, timeout: float = 10) -> Pod:
        self._record("pod", name)
        if name not in self.pods:
            raise NotFound(404, "NotFound")
        return self.pods[name]

    def lease(self, namespace: str, name: str, timeout: float = 10) -> Lease:
        self._record("lease", f"{namespace}/{name}")
        if self.spec is None:
            raise NotFound(404, "NotFound")
        return Lease(Meta(name=name, namespace=namespace), self.spec)

    def enforces(self, policy: str, timeout: float = 10) -> bool:
        self._record("policy", policy)
        return policy in self.enforced

    def patch_queue_status(self, name: str, patch: dict[str, Any], timeout: float = 10) -> None:
        self._record("queue-status", name, patch)

    def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        timeout: float = 10,
    ) -> None:
        self._record("bind", name, node)

    def evict(self, namespace: str, name: str, uid: str, max_grace: float | None = None) -> None:
        self._record("evict", name, *([] if max_grace is None else [max_grace]))

    def delete_pod(self, namespace: str, name: str, uid: str, max_grace: float | None = None) -> None:
        self._record("delete", name, max_grace)

    def set_disrupted(
        self, namespace: str, name: str, uid: str, condition: Condition, timeout: float = 10
    ) -> None:
        self._record("disrupted", name, condition)

    def open_gate(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._record("open", name)

    def nominate(self, namespace: str, name: str, uid: str, node: str, timeout: float = 10) -> None:
        self._record("nominate", name, node)

    def set_unscheduled(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        condition: dict[str, str],
        forget_node: bool,
        timeout: float = 10,
    ) -> None:
        self._record("unscheduled", name, condition, forget_node)

    def trigger_retry(self, namespace: str, name: str, uid: str, token: str, timeout: float = 10) -> None:
        self._record("trigger_retry", name, token)

    def patch_group(
        self, namespace: str, name: str, uid: str, patch: dict[str, Any], timeout: float = 10
    ) -> PodGroup:
        self._record("patch", name, patch)
        return self.patched(name, patch)

    def create_group(self, namespace: str, group: dict[str, Any], timeout: float = 10) -> None:
        self._record("create group", group["metadata"]["name"], group)

    def delete_group(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._record("delete group", name, uid)

    def annotate_with_group(
        self, namespace: str, name: str, uid: str, group: str, timeout: float = 10
    ) -> None:
        self._record("name group", name, group)

    def record_on_group(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        uid: str,
        notes: dict[str, str | None],
        timeout: float = 10,
    ) -> None:
        self._record("note on group", name, (kind, notes))

    def set_group_condition(
        self, kind: Resource, namespace: str, name: str, uid: str, condition: dict[str, str]
    ) -> None:
        self._record("group condition", name, condition)

    def pod_as_json(self, namespace: str, name: str, timeout: float = 10) -> dict[str, Any]:
        self._record("whole pod", name)
        return {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [], "nodeName": ""},
        }

    def create_provisioning_request(
        self, namespace: str, request: dict[str, Any], timeout: float = 10
    ) -> str:
        self._record("request nodes", request["metadata"]["name"], request)
        return f"uid-{request['metadata']['name']}"

    def delete_provisioning_request(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._record("withdraw request", name, uid)

    def create_owned(self, kind: Resource, namespace: str, obj: dict[str, Any], owner: str) -> dict[str, Any]:
        self._record(f"create {kind.plural}", obj["metadata"]["name"], obj)
        return obj

    def warnings(self, namespace: str, fields: str, max_count: int = 200) -> list[Event]:
        self._record("warnings", fields)
        return list(self.events.get(fields, ()))

    def job(self, kind: Resource, namespace: str, name: str, timeout: float = 10) -> dict[str, Any]:
        self._record("job", name)
        if name not in self.jobs:
            raise NotFound(404, "NotFound")
        return self.jobs[name]

    def patch_job(
        self, kind: Resource, namespace: str, name: str, changes: list[dict[str, Any]], timeout: float = 10
    ) -> None:
        self._record("patch job", name, changes)

    def merge_job(
        self, kind: Resource, namespace: str, name: str, patch: dict[str, Any], timeout: float = 10
    ) -> None:
        self._record("merge job", name, patch)

    def create_command(self, namespace: str, command: dict[str, Any]) -> None:
        self._record("create command", command["metadata"]["name"], command)

    def create_event(self, event: dict[str, Any], timeout: float = 10) -> None:
        self._record("event", event["metadata"]["name"], event)

    def patch_event(self, namespace: str, name: str, patch: dict[str, Any], timeout: float = 10) -> None:
        self._record("event again", name, patch)
