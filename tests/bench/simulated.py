"""Cluster of any size in this process, full of running pods, with a scheduler that reads through the proxy.

The scheduler binds every pod that the scheduler proxy shows. The cluster and the scheduler use as little CPU
as possible, since only Muster is measured. Initial objects are put directly into the store of the embedded
API server. Later objects are created, bound and deleted by requests.
"""

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from extender.apimachinery.kinds import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, ResourceKind
from tests.e2e.harness import objects
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.embedded import EmbeddedControlPlane
from tests.e2e.harness.muster import Muster

Json = dict[str, Any]
SPACE = "bench"
MEMBERS = 20
_CREATED_AT = "2026-01-01T00:00:00Z"
_CHILDREN_PER_PARENT = 20  # number of queues below each parent


class SimulatedCluster(EmbeddedControlPlane):
    """Embedded cluster in which `bound` pods run in groups of 20. Deleted objects disappear at once."""

    def __init__(self, folder: Path, nodes: int, bound: int, queues: int) -> None:
        super().__init__(folder)
        self._queues = queues
        self._store_object(NAMESPACES, objects.namespace(SPACE))
        for name in (f"n{number:05}" for number in range(nodes)):
            self._store_object(NODES, objects.node(name, cpu="64", memory="256Gi"))
        parents = max(queues // _CHILDREN_PER_PARENT, 1)
        for name in (f"p{number}" for number in range(parents)):
            self._store_object(QUEUES, objects.queue(name))
        for number in range(queues):
            self._store_object(QUEUES, objects.queue(f"q{number}", parent=f"p{number % parents}"))
        member = objects.pod("", namespace=SPACE, cpu="100m")
        for number in range(bound // MEMBERS):
            name = f"old-{number:05}"
            self._store_object(POD_GROUPS, self._running_group(name, number))
            for index in range(MEMBERS):
                annotations = {objects.GROUP_NAME: name}
                metadata = {"name": f"{name}-{index:02}", "namespace": SPACE, "annotations": annotations}
                spec = {**member["spec"], "nodeName": f"n{(number * MEMBERS + index) % nodes:05}"}
                self._store_object(
                    PODS, {**member, "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
                )

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def add_gang(self, number: int) -> None:
        """Create a group with pending pods."""
        name = f"new-{number:05}"
        self.service.create(POD_GROUPS, SPACE, self._group(name, number))
        for member in members_of(number):
            pod = objects.pod(member, namespace=SPACE, group=name, cpu="100m")
            self.service.create(PODS, SPACE, pod)

    def drop_gang(self, number: int) -> None:
        """Delete the group with this number and its pods."""
        for member in members_of(number):
            self.service.delete(PODS, SPACE, member, {"gracePeriodSeconds": 0})
        self.service.delete(POD_GROUPS, SPACE, f"new-{number:05}", {})

    def _group(self, name: str, number: int) -> Json:
        queue = f"q{number % self._queues}"
        return objects.pod_group(name, namespace=SPACE, min_member=MEMBERS, queue=queue)

    def _running_group(self, name: str, number: int) -> Json:
        """Return a running group that already has the status that Muster would write.

        Muster therefore writes nothing about this group.
        """
        group = self._group(name, number)
        uids = f"uid-queues-{group['spec']['queue']}/{_uid(POD_GROUPS, name)}"
        group["metadata"]["annotations"]["kube-muster.io/queue-uid"] = uids
        message = f"all members that it needs ran at the same time: {MEMBERS}/{_uid(POD_GROUPS, name)}"
        reported_conditions = (("Scheduled", "Running", ""), ("StoodWhole", "AllMembersStarted", message))
        conditions = [
            {
                "type": type_,
                "status": "True",
                "reason": reason,
                "message": text,
                "lastTransitionTime": _CREATED_AT,
            }
            for type_, reason, text in reported_conditions
        ]
        counts = {"running": MEMBERS, "succeeded": 0, "failed": 0}
        return {**group, "status": {"phase": "Running", **counts, "conditions": conditions}}

    def _store_object(self, kind: ResourceKind, obj: Json) -> None:
        """Put an object with a UID and a creation time directly into the store."""
        metadata = obj["metadata"]
        metadata |= {"uid": _uid(kind, metadata["name"]), "creationTimestamp": _CREATED_AT}
        self.service.store.put(kind, obj)

    def muster(self, *arguments: str) -> Muster:
        """Return a process of Muster with a scheduler proxy. The process is not started yet."""
        cluster: Any = self
        return Muster(cluster, self.kubeconfig(ADMIN), arguments=arguments, view=True)


def _uid(kind: ResourceKind, name: str) -> str:
    return f"uid-{kind.plural}-{name}"


def members_of(gang: int) -> list[str]:
    """Return the names of the pods of a gang that `add_gang` creates."""
    return [f"new-{gang:05}-{index:02}" for index in range(MEMBERS)]


class _Meta(msgspec.Struct):
    name: str
    uid: str = ""


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Status(msgspec.Struct):
    nominatedNodeName: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class SimulatedScheduler:
    """Simulated scheduler: `with SimulatedScheduler(muster, version) as scheduler: ...`.

    The scheduler watches pods through the proxy from a resourceVersion on. For each new pod with a nominated
    node, the scheduler sends a bind call for this node on a separate connection.
    """

    def __init__(self, muster: Muster, version: int) -> None:
        assert muster.view_kubeconfig is not None
        cluster = json.loads(muster.view_kubeconfig.read_text())["clusters"][0]["cluster"]
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        self._watch_url, self._proxy = f"{cluster['server']}/api/v1/pods?{query}", cluster["proxy-url"]
        self._bind_url = f"http://{muster.address}/v1/bind"
        self.bound: set[str] = set()
        self.refused: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="simulated-scheduler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for task in asyncio.all_tasks(self._loop):
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._schedule())

    async def _schedule(self) -> None:
        """Watch pods, and start a bind call for each pod that has a nominated node."""
        bind_connector = aiohttp.TCPConnector(limit=0, force_close=True)
        no_timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=no_timeout) as watch_session,
            aiohttp.ClientSession(timeout=no_timeout, connector=bind_connector) as bind_session,
            watch_session.get(self._watch_url, proxy=self._proxy) as events,
        ):
            tasks = set[asyncio.Task[None]]()
            async for line in events.content:
                if (pod := _pod_to_bind(line)) is not None:
                    task = asyncio.create_task(self._call_bind(bind_session, pod))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)

    async def _call_bind(self, session: aiohttp.ClientSession, pod: _Pod) -> None:
        """Send the bind call for a pod, and record whether Muster has refused it."""
        pod_metadata = pod.metadata
        args = {"PodName": pod_metadata.name, "PodNamespace": SPACE, "PodUID": pod_metadata.uid}
        body = msgspec.json.encode({**args, "Node": pod.status.nominatedNodeName})
        async with session.post(self._bind_url, data=body) as answer:
            error = (await answer.json(content_type=None))["Error"]
        if error:
            self.refused.append(error)
        else:
            self.bound.add(pod_metadata.name)


def _pod_to_bind(line: bytes) -> _Pod | None:
    """Return the pod of an event if the pod is new, unbound and has a nominated node.

    Otherwise return None.
    """
    event = msgspec.json.decode(line, type=_Event)
    if event.type != "ADDED":
        return None
    pod = msgspec.json.decode(event.object, type=_Pod)
    return pod if pod.status.nominatedNodeName and not pod.spec.nodeName else None
