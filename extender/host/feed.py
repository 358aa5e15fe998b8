"""Watches that feed the ledger, with a reflector for each resource.

Groups are read after queues, because each change of a queue concerns all known groups. Pods are read last,
because their ownership and their queue depend on namespaces and groups.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Event, Thread
from typing import Any

from extender.api.admission import AnyObject
from extender.api.objects import cluster, devices, queues, volcano
from extender.api.objects.pods import Pod
from extender.api.workloads.shape import WorkloadRow, runtime_kinds
from extender.api.workloads.table import WORKLOADS
from extender.controllers.objects import GROUP_KINDS
from extender.controllers.provisioning import MANAGED_BY
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.topologies import TopologySource
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRuntime
from extender.host.controllers import Controllers, VolcanoJobControllers
from extender.host.sinks import Sinks
from extender.kube import resources
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import ApiError
from extender.kube.pod_protobuf import PodDecoders
from extender.kube.reflector import Reflector
from extender.kube.resources import resource_of
from extender.kube.writers import Poller
from extender.telemetry.logs import logger
from extender.volcano.pods import JOB_NAME

log = logger(__name__)

_MISSING_PERIOD = 30.0  # seconds between two checks whether missing kinds are served now
_START_TIMEOUT = 10.0  # seconds that the start waits for the watches of served kinds
_CHECK_PERIOD = 0.02  # seconds between two checks whether pods can be read
_STOP_TIMEOUT = 1.0  # seconds in which all watches together have to end
_MAX_SILENT_SECONDS = 180.0  # seconds without an event after which /readyz fails; bookmarks come every minute
_MAX_REFUSED_SECONDS = 60.0  # a longer refusal of credentials makes /readyz fail; watches last minutes


def owner_kinds() -> dict[resources.Resource, str]:
    """Return the kinds whose objects own pods, or own the owners of pods."""
    rows = {resource_of(row): row.kind for row in WORKLOADS.values()}
    return {**rows, resources.VOLCANO_CRON_JOBS: "CronJob"}


class OptionalWatches:
    """Watches of kinds that a cluster may lack. Each watch starts once the API server serves its kind.

    If a kind has several watches, the first watch that Muster has the right to start is enough.
    """

    def __init__(self, cluster: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._verb_by_watch: dict[Reflector[Any], str] = {}
        self.missing_watches: list[Reflector[Any]] = []  # watches that are not started
        self._clock = clock
        self._poller = Poller("optional-watches", _MISSING_PERIOD, self._poll)
        self._has_polled = False
        self._wait_ends_at = 0.0  # monotonic time, in seconds
        self.started_watches: list[Reflector[Any]] = []

    def add(self, watch: Reflector[Any], verb: str = "") -> None:
        """Add a watch before the start.

        The watch starts only if Muster has the right to `verb` the resource. A component of the manifests
        grants this right. An empty `verb` means that no further right is needed.
        """
        self._verb_by_watch[watch] = verb
        self.missing_watches.append(watch)

    def verb_of(self, watch: Reflector[Any]) -> str:
        """Return the right that a watch needs; empty if it needs no further right."""
        return self._verb_by_watch[watch]

    def start(self) -> None:
        self._wait_ends_at = self._clock() + _START_TIMEOUT
        if self.missing_watches:
            self._poller.start()
        else:
            self._has_polled = True

    def halt(self) -> None:
        self._poller.stop()

    @property
    def has_settled(self) -> bool:
        """Return whether all served kinds have been read, or the start waits for them no longer."""
        is_complete = self._has_polled and all(reflector.is_synced for reflector in self.started_watches)
        return is_complete or self._clock() >= self._wait_ends_at

    def start_served(self) -> None:
        """Start the watches of kinds that the API server serves now."""
        for reflector in list(self.missing_watches):
            resource, verb = reflector.resource, self._verb_by_watch[reflector]
            is_read = any(running.resource == resource for running in self.started_watches)
            if is_read and verb != "patch":  # another watch reads the kind already
                self.missing_watches.remove(reflector)
                continue
            try:
                is_served = self._cluster.serves(resource) and (
                    not verb or self._cluster.has_right(verb, resource)
                )
            except ApiError as fault:
                log.warning("cannot check whether a kind exists", kind=resource.path(), error=str(fault))
                continue
            if is_served:
                self.missing_watches.remove(reflector)
                self.started_watches.append(reflector)
                reflector.start()
        self._has_polled = True

    def _poll(self) -> None:
        """Start the watches whose kinds are served now, and log missing kinds once."""
        is_first = not self._has_polled
        self.start_served()
        if not self.missing_watches:
            self._poller.stop()
        elif is_first:
            kinds = sorted(reflector.resource.path() for reflector in self.missing_watches)
            log.info("this cluster lacks some kinds, which are not watched", kinds=kinds)


class Feed:
    """Watches that feed the ledger and the controllers.

    Args:
        auto_groups: Whether the owners of pods are read.
        job_kinds: Kinds of jobs that Muster changes if the rights are granted.
        quota_sources: Kinds of quotas that Muster makes queues from.
        controller_kinds: Kinds that are only read, since they declare how many of their pods start together.
    """

    def __init__(
        self,
        connection: Connection,
        ledger: Ledger,
        controllers: Controllers,
        auto_groups: bool,
        job_kinds: Sequence[WorkloadRow],
        quota_sources: Collection[str] = (),
        controller_kinds: Sequence[WorkloadRow] = (),
    ) -> None:
        self._connection = connection
        self._quotas = controllers.quotas
        self._stop_event = Event()
        watch = partial(Reflector[Any], connection)
        sinks = Sinks(ledger, controllers, auto_groups)
        self._needed: tuple[Reflector[Any], ...] = (
            watch(resources.NAMESPACES, cluster.Namespace, sinks.namespaces),
            watch(resources.PRIORITY_CLASSES, cluster.PriorityClass, sinks.priority_classes),
            watch(resources.QUEUES, queues.Queue, sinks.queues),
            watch(resources.NODES, cluster.Node, sinks.nodes),
            watch(resources.POD_GROUPS, queues.PodGroup, sinks.groups),
            watch(resources.PODS, Pod, sinks.pods, preferred_encoding=PodDecoders()),
        )
        self.optional_watches = OptionalWatches(ApiClient(connection))
        self._watch_kinds(ledger, controllers, sinks, auto_groups, quota_sources)
        self._watch_jobs(ledger, sinks, job_kinds, controller_kinds)
        if controllers.volcano_jobs is not None:
            self._watch_volcano_jobs(controllers.volcano_jobs, sinks)
        self._watch_ancestors(ledger, sinks)

    def _watch_kinds(
        self,
        ledger: Ledger,
        controllers: Controllers,
        sinks: Sinks,
        auto_groups: bool,
        quota_sources: Collection[str],
    ) -> None:
        """Watch all kinds except jobs and the owners of pods."""
        add, selector = self._add_watch, "=".join(MANAGED_BY)
        add(resources.LOCAL_QUEUES, queues.LocalQueue, sinks.local_queues)
        add(resources.RESOURCE_FLAVORS, queues.ResourceFlavor, sinks.flavors)
        add(resources.DEVICE_CLASSES, devices.DeviceClass, sinks.device_classes)
        claims = (
            add(resources.CLAIM_TEMPLATES, devices.ResourceClaimTemplate, sinks.claim_templates),
            add(resources.RESOURCE_CLAIMS, devices.ResourceClaim, sinks.resource_claims),
        )
        ledger.intake.expect_claims(lambda: all(watch.is_synced for watch in claims))
        add(resources.RESOURCE_SLICES, devices.ResourceSlice, sinks.resource_slices)
        add(resources.TOPOLOGIES, cluster.ClusterTopology, sinks.topologies(TopologySource.MUSTER))
        for resource in resources.KUEUE_TOPOLOGIES:  # all versions contain the same objects
            add(resource, cluster.ClusterTopology, sinks.topologies(TopologySource.KUEUE), verb="watch")
        add(resources.HYPER_NODES, volcano.HyperNode, sinks.hyper_nodes, verb="watch")
        add(resources.COMMANDS, queues.Command, sinks.commands)
        add(resources.DISRUPTION_BUDGETS, cluster.PodDisruptionBudget, sinks.disruption_budgets)
        provisioning = add(
            resources.PROVISIONING_REQUESTS,
            cluster.ProvisioningRequest,
            controllers.provisioning_requests,
            verb="watch",
            label_selector=selector,
        )
        quotas = {
            name: add(resource, type_, controllers.quotas.sinks[name], verb="watch")
            for name, (resource, type_) in resources.QUOTAS.items()
            if name in quota_sources
        }
        origins = {resource: origin for origin, resource in GROUP_KINDS.items()}
        for resource, kind in resources.FOREIGN_GROUPS:
            add(resource, kind, sinks.foreign_groups(origins[resource]))
        owners = resources.OWNERS if auto_groups else {}
        for kind_name, resource in owners.items():
            add(resource, cluster.Workload, sinks.owners(kind_name))
        controllers.provisioning_is_served = lambda: provisioning.is_synced
        controllers.quota_is_read = lambda kind: any(
            name == kind.lower() and quota.is_synced for name, quota in quotas.items()
        )

    def _watch_jobs(
        self,
        ledger: Ledger,
        sinks: Sinks,
        job_kinds: Sequence[WorkloadRow],
        controller_kinds: Sequence[WorkloadRow],
    ) -> None:
        """Watch jobs, and then controllers. A kind that is in both lists needs no second watch."""
        watches: dict[str, list[Reflector[Any]]] = defaultdict(list)
        for kind in runtime_kinds(job_kinds):
            self._add_watch(resource_of(kind), JobRuntime, sinks.runtimes(kind.kind), verb="watch")
        for row in job_kinds:
            sink = sinks.jobs(JobKind(*row.key))
            watches["/".join(row.key)].append(self._add_watch(resource_of(row), AnyJob, sink, verb="patch"))
        for row in controller_kinds:
            sink = sinks.controllers(JobKind(*row.key))
            verb = "" if row.key in WORKLOADS else "watch"
            watches["/".join(row.key)].append(self._add_watch(resource_of(row), AnyJob, sink, verb))
        ledger.intake.expect_controllers(lambda kind: any(watch.is_synced for watch in watches.get(kind, ())))

    def _watch_volcano_jobs(self, controllers: VolcanoJobControllers, sinks: Sinks) -> None:
        """Watch Volcano Jobs, with a separate watch if Muster does not manage them.

        The ledger gets each job before the controllers get it.
        """
        optional = self.optional_watches
        jobs = [watch for watch in optional.missing_watches if watch.resource == resources.VOLCANO_JOBS]
        if not any(optional.verb_of(watch) == "patch" for watch in jobs):
            jobs = [self._add_watch(resources.VOLCANO_JOBS, AnyJob, sinks.volcano_jobs, verb="patch")]
        cron_jobs = sinks.author_sink("CronJob", controllers.cron_jobs)
        copies = controllers.jobs.copies
        pods = self._add_watch(resources.PODS, AnyJob, copies, verb="create", label_selector=JOB_NAME)
        self._add_watch(resources.VOLCANO_CRON_JOBS, volcano.CronJob, cron_jobs, verb="watch")
        controllers.are_read = lambda: pods.is_synced and any(watch.is_synced for watch in jobs)
        controllers.read_fault = lambda: next((watch.fault for watch in (pods, *jobs) if watch.fault), "")

    def _watch_ancestors(self, ledger: Ledger, sinks: Sinks) -> None:
        """Watch the owners of pods to record the authors of the owners.

        A kind needs no further watch if it has a watch that needs no right. A watch that needs a right does
        not start if Muster lacks the right.
        """
        optional = self.optional_watches
        watched = {watch.resource for watch in optional.missing_watches if not optional.verb_of(watch)}
        kinds = owner_kinds()
        for resource, kind in kinds.items():
            if resource not in watched:
                self._add_watch(resource, AnyObject, sinks.author_sink(kind))
        watches = defaultdict[str, list[Reflector[Any]]](list)
        for watch in optional.missing_watches:
            watches[f"{watch.resource.version}/{kinds.get(watch.resource)}"].append(watch)
        ledger.intake.expect_ancestors(lambda kind: any(watch.is_synced for watch in watches.get(kind, ())))

    def _add_watch(
        self, resource: resources.Resource, type_: type[Any], sink: Any, verb: str = "", **options: Any
    ) -> Reflector[Any]:
        """Add an optional watch, and return its reflector."""
        reflector = Reflector[Any](self._connection, resource, type_, sink, is_removable=True, **options)
        self.optional_watches.add(reflector, verb)
        return reflector

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """Return the watches that run or are about to run."""
        return (*self._needed, *self.optional_watches.started_watches)

    def start(self) -> None:
        """Start the watches. Groups and pods are watched later, by another thread."""
        *watches, groups, pods = self._needed
        for reflector in watches:
            reflector.start()
        self.optional_watches.start()
        Thread(target=self._start_others, args=[watches, groups, pods], name="feed", daemon=True).start()

    def _start_others(
        self, watches: Sequence[Reflector[Any]], groups: Reflector[Any], pods: Reflector[Any]
    ) -> None:
        """Start the watches of groups and pods once the watches before them have been read."""
        queues = next(reflector for reflector in watches if reflector.resource == resources.QUEUES)
        if not self._wait_for(lambda: queues.is_synced):
            return
        groups.start()
        needed_watches = (*watches, groups)
        optional = self.optional_watches
        if self._wait_for(lambda: all(watch.is_synced for watch in needed_watches) and optional.has_settled):
            self._quotas.refresh()  # pods may belong to Muster by the queue of their namespace
            pods.start()

    def _wait_for(self, are_read: Callable[[], bool]) -> bool:
        """Wait until `are_read` is true; return False if the feed is stopping."""
        while not are_read():
            if self._stop_event.wait(_CHECK_PERIOD):
                return False
        return True

    def stop(self) -> None:
        """Stop all watches at the same time, since each may take its whole timeout."""
        self._stop_event.set()
        self.optional_watches.halt()
        for reflector in self.reflectors:
            reflector.halt()
        deadline = time.monotonic() + _STOP_TIMEOUT
        for reflector in self.reflectors:
            reflector.stop(max(0.0, deadline - time.monotonic()))

    def is_synced(self) -> bool:
        return all(reflector.is_synced for reflector in self._needed)

    def checks(self) -> dict[str, Callable[[], str | None]]:
        """Return the checks for /readyz.

        They report four faults: resources that have not been read, watches that have long been silent,
        credentials that the API server refuses, and writes that the API server does not store.
        """
        sync_checks = {f"{watch.resource.plural}-synced": partial(_fault_of, watch) for watch in self._needed}
        return {**sync_checks, "credentials": self._credential_fault, "writes": self._connection.write_fault}

    def stuck_watch(self) -> str | None:
        """Return the fault of a stuck watch for /livez; None if no watch is stuck."""
        return next(filter(None, (reflector.why_stuck() for reflector in self.reflectors)), None)

    def _credential_fault(self) -> str | None:
        seconds = self._connection.endpoint.refused_seconds
        return f"refused by the API server for {seconds:.0f} s" if seconds > _MAX_REFUSED_SECONDS else None


def _fault_of(reflector: Reflector[Any]) -> str | None:
    """Return the fault of a watch for /readyz; None if there is no fault."""
    if not reflector.is_synced:
        return "not read yet"
    silent_time = time.monotonic() - (reflector.last_contact_at or 0.0)
    return f"watch silent for {silent_time:.0f} s" if silent_time > _MAX_SILENT_SECONDS else None
