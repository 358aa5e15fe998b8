"""Overview for a dashboard on the user's machine, made from watched API objects, with the user's rights.

The overview shows pods, nodes, and the statuses that Muster wrote. It also works while Muster is down.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from extender.api.objects.cluster import ClusterTopology, Event, Lease, Namespace, Node, is_held
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, ResourceFlavor
from extender.api.summaries import (
    EventSummary,
    GroupDetails,
    GroupSummary,
    MemberSummary,
    Overview,
    ShortfallSummary,
    capacity_summaries,
)
from extender.api.units import timestamp_at
from extender.api.workloads.shape import Kinds
from extender.cli.access import ClusterAccess
from extender.cli.installation import Installation
from extender.cli.kinds import all_kinds, job_of
from extender.cli.lookup import ListedObject
from extender.cli.why.diagnosis import explain_group
from extender.cli.why.evidence import Evidence, pod_scheduled
from extender.cli.why.rendering import remedies_of
from extender.dashboard.source import LastHour
from extender.domain.explain.observed_objects import (
    ObservedGroup,
    ObservedQueue,
    RequestSums,
    group_summary,
    last_eviction,
    local_queue_summaries,
    node_summaries,
    queue_summaries,
)
from extender.domain.ledger.topologies import BadTopology, levels_of
from extender.domain.model.ownership import group_name
from extender.domain.model.reasons import Verdict
from extender.domain.queues.flavors import Pools, shared_flavor
from extender.domain.queues.records import queue_record
from extender.domain.queues.tree import Queues
from extender.domain.snapshot.nodes import Levels
from extender.kube import resources as kube
from extender.kube.decoding import prepare_structs
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.reflector import Reflector, Removed
from extender.kube.requests import Reader
from extender.kube.resources import Resource
from extender.telemetry.logs import logger

log = logger(__name__)

T = TypeVar("T")

_FIRST_TIMEOUT = 20.0  # maximum seconds for which the first overview waits for the lists
_RENEWAL_PERIOD = 1.0  # seconds between two overviews
_STOP_TIMEOUT = 5.0  # maximum seconds to wait at the end for a running renewal
_LEASE_PERIOD = 10.0  # seconds without a change until Muster's Lease is checked
_MAX_SILENCE = 90.0  # seconds without an event until a note says so; bookmarks come each minute
_UNDECIDED_TEXT = "Muster has decided on none of these jobs: muster check says whether it is at work."
_MAX_EVENTS = 200
_KINDS: tuple[tuple[Resource, type[Any]], ...] = (
    (kube.QUEUES, ObservedQueue),
    (kube.POD_GROUPS, ObservedGroup),
    (kube.PODS, Pod),
    (kube.NODES, Node),
    (kube.LOCAL_QUEUES, LocalQueue),
    (kube.RESOURCE_FLAVORS, ResourceFlavor),
    (kube.NAMESPACES, Namespace),
    (kube.TOPOLOGIES, ClusterTopology),
)
_CLUSTER_KINDS = (kube.QUEUES, kube.NODES, kube.NAMESPACES, kube.RESOURCE_FLAVORS, kube.TOPOLOGIES)


class WatchedKind:
    """Copies of the objects of a kind, which a reflector updates. An empty namespace means all namespaces."""

    def __init__(self, kind: type[Any], namespace: str, change_event: threading.Event) -> None:
        self.kind, self.namespace = kind, namespace
        self.objects: dict[tuple[str, str], Any] = {}
        self.reflector: Reflector[Any]
        self._change_event, self._lock = change_event, Lock()

    def upsert(self, obj: Any) -> None:
        with self._lock:
            self.objects[obj.metadata.namespace, obj.metadata.name] = obj
        self._change_event.set()

    def remove(self, removed: Removed) -> None:
        with self._lock:
            self.objects.pop((removed.namespace, removed.name), None)
        self._change_event.set()

    def all(self, namespace: str = "") -> list[Any]:
        with self._lock:
            return [obj for key, obj in self.objects.items() if namespace in ("", key[0])]


class WatchedReader(Reader):
    """Reader that has copies of watched kinds, and reads other kinds from the API server.

    The reader watches all namespaces if its user may list objects in all of them, else one namespace. Each
    change sets `change_event`.
    """

    def __init__(self, access: ClusterAccess, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(access.connection)
        self.change_event = threading.Event()
        self.unread_kinds: list[str] = []  # plural names of the kinds that may not be listed
        self._access, self._clock = access, clock
        self._watches: dict[Resource, WatchedKind] = {}

    def start(self) -> None:
        """Watch the kinds that may be read, and wait for their first lists.

        Raises:
            ApiError: The API server does not answer.
        """
        prepare_structs()
        for resource, kind in _KINDS:
            if (namespace := self._find_scope(resource)) is None:
                self.unread_kinds.append(resource.plural)
                continue
            watch = self._watches[resource] = WatchedKind(kind, namespace, self.change_event)
            watch.reflector = Reflector(self._connection, resource, kind, watch, namespace=namespace)
            watch.reflector.start()
        end = self._clock() + _FIRST_TIMEOUT
        while self._clock() < end and not all(watch.reflector.is_synced for watch in self._watches.values()):
            time.sleep(0.02)

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.reflector.halt()

    def silence(self) -> float:
        """Return the seconds since the last event of any watch. Bookmarks come each minute."""
        contacts = [watch.reflector.last_contact_at or 0.0 for watch in self._watches.values()]
        return self._clock() - max(contacts) if contacts else 0.0

    def scope(self, resource: Resource) -> str | None:
        """Return the namespace in which a kind is watched, empty for all; None if it may not be read."""
        watch = self._watches.get(resource)
        return watch.namespace if watch else None

    def watched(self, resource: Resource) -> list[Any]:
        """Return the copies of all objects of a kind; empty if the kind may not be read."""
        watch = self._watches.get(resource)
        return watch.all() if watch else []

    def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        watch = self._watches.get(resource)
        if watch is not None and watch.kind is kind and watch.namespace in ("", namespace):
            with suppress(KeyError):
                obj: T = watch.objects[namespace, name]
                return obj
        return super().get(resource, namespace, name, kind)

    def list(
        self, resource: Resource, namespace: str, kind: type[T], fields: str = "", labels: str = ""
    ) -> list[T]:
        """Return the objects of a kind, from the copies if the kind is watched.

        Raises:
            Forbidden: The kind is watched in another namespace.
        """
        watch = self._watches.get(resource)
        if fields or labels or (watch is not None and watch.kind is not kind):
            return super().list(resource, namespace, kind, fields, labels)
        if watch is not None and watch.namespace in ("", namespace):
            return watch.all(namespace)
        if watch is not None or resource.plural in self.unread_kinds:
            raise Forbidden(403, "Forbidden", f"you may not list {resource.plural}")
        return super().list(resource, namespace, kind, fields, labels)

    def _find_scope(self, resource: Resource) -> str | None:
        """Return the namespace in which the user may list a kind, empty for all; None if there is none."""
        own_namespaces = () if resource in _CLUSTER_KINDS else (self._access.namespace,)
        for namespace in ("", *filter(None, own_namespaces)):
            with suppress(Forbidden, NotFound):
                self._get(resource.path(namespace), ListedObject, query={"limit": 1})
                return namespace
        return None


class ObservedSource:
    """Source of overviews from watched objects. The watches begin with the first overview.

    A thread renews the overview after changes. The thread then pauses for at least four times the duration of
    the renewal.

    Attributes:
        max_silence: The seconds without an event of the API server, after which the overview has a note.
    """

    def __init__(
        self, access: ClusterAccess, clock: Callable[[], float] = time.time, max_silence: float = _MAX_SILENCE
    ) -> None:
        self._access, self._clock, self._max_silence = access, clock, max_silence
        self._reader = WatchedReader(access)
        self._requests, self._kinds = RequestSums(), all_kinds()
        self._latest = Overview("0", "")
        self.shares, self.usages = LastHour(), LastHour()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._stop_event = threading.Event()

    def overview(self) -> Overview:
        """Return the latest overview.

        Raises:
            ApiError: Nothing can be read.
        """
        with self._lock:
            if self._thread is None:
                self._reader.start()
                self._renew()
                self._thread = Thread(target=self._renew_until_stopped, name="overview", daemon=True)
                self._thread.start()
        return self._latest

    def stop(self) -> None:
        self._stop_event.set()
        self._reader.change_event.set()
        self._reader.stop()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT)

    def _renew_until_stopped(self) -> None:
        while not self._stop_event.is_set():
            started_at = time.monotonic()
            try:
                self._renew()
            except Exception:  # the next renewal may succeed
                if not self._stop_event.is_set():
                    log.exception("an overview could not be made")
            if not self._stop_event.wait(max(_RENEWAL_PERIOD, 4 * (time.monotonic() - started_at))):
                self._reader.change_event.wait(_LEASE_PERIOD)

    def _renew(self) -> None:
        """Make a new overview, and store it if its contents have changed."""
        self._reader.change_event.clear()
        now = self._clock()
        overview = self._observed_overview(self._overdue_renewal(now))
        if replace(overview, version=self._latest.version, at=self._latest.at) != self._latest:
            self._latest = replace(overview, version=f"{now:.3f}", at=timestamp_at(now))
        if self.shares.is_due(now):
            shares = {queue.name: queue.share for queue in overview.queues if queue.share is not None}
            self.shares.record(shares, now)
            capacity = capacity_summaries(overview.nodes)
            usage = {row.resource: (row.used + row.claimed) / row.total for row in capacity if row.total}
            self.usages.record(usage, now)

    # ---- the whole overview

    def _evidence(self, namespace: str = "") -> Evidence:
        return Evidence(self._access._replace(reader=self._reader, namespace=namespace), namespace)

    def _observed_overview(self, silent_since: str) -> Overview:
        evidence, reader = self._evidence(), self._reader
        scopes = (reader.scope(resource) for resource in (kube.POD_GROUPS, kube.PODS))
        groups, pods = (reader.watched(resource) for resource in (kube.POD_GROUPS, kube.PODS))
        self._requests.forget_all_but(pods)
        members_by_group: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if name := group_name(pod):
                members_by_group[f"{pod.metadata.namespace}/{name}"].append(pod)
        summaries = [
            _summary(evidence, group, members_by_group[group.key], self._requests, self._kinds)
            for group in sorted(groups, key=lambda group: group.key)
        ]
        notes = [f"You may not list {plural}: they are not shown." for plural in reader.unread_kinds]
        if summaries and all(group.verdict == Verdict.UNKNOWN for group in summaries):
            notes.insert(0, _UNDECIDED_TEXT)
        if (silence := reader.silence()) > self._max_silence:
            since = timestamp_at(self._clock() - silence)
            notes.insert(0, f"No event of the API server came since {since}: this is the state of then.")
        notes += [f"Only namespace {scope} is shown: you may list no others." for scope in {*scopes} if scope]
        topologies = _topologies(reader)
        nodes = reader.watched(kube.NODES) if reader.scope(kube.PODS) == "" else []  # usage needs all pods
        return Overview(
            version="",
            at="",
            silent_since=silent_since,
            queues=[*queue_summaries(reader.watched(kube.QUEUES))],
            local_queues=[*local_queue_summaries(reader.watched(kube.LOCAL_QUEUES))],
            groups=summaries,
            nodes=[*node_summaries(nodes, pods, self._requests, _pools(reader), topologies)],
            topologies=topologies,
            notes=notes,
        )

    def _overdue_renewal(self, now: float) -> str:
        """Return the last renewal of Muster's Lease if the next renewal is overdue, else an empty text."""
        site = Installation(self._access._replace(namespace=""))
        with suppress(ApiError):
            for serving in site.workloads:
                if serving.setting("leader_elect") == "off":
                    continue
                lease = site.get(kube.LEASES, *serving.setting("lease").split("/"))
                spec = msgspec.convert(lease, Lease).spec if lease else None
                if spec is not None and not is_held(spec, now):
                    return spec.renew_time or ""
        return ""

    # ---- one group

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        """Return the details of a group; None if it does not exist.

        Raises:
            ApiError: The group cannot be read.
        """
        evidence = self._evidence(namespace)
        try:
            group = self._reader.get(kube.POD_GROUPS, namespace, name, ObservedGroup)
        except NotFound:
            return None
        answer, members = explain_group(evidence, group), evidence.members(group) or []
        summary = _summary(evidence, group, members, RequestSums(), self._kinds)
        if summary.wait is not None and not summary.wait.remedy:
            summary = replace(summary, wait=replace(summary.wait, remedy=" ".join(remedies_of(answer))))
        timeline = [*self._timeline(group, members)]
        return GroupDetails(
            replace(summary, evicted=last_eviction(timeline)),
            [_member(pod) for pod in sorted(members, key=lambda pod: pod.metadata.name)],
            self._shortfall(summary) if summary.wait else [],
            timeline,
            [offer.shown() for offer in answer.commands],
            [
                *(f"{len(stray.pods)} pods do not count: {stray.cause.text}." for stray in answer.uncounted),
                *(note.text for note in answer.notes),
            ],
        )

    def _shortfall(self, group: GroupSummary) -> Sequence[ShortfallSummary]:
        """Return the requests of a group, and the free capacity of all schedulable nodes, suitable or not."""
        free: defaultdict[str, float] = defaultdict(float)
        nodes = [node for node in self.overview().nodes if node.taken]
        for node in nodes:
            for name, amount in node.allocatable.items():
                free[name] += max(amount - node.used.get(name, 0) - node.claimed.get(name, 0), 0)
        return [ShortfallSummary(name, n, free[name]) for name, n in sorted(group.asks.items()) if nodes]

    def _timeline(self, group: ObservedGroup, members: Iterable[Pod]) -> Iterator[EventSummary]:
        yield EventSummary(group.metadata.creation_timestamp or "", "Created", "it was created")
        names = {group.name, *(pod.metadata.name for pod in members)}
        try:
            events = self._reader.list(kube.EVENTS, group.namespace, Event)
        except ApiError:
            return
        own_events = [event for event in events if event.about.name in names]
        for event in sorted(own_events, key=lambda event: event.at)[-_MAX_EVENTS:]:
            prefix = "" if event.about.name == group.name else f"{event.about.name}: "
            text = f"{prefix}{event.message}"
            yield EventSummary(event.at, event.reason, text, event.type == "Warning", event.times)


def _summary(
    evidence: Evidence, group: ObservedGroup, members: Sequence[Pod], requests: RequestSums, kinds: Kinds
) -> GroupSummary:
    queue_name = evidence.queue_of(group)
    queue, is_job = evidence.queue(queue_name), job_of(group.controller, kinds) is not None
    pending_count = queue.counts["pending"] if queue else 0
    return group_summary(group, queue_name, members, pending_count, requests, is_job)


def _member(pod: Pod) -> MemberSummary:
    node, condition = pod.spec.node_name, pod_scheduled(pod)
    message = "" if node else condition.message
    return MemberSummary(pod.metadata.name, pod.status.phase, node, "Bound" if node else "", message)


def _topologies(reader: WatchedReader) -> list[Levels]:
    """Return the levels of the usable Topologies, sorted by name of the Topology."""
    topologies = []
    for topology in sorted(reader.watched(kube.TOPOLOGIES), key=lambda topology: topology.metadata.name):
        with suppress(BadTopology):
            topologies.append(levels_of(topology))
    return topologies


def _pools(reader: WatchedReader) -> Pools:
    """Return the node pools that the flavors of readable queues select."""
    tree = Queues()
    for flavor in reader.watched(kube.RESOURCE_FLAVORS):
        tree.put_flavor(flavor.metadata.name, shared_flavor(flavor))
    for queue in reader.watched(kube.QUEUES):
        if queue.spec.flavors:
            tree.put(queue_record(queue))
    return tree.pools
