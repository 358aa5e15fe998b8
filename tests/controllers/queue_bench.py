"""Bench of the tests of queues: an API server's queues, Commands and groups, and their watch."""

from typing import Any

import msgspec

from extender.api.objects.base import Meta, OwnerReference, merged
from extender.api.objects.queues import Command, PodGroup, Queue
from extender.domain.snapshot.snapshot import Limits
from extender.kube.errors import Conflict, NotFound
from extender.kube.reflector import Removed
from tests.controllers.api import Api
from tests.controllers.bench import Bench

Json = dict[str, Any]


class QueueApi(Api):
    """API client with stored queues. Each change gives a queue a new version."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, Json] = {}
        self.commands: dict[str, Command] = {}
        self.last_version = 100

    def put(self, queue: Queue) -> None:
        self._store(msgspec.to_builtins(queue))

    def _store(self, queue: Json) -> None:
        self.last_version += 1
        queue["metadata"]["resourceVersion"] = str(self.last_version)
        self.queues[queue["metadata"]["name"]] = queue

    def _change(self, name: str, patch: Json) -> None:
        if name not in self.queues:
            raise NotFound(404, "NotFound")
        before = self.queues[name]
        for field in ("uid", "resourceVersion"):
            if patch.get("metadata", {}).get(field) not in (None, before["metadata"][field]):
                raise Conflict(409, "Conflict")
        self._store(merged(before, patch))

    def keeps_queue_state(self, name: str, uid: str, state: str, timeout: float = 10) -> bool:
        return True

    def patch_queue(self, name: str, uid: str, patch: Json, timeout: float = 10) -> None:
        self._record("patch_queue", name, patch)
        self._change(name, {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}})

    def patch_queue_status(self, name: str, patch: Json, timeout: float = 10) -> None:
        self._record("status", name, patch["status"])
        self._change(name, patch)

    def set_queue_status_state(
        self, name: str, uid: str, state: str, version: str | None = None, timeout: float = 10
    ) -> str:
        self._record("state", name, state)
        self._change(name, {"metadata": {"uid": uid, "resourceVersion": version}, "status": {"state": state}})
        return str(self.queues[name]["metadata"]["resourceVersion"])

    def create_queue(
        self, name: str, spec: Json, annotations: dict[str, str] | None = None, timeout: float = 10
    ) -> None:
        self._record("create", name, spec)
        if name in self.queues:
            raise Conflict(409, "AlreadyExists")
        metadata = {"name": name, "uid": f"uid-{name}", "annotations": annotations or {}}
        self._store({"metadata": metadata, "spec": spec})

    def delete_queue(self, name: str, uid: str, timeout: float = 10) -> None:
        self._record("delete", name, uid)
        if self.queues.pop(name, None) is None:
            raise NotFound(404, "NotFound")

    def queue_uid(self, name: str, timeout: float = 10) -> str:
        self._record("get", name)
        if name not in self.queues:
            raise NotFound(404, "NotFound")
        return str(self.queues[name]["metadata"]["uid"])

    def queue_uids(self, timeout: float = 30) -> set[str]:
        self._record("list", "queues")
        return {queue["metadata"]["uid"] for queue in self.queues.values()}

    def delete_group(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._record("delete_group", name, uid)

    def delete_command(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        self._record("delete_command", name)
        del self.commands[name]


class QueueBench(Bench):
    """Bench with the API server's copies of queues; groups and pods are only in the world."""

    def __init__(self, *objects: Any, limits: Limits | None = None) -> None:
        self.store = QueueApi()
        super().__init__(*objects, limits=limits)
        self.event_api = self.api  # gets the Events
        self.api = self.store

    def events(self) -> list[tuple[str, str, str]]:
        """Return the Events on queues: name of the queue, reason, message."""
        events = [event for _, event in self.event_api.done("event")]
        return [(event["involvedObject"]["name"], event["reason"], event["message"]) for event in events]

    def put_queues(self, *queues: Queue) -> None:
        """Store queues in the API server, and deliver them by the watch."""
        for queue in queues:
            self.store.put(queue)
            self.show(queue.metadata.name)

    def copy(self, name: str) -> Queue:
        return msgspec.convert(self.store.queues[name], Queue)

    def show(self, name: str) -> None:
        """Deliver the API server's copy of a queue, as by the watch."""
        self.ledger.intake.set_queue(self.copy(name))
        self.follow(self.copy(name))

    def follow(self, queue: Queue) -> None:
        """Handle an event of the watch; subclasses override it."""

    def show_all(self) -> None:
        for name in self.store.queues:
            self.show(name)

    def edit(self, name: str, **spec: Any) -> None:
        """Change the spec of a queue as a user does, and deliver it by the watch."""
        self.store._change(name, {"spec": spec})
        self.show(name)


def command(
    name: str,
    action: str,
    queue: str,
    uid: str | None = None,
    kind: str = "Queue",
    version: int = 1,
    created: str = "2026-01-01T00:00:00Z",
) -> Command:
    return Command(
        Meta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            resource_version=str(version),
            creation_timestamp=created,
        ),
        action,
        OwnerReference("scheduling.volcano.sh/v1beta1", kind, queue, f"uid-{queue}" if uid is None else uid),
    )


def gone(obj: Command | PodGroup) -> Removed:
    meta = obj.metadata
    return Removed(meta.namespace, meta.name, meta.uid)
