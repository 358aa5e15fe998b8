"""The watches that feed the ledger, one reflector for each resource.

Pods are read last: whether they are ours, and in which queue they wait, depends on namespaces and groups.
"""

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from extender.api.objects import (
    Command,
    LocalQueue,
    Namespace,
    NativePodGroup,
    Node,
    PluginsPodGroup,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ProvisioningRequest,
    Queue,
    Workload,
)
from extender.api.quotas import ElasticQuota, ElasticQuotaTree, QuotaKind, ResourceQuota
from extender.api.workloads.shape import WorkloadRow
from extender.controllers.object_store import QueueCopy
from extender.controllers.provisioning_objects import MANAGED_BY
from extender.domain.cache.ledger import Ledger
from extender.domain.jobs.job_record import JobKind
from extender.domain.jobs.reading import AnyJob, owner_of_pods
from extender.domain.model.records import GroupKey, Origin, Uid, group_of_owner
from extender.host.controllers import Controllers
from extender.host.optional import OptionalWatches
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.inventory import Removed
from extender.kube.reflector import Reflector
from extender.kube.resources import (
    COMMANDS,
    DAEMON_SETS,
    DISRUPTION_BUDGETS,
    ELASTIC_QUOTA_TREES,
    ELASTIC_QUOTAS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    NATIVE_POD_GROUPS,
    NODES,
    PLUGINS_POD_GROUPS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUESTS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    Resource,
    resource_of,
)

T = TypeVar("T")
_PATIENCE = 0.02  # seconds between two checks whether pods can be read
_FAREWELL = 1.0  # seconds for all watches together to end
_OLDEST = 180.0  # seconds of silence after which a watch fails /readyz; bookmarks are sent every minute


_OWNER_AND_JOB = JobKind("batch/v1", "Job")
_OWNERS = (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)
_GROUPS_OF_OTHERS = (
    (PLUGINS_POD_GROUPS, PluginsPodGroup, Origin.PLUGINS),
    (NATIVE_POD_GROUPS, NativePodGroup, Origin.NATIVE),
)
_QUOTAS: dict[QuotaKind, tuple[Resource, type[Any]]] = {
    QuotaKind.ELASTIC_QUOTA_TREE: (ELASTIC_QUOTA_TREES, ElasticQuotaTree),
    QuotaKind.ELASTIC_QUOTA: (ELASTIC_QUOTAS, ElasticQuota),
    QuotaKind.RESOURCE_QUOTA: (RESOURCE_QUOTAS, ResourceQuota),
}


class _Sink(Generic[T]):
    def __init__(self, upsert: Callable[[T], None], remove: Callable[[Removed], None]) -> None:
        self.upsert = upsert
        self.remove = remove


class Feed:
    """`reflectors` are all watches. Nothing waits long for those of kinds that a cluster may lack. Without
    `auto_groups`, the owners of pods are not read. `quota_sources`: the kinds of quotas that are."""

    def __init__(
        self,
        connection: Connection,
        ledger: Ledger,
        controllers: Controllers,
        auto_groups: bool,
        job_kinds: Sequence[WorkloadRow],
        quota_sources: Collection[str] = (),
    ) -> None:
        self._ledger = ledger
        self._quotas = controllers.quotas
        self._objects = controllers.objects
        self._volcano = controllers.volcano
        self._auto_podgroups = controllers.auto_podgroups if auto_groups else None
        self._jobs = controllers.jobs
        self._stopping = Event()
        watch = partial(Reflector[Any], connection)
        asked = watch(
            PROVISIONING_REQUESTS,
            ProvisioningRequest,
            controllers.provisioning_requests,
            label_selector="=".join(MANAGED_BY),
        )
        controllers.provisioning_is_served = lambda: asked.synced
        commands = watch(COMMANDS, Command, controllers.bus_commands)
        budgets = watch(
            DISRUPTION_BUDGETS,
            PodDisruptionBudget,
            _Sink(
                ledger.set_disruption_budget,
                lambda gone: ledger.drop_disruption_budget(gone.namespace, gone.name),
            ),
        )
        quotas = {
            name: watch(resource, type_, controllers.quotas.sinks[name])
            for name, (resource, type_) in _QUOTAS.items()
            if name in quota_sources
        }
        controllers.quota_is_read = lambda kind: any(
            name == kind.lower() and each.synced for name, each in quotas.items()
        )
        local_queues = watch(LOCAL_QUEUES, LocalQueue, _Sink(self._set_local_queue, self._drop_local_queue))
        optional = (local_queues, commands, asked, budgets, *quotas.values())
        jobs = [watch(resource_of(row), AnyJob, self._job_sink(JobKind(*row.key))) for row in job_kinds]
        apart = dict.fromkeys((asked, *quotas.values()), "watch") | dict.fromkeys(jobs, "patch")
        self._optional = OptionalWatches(
            ApiClient(connection), (*optional, *jobs, *self._optional_reflectors(watch)), granted_apart=apart
        )
        self._needed: tuple[Reflector[Any], ...] = (
            watch(
                NAMESPACES,
                Namespace,
                _Sink(ledger.set_namespace, lambda gone: ledger.drop_namespace(gone.name)),
            ),
            watch(
                PRIORITY_CLASSES,
                PriorityClass,
                _Sink(ledger.set_priority_class, lambda gone: ledger.drop_priority_class(gone.name)),
            ),
            watch(QUEUES, Queue, _Sink(self._set_queue, self._drop_queue)),
            watch(NODES, Node, _Sink(ledger.set_node, lambda gone: ledger.drop_node(gone.name))),
            watch(POD_GROUPS, PodGroup, _Sink(self._set_group, self._drop_group)),
            watch(PODS, Pod, _Sink(self._set_pod, self._drop_pod)),
        )

    def _optional_reflectors(self, watch: Callable[..., Reflector[Any]]) -> list[Reflector[Any]]:
        groups = [
            watch(kind, type_, _Sink(self._ledger.set_group, partial(self._drop_group_of_others, origin)))
            for kind, type_, origin in _GROUPS_OF_OTHERS
        ]
        owners = _Sink(self._set_owner, self._drop_owner)
        kinds = _OWNERS if self._auto_podgroups else ()
        return groups + [watch(kind, Workload, owners) for kind in kinds]

    def _job_sink(self, kind: JobKind) -> "_Sink[AnyJob]":
        return _Sink(partial(self._set_job, kind), partial(self._drop_job, kind))

    def _set_job(self, kind: JobKind, job: AnyJob) -> None:
        self._ledger.set_job(kind, job)
        self._jobs.see(kind, job)
        if kind == _OWNER_AND_JOB and self._auto_podgroups:
            self._set_owner(owner_of_pods(job))

    def _drop_job(self, kind: JobKind, gone: Removed) -> None:
        self._ledger.drop_job(gone.namespace, gone.uid)
        self._jobs.forget(group_of_owner(gone.namespace, gone.uid))
        if kind == _OWNER_AND_JOB:
            self._drop_owner(gone)

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """The watches that are running or about to run."""
        return (*self._needed, *self._optional.started)

    def start(self) -> None:
        *others, pods = self._needed
        for reflector in others:
            reflector.start()
        self._optional.start()
        Thread(target=self._start_after, args=[pods, others], name="feed", daemon=True).start()

    def _start_after(self, last: Reflector[Any], others: Sequence[Reflector[Any]]) -> None:
        while not (all(reflector.synced for reflector in others) and self._optional.settled):
            if self._stopping.wait(_PATIENCE):
                return
        self._quotas.refresh()  # whether a pod is ours may depend on the queue of its namespace
        last.start()

    def stop(self) -> None:
        """Stop all watches at the same time: if the API server cannot be reached, each takes its full
        patience."""
        self._stopping.set()
        self._optional.halt()
        for reflector in self.reflectors:
            reflector.halt()
        deadline = time.monotonic() + _FAREWELL
        for reflector in self.reflectors:
            reflector.stop(max(0.0, deadline - time.monotonic()))

    @property
    def missing(self) -> list[Reflector[Any]]:
        """The watches of kinds that the cluster does not have."""
        return self._optional.missing

    def synced(self) -> bool:
        return all(reflector.synced for reflector in self._needed)

    def checks(self) -> dict[str, Callable[[], str | None]]:
        """Checks for /readyz: resources that have not been read yet, or whose watches have long been
        silent."""
        return {f"{each.resource.plural}-synced": partial(_state, each) for each in self._needed}

    def _set_queue(self, queue: Queue) -> None:
        self._ledger.set_queue(queue)
        self._objects.queues.put(queue.metadata.name, QueueCopy(queue, self._ledger.version))

    def _drop_queue(self, gone: Removed) -> None:
        self._objects.queues.drop(gone.name)
        self._ledger.drop_queue(gone.name)

    def _set_local_queue(self, local: LocalQueue) -> None:
        self._ledger.set_local_queue(local)
        self._objects.local_queues.put(f"{local.metadata.namespace}/{local.metadata.name}", local)

    def _drop_local_queue(self, gone: Removed) -> None:
        key = f"{gone.namespace}/{gone.name}"
        self._objects.local_queues.drop(key)
        self._ledger.drop_local_queue(key)

    def _set_group(self, group: PodGroup) -> None:
        key = GroupKey(f"{group.metadata.namespace}/{group.metadata.name}")
        self._objects.podgroups.put(key, group)
        self._ledger.set_group(group)
        if self._auto_podgroups:
            self._auto_podgroups.notice(key)

    def _drop_group(self, gone: Removed) -> None:
        self._objects.podgroups.drop(_key(gone))
        self._ledger.drop_group(_key(gone))
        if self._auto_podgroups:
            self._auto_podgroups.notice(_key(gone), gone=True)

    def _drop_group_of_others(self, origin: Origin, gone: Removed) -> None:
        self._ledger.drop_group(_key(gone), origin)

    def _set_owner(self, owner: Workload) -> None:
        if self._ledger.set_owner(owner) and self._auto_podgroups:
            self._auto_podgroups.notice(group_of_owner(owner.metadata.namespace, owner.metadata.uid))

    def _drop_owner(self, gone: Removed) -> None:
        self._ledger.drop_owner(gone.namespace, gone.uid)

    def _set_pod(self, pod: Pod) -> None:
        self._volcano.see_pod(pod)
        self._ledger.set_pod(pod)
        if self._auto_podgroups:
            self._auto_podgroups.see_pod(pod)

    def _drop_pod(self, gone: Removed) -> None:
        self._volcano.forget_pod(Uid(gone.uid), gone.namespace)
        record = self._ledger.pod(Uid(gone.uid))
        self._ledger.drop_pod(Uid(gone.uid))
        if self._auto_podgroups and record is not None:
            self._auto_podgroups.forget_pod(record)


def _key(gone: Removed) -> GroupKey:
    return GroupKey(f"{gone.namespace}/{gone.name}")


def _state(reflector: Reflector[Any]) -> str | None:
    if not reflector.synced:
        return "not read yet"
    silent = time.monotonic() - (reflector.last_heard or 0.0)
    return f"watch silent for {silent:.0f} s" if silent > _OLDEST else None
