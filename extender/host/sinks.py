"""Sinks of the watches, which pass objects to the ledger and to some controllers."""

from collections.abc import Callable, Collection
from functools import partial
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from extender.api.admission import AnyObject
from extender.api.objects.base import Meta
from extender.api.objects.cluster import ClusterTopology, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import Command, LocalQueue, PodGroup, Queue
from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.shape import VOLCANO_JOB, RuntimeName
from extender.controllers.objects import QueueCopy
from extender.controllers.volcano_copies import as_json
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.topologies import TopologySource
from extender.domain.model.records import GroupKey, Origin, Uid, group_of_owner
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRuntime, job_group_key, podgroup_of
from extender.host.controllers import Controllers
from extender.kube.reflector import Removed, Sink

T = TypeVar("T")


class _Callbacks(NamedTuple, Generic[T]):
    """Sink that calls functions for the objects of one kind."""

    upsert: Callable[[T], None]
    remove: Callable[[Removed], None]


class _Fanout(NamedTuple, Generic[T]):
    sinks: tuple[Sink[T], ...]

    def upsert(self, obj: T) -> None:
        for sink in self.sinks:
            sink.upsert(obj)

    def remove(self, removed: Removed) -> None:
        for sink in self.sinks:
            sink.remove(removed)


class Sinks:
    """Sinks for all kinds. Without `auto_groups`, the owners of pods are not read."""

    def __init__(self, ledger: Ledger, controllers: Controllers, auto_groups: bool) -> None:
        self._ledger = ledger
        self._intake = intake = ledger.intake
        self._objects = controllers.objects
        self._auto_podgroups = controllers.auto_podgroups if auto_groups else None
        self._jobs = controllers.jobs
        volcano = controllers.volcano_jobs
        scheduler = controllers.volcano.scheduler
        self._volcano_programs = (scheduler, volcano.program) if volcano else (scheduler,)
        self._volcano_jobs = (volcano.jobs, volcano.cron_jobs) if volcano else ()
        bus_commands = controllers.bus_commands
        self.commands = _Fanout[Command]((bus_commands, volcano.commands) if volcano else (bus_commands,))
        volcano_jobs = _Callbacks(self._set_volcano_job, self._drop_volcano_job)
        self.volcano_jobs = self.author_sink("Job", volcano_jobs)
        self.namespaces = _Callbacks(intake.set_namespace, lambda obj: intake.drop_namespace(obj.name))
        self.priority_classes = _Callbacks(
            intake.set_priority_class, lambda obj: intake.drop_priority_class(obj.name)
        )
        self.nodes = _Callbacks(intake.set_node, lambda obj: intake.drop_node(obj.name))
        self.disruption_budgets = _Callbacks(
            intake.set_disruption_budget, lambda obj: intake.drop_disruption_budget(obj.namespace, obj.name)
        )
        self.queues = _Callbacks(self._set_queue, self._drop_queue)
        self.local_queues = _Callbacks(self._set_local_queue, self._drop_local_queue)
        self.flavors = _Callbacks(intake.set_flavor, lambda obj: intake.drop_flavor(obj.name))
        devices = DeviceInventory(intake, Lock())
        self.device_classes = _Callbacks(devices.set_class, lambda obj: devices.drop_class(obj.name))
        self.resource_slices = _Callbacks(devices.set_slice, lambda obj: devices.drop_slice(obj.name))
        self.claim_templates = _Callbacks(
            devices.set_template, lambda obj: devices.drop_template(obj.namespace, obj.name)
        )
        self.resource_claims = _Callbacks(
            devices.set_claim, lambda obj: devices.drop_claim(obj.namespace, obj.name, obj.uid)
        )
        self.hyper_nodes = _Callbacks(intake.set_hyper_node, lambda obj: intake.drop_hyper_node(obj.name))
        self.groups = _Callbacks(self._set_group, self._drop_group)
        self.pods = _Callbacks(self._set_pod, self._drop_pod)

    def topologies(self, source: TopologySource) -> Sink[ClusterTopology]:
        intake = self._intake
        return _Callbacks[ClusterTopology](
            partial(intake.set_topology, source=source),
            lambda obj: intake.put_topology(obj.name, None, source),
        )

    def _set_queue(self, queue: Queue) -> None:
        self._intake.set_queue(queue)
        self._objects.queues.put(queue.metadata.name, QueueCopy(queue, self._ledger.version))

    def _drop_queue(self, removed: Removed) -> None:
        self._objects.queues.drop(removed.name)
        self._intake.drop_queue(removed.name)

    def _set_local_queue(self, local: LocalQueue) -> None:
        self._intake.set_local_queue(local)
        self._objects.local_queues.put(f"{local.metadata.namespace}/{local.metadata.name}", local)

    def _drop_local_queue(self, removed: Removed) -> None:
        key = f"{removed.namespace}/{removed.name}"
        self._objects.local_queues.drop(key)
        self._intake.drop_local_queue(key)

    def _set_group(self, group: PodGroup) -> None:
        key = GroupKey(f"{group.metadata.namespace}/{group.metadata.name}")
        self._objects.podgroups.put(key, group)
        self._intake.set_group(group)
        if self._auto_podgroups:
            self._auto_podgroups.notice(key)

    def _drop_group(self, removed: Removed) -> None:
        self._objects.podgroups.drop(_key(removed))
        self._intake.drop_group(_key(removed))
        if self._auto_podgroups:
            self._auto_podgroups.notice(_key(removed), is_removed=True)

    def foreign_groups(self, origin: Origin) -> Sink[Any]:
        return _Callbacks(self._intake.set_group, lambda obj: self._intake.drop_group(_key(obj), origin))

    def _set_pod(self, pod: Pod) -> None:
        for program in self._volcano_programs:
            program.see_pod(pod)
        self._ledger.pods.set_pod(pod)
        if self._auto_podgroups:
            self._auto_podgroups.see_pod(pod)

    def _drop_pod(self, removed: Removed) -> None:
        for program in self._volcano_programs:
            program.forget_pod(Uid(removed.uid), removed.namespace)
        record = self._ledger.pods.get(Uid(removed.uid))
        self._ledger.pods.drop(Uid(removed.uid))
        if self._auto_podgroups and record is not None:
            self._auto_podgroups.forget_pod(record)

    def owners(self, kind: str) -> Sink[Any]:
        """Return the sink for Kubernetes' own controllers of pods."""
        intake = self._intake
        owners = _Callbacks[Workload](
            lambda owner: self._notify(intake.set_owner(owner)),
            lambda obj: intake.drop_owner(group_of_owner(obj.namespace, obj.uid)),
        )
        return self.author_sink(kind, owners)

    def author_sink(self, kind: str, *object_sinks: Sink[Any]) -> Sink[Any]:
        """Return a sink for owners of pods. The ledger gets their authors; `object_sinks` get the objects."""
        authors = _Callbacks[AnyObject](
            lambda owner: self._notify(self._intake.set_ancestor(kind, owner.metadata)),
            lambda obj: self._intake.drop_ancestor(obj.namespace, obj.uid),
        )
        return _Fanout[Any]((authors, *object_sinks))

    def controllers(self, kind: JobKind) -> Sink[AnyJob]:
        """Return a sink for jobs that Muster may read but not change."""
        controllers = _Callbacks[AnyJob](
            lambda job: self._notify(self._intake.set_controller(kind, job)),
            partial(self._drop_controller, kind),
        )
        return self.author_sink(kind.kind, controllers)

    def _drop_controller(self, kind: JobKind, removed: Removed) -> None:
        meta = Meta(name=removed.name, namespace=removed.namespace, uid=removed.uid)
        self._intake.drop_owner(job_group_key(kind, meta))

    def _notify(self, keys: Collection[GroupKey]) -> None:
        """Tell the controller of PodGroups which groups may have changed."""
        if self._auto_podgroups:
            for key in keys:
                self._auto_podgroups.notice(key)

    def jobs(self, kind: JobKind) -> Sink[AnyJob]:
        jobs = _Callbacks(partial(self._set_job, kind), partial(self._drop_job, kind))
        return self.author_sink(kind.kind, jobs)

    def runtimes(self, kind: str) -> Sink[JobRuntime]:
        """Return a sink for objects that contain the templates of jobs."""

        def upsert(runtime: JobRuntime) -> None:
            meta = runtime.metadata
            for key in self._intake.set_runtime(RuntimeName(kind, meta.namespace, meta.name), runtime.spec):
                self._intake.read_job_again(key)

        def remove(removed: Removed) -> None:
            for key in self._intake.drop_runtime(RuntimeName(kind, removed.namespace, removed.name)):
                self._intake.read_job_again(key)

        return _Callbacks(upsert, remove)

    def _set_job(self, kind: JobKind, job: AnyJob) -> None:
        """Pass a job to the ledger, and then to its controllers."""
        managed_job = self._intake.set_job(kind, job)
        self._jobs.on_job(kind, job)
        if kind == VOLCANO_JOB:
            self._set_volcano_job(job)
        elif self._auto_podgroups:  # pods of Volcano Jobs name their group themselves
            self._notify(self._intake.set_controller(kind, job, managed_job))

    def _drop_job(self, kind: JobKind, removed: Removed) -> None:
        key = podgroup_of(kind, Meta(name=removed.name, namespace=removed.namespace, uid=removed.uid))
        self._intake.drop_job(key)
        self._jobs.forget(key)
        if kind == VOLCANO_JOB:
            self._drop_volcano_job(removed)
        self._drop_controller(kind, removed)

    def _set_volcano_job(self, job: AnyJob) -> None:
        if self._volcano_jobs:
            volcano_job = msgspec.convert(as_json(job.metadata, job.spec, job.status), VolcanoJob)
            for controller in self._volcano_jobs:
                controller.on_job(volcano_job)

    def _drop_volcano_job(self, removed: Removed) -> None:
        for controller in self._volcano_jobs:
            controller.forget(Uid(removed.uid))


def _key(removed: Removed) -> GroupKey:
    return GroupKey(f"{removed.namespace}/{removed.name}")
