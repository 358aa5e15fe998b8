"""Intake of all watched objects except pods. An unchanged object costs only a comparison."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import (
    ClusterTopology,
    Namespace,
    Node,
    PodDisruptionBudget,
    PriorityClass,
    Workload,
)
from extender.api.objects.devices import ClaimSpec
from extender.api.objects.queues import (
    LocalQueue,
    NativePodGroup,
    PluginsPodGroup,
    PodGroup,
    Queue,
    ResourceFlavor,
)
from extender.api.objects.volcano import HyperNode
from extender.api.workloads.gangs import MadePods
from extender.api.workloads.shape import Json, KindName, RuntimeName
from extender.domain.ledger.composites import Composites
from extender.domain.ledger.pods import Pods, StuckPods
from extender.domain.ledger.state import Core
from extender.domain.ledger.topologies import HyperNodes, TopologySource, TopologySources, levels_of
from extender.domain.model.device_requests import (
    ClaimKey,
    ClaimState,
    DeviceUsers,
    LogicalResources,
    claims_of_group,
)
from extender.domain.model.evictions import BudgetsByNamespace, DisruptionBudget, disruption_budget
from extender.domain.model.ownership import OwnerRecord, owner_record
from extender.domain.model.records import GroupKey, GroupRecord, Origin, composite_key, group_of_owner
from extender.domain.model.resources import Resources, counts_in_queues, offered_by_node, total
from extender.domain.model.shapes import node_taints
from extender.domain.model.wire_records import any_group_record
from extender.domain.queues.flavors import SharedFlavor, shared_flavor
from extender.domain.queues.local_queues import LocalQueueRecord, local_queue_record
from extender.domain.queues.past_usage import UsageMeter
from extender.domain.queues.records import QueueRecord, queue_record
from extender.domain.snapshot.jobs import (
    AnyJob,
    JobKind,
    JobRecord,
    JobRules,
    job_group_key,
    job_record,
    owner_of_pods,
    podgroup_of,
)
from extender.domain.snapshot.nodes import Levels, NodeRecord


class Intake:
    """Intake of watched objects into the ledger."""

    def __init__(self, core: Core, pods: Pods, jobs: JobRules, meter: UsageMeter, stuck: StuckPods) -> None:
        self._registry, self._claims, self._changes = core.registry, core.claims, core.changes
        self._lock = core.lock
        self._pods, self.jobs, self._meter, self._stuck_pods = pods, jobs, meter, stuck
        self._topologies, self._hyper_nodes = TopologySources(), HyperNodes()
        self.composites = Composites()
        self._budgets: dict[str, dict[str, DisruptionBudget]] = {}  # disruption budgets by namespace and name
        self._changed_namespaces: set[str] = set()  # namespaces with changed disruption budgets
        self._shown_budgets: BudgetsByNamespace = {}
        self._nodes: dict[str, NodeRecord] = {}  # nodes without their devices
        self._devices: dict[str, Resources] = {}  # offered devices by node
        self._unavailable_devices: dict[str, Resources] = {}  # by node: devices that no pod can get
        self._idle_claims: defaultdict[str, set[ClaimKey]] = defaultdict(set)  # unused claims by node
        pods.on_use_of_claim = self._set_idle
        self._queues: dict[str, Queue] = {}
        self._jobs_with_devices = DeviceUsers[GroupKey, tuple[JobKind, AnyJob]]()

    def set_node(self, node: Node) -> None:
        """Record a node.

        Raises:
            BadQuantity: An amount cannot be read.
        """
        self.put_node(
            NodeRecord(
                name=node.metadata.name,
                labels=node.metadata.labels or {},
                taints=node_taints(node.spec.taints, node.spec.unschedulable),
                allocatable=offered_by_node(node.status.allocatable),
            )
        )

    def put_node(self, record: NodeRecord) -> None:
        """Record a node, with its devices, its logical resources, and the labels of its HyperNodes."""
        with self._lock:
            self._nodes[record.name] = record
            if devices := self._devices.get(record.name):
                record = replace(record, allocatable=total((record.allocatable, devices)))
            if logical_amounts := self.logical_resources.amounts_for(record.allocatable, is_on_node=True):
                record = replace(record, allocatable={**record.allocatable, **logical_amounts})
            old_labels = self._claims.capacity.labels(record.name)
            if tiers := self._hyper_nodes.labels(record.name):
                record = replace(record, labels={**record.labels, **tiers})
            if self._claims.capacity.set_node(record):
                self._stuck_pods.record_node(record)
                self._changes.record_freed()
                self._changes.notify()
            if old_labels != record.labels:
                self._hyper_nodes.put_node(record.name)
                self._mark_groups_with_flavors(record.name)

    def drop_node(self, name: str) -> None:
        """Remove a node."""
        with self._lock:
            self._nodes.pop(name, None)
            self._claims.capacity.drop_node(name)
            self._hyper_nodes.drop_node(name)
            self._stuck_pods.record_deleted(name)
            self._mark_groups_with_flavors(name)
            self._changes.notify()

    def set_devices(
        self, node: str, amounts: Resources, unavailable: Resources | None = None, are_freed: bool = False
    ) -> None:
        """Record the devices of a node, by resource.

        Args:
            node: The name of the node, which may come later.
            amounts: The numbers of devices, which add up with the amounts that the node itself offers.
            unavailable: The numbers of devices that no pod can get now, besides devices that pods already
                request.
            are_freed: Whether claims gave devices back, so that pods which the scheduler refused may fit now.
        """
        with self._lock:
            if are_freed:
                self._claims.capacity.forget_refusals(node)
                self._changes.record_freed()
                self._changes.notify()
            if amounts:
                self._devices[node] = amounts
            else:
                self._devices.pop(node, None)
            self._unavailable_devices.pop(node, None)
            if unavailable:
                self._unavailable_devices[node] = unavailable
            self._set_unavailable_devices(node)
            if (record := self._nodes.get(node)) is not None:
                self.put_node(record)

    def _set_unavailable_devices(self, node: str) -> None:
        """Set the number of a node's devices that no pod can get.

        Devices of an allocated claim are available to its pods.
        """
        amounts = Counter(self._unavailable_devices.get(node, {}))
        for key in self._idle_claims.get(node, ()):
            if self._pods.is_claim_used(key):
                amounts.subtract(self._pods.shapes.devices.idle_devices(key)[node])
        self._claims.capacity.set_unavailable(node, +amounts)

    def _set_idle(self, claim: ClaimKey, old_nodes: Iterable[str] = ()) -> None:
        """Record the nodes on which an allocated but unused claim has devices.

        Only pods that name the claim can get these devices.

        Args:
            claim: The claim.
            old_nodes: The nodes of the claim's devices before the update.
        """
        nodes = self._pods.shapes.devices.idle_devices(claim)
        for node in old_nodes:
            self._idle_claims[node].discard(claim)
            if not self._idle_claims[node]:
                del self._idle_claims[node]
        for node in nodes:
            self._idle_claims[node].add(claim)
        for node in {*old_nodes, *nodes}:
            self._set_unavailable_devices(node)
            self._changes.record_freed()
            self._changes.notify()

    @property
    def logical_resources(self) -> LogicalResources:
        return self._pods.shapes.devices.logical

    def set_device_class(self, name: str, resource: str | None, amounts: Resources | None = None) -> None:
        """Record the resource of a DeviceClass or selection; see `DeviceRequests.set_class`.

        Selections come before the claims that use them, and change together with their class.
        """
        with self._lock:
            if not self._pods.shapes.devices.set_class(name, resource, amounts or {}):
                return
            if counts_in_queues(name):
                for record in list(self._nodes.values()) if amounts else ():
                    self.put_node(record)
                for queue in list(self._queues.values()):
                    self.put_queue(queue_record(queue, self._pods.shapes.devices.resolve_classes))
        if amounts or resource == "" or counts_in_queues(name):
            self._reread(None)

    def set_claim(self, key: ClaimKey, spec: ClaimSpec | None, state: ClaimState | None = None) -> None:
        """Record a ResourceClaim or ResourceClaimTemplate; no `spec` means that it is gone.

        If the claim is deleted, or replaced by a new claim of the same name, the starts of the pods that use
        the claim end.
        """
        devices = self._pods.shapes.devices
        with self._lock:
            old_uid, old_idle_nodes = devices.uid_of(key), devices.idle_devices(key)
            is_changed = devices.set_claim(key, spec, state)
            if devices.idle_devices(key) != old_idle_nodes:
                self._set_idle(key, old_idle_nodes)
            if old_uid and old_uid != devices.uid_of(key):
                self._pods.end_starts(key, f"ResourceClaim {key.name} was deleted")
        if is_changed:
            self._reread(key)

    def _reread(self, claim: ClaimKey | None) -> None:
        """Read again all pods and jobs that name a claim or template.

        If `claim` is None, all pods and jobs that request devices are read again.
        """
        self._pods.reread(claim)
        with self._lock:
            job_keys = self._jobs_with_devices.users_of(claim)
        for key in job_keys:
            with self._lock:
                if (job := self._jobs_with_devices.get(key)) is not None:
                    self.set_job(*job)

    def _mark_groups_with_flavors(self, node: str) -> None:
        """Mark groups as dirty if their flavors depend on the labels of a node."""
        if self._registry.queues.pools.all_pools:
            for key in {claim.pod.group for claim in self._claims.on_node(node) if claim.pod.group}:
                self._registry.mark_dirty(key)

    def set_group(self, group: PodGroup | PluginsPodGroup | NativePodGroup) -> None:
        """Record a PodGroup of any API, or a composite."""
        record = any_group_record(group)
        if isinstance(group, NativePodGroup) and record.origin is not Origin.COMPOSITE:
            key = claims_of_group(record.namespace, record.name)
            self._pods.set_group_claims(key, group.claims_of_templates)
        with self._lock:
            if record.parent or record.origin is Origin.COMPOSITE:
                if self.composites.put(record):
                    self._changes.notify()
                return
            if record.origin is Origin.NATIVE:
                self.composites.drop(record.key)
        self.put_group(record)

    def sync_composites(self) -> None:
        """Move the pods below changed composites, and PodGroups with a parent, to their current groups."""
        if not self.composites.are_stale:
            return
        records, groups = self.composites.refresh()
        version = self._changes.next_version
        for record in filter(None, records.values()):
            self._registry.set_group(record, version)
        for pod_group, target in groups.items():
            self._pods.move_group(pod_group, target)
        for key in (key for key, record in records.items() if record is None):
            self._registry.drop_group(key, Origin.NATIVE, version)
            self._registry.drop_group(key, Origin.COMPOSITE, version)
        self._changes.notify()  # the next cycle moves the next portion

    def put_group(self, record: GroupRecord) -> None:
        with self._lock:
            if self._registry.set_group(record, self._changes.next_version):
                self._changes.notify()

    def drop_group(self, key: GroupKey, origin: Origin = Origin.VOLCANO) -> None:
        """Remove a PodGroup, and the claims that a PodGroup of Kubernetes has for its pods."""
        if origin in (Origin.NATIVE, Origin.ALPHA):
            namespace, _, name = key.partition("/")
            self._pods.set_group_claims(claims_of_group(namespace, name), {})
        if origin is Origin.COMPOSITE:
            namespace, _, name = key.partition("/")
            key = composite_key(namespace, name)
        with self._lock:
            if origin in (Origin.NATIVE, Origin.COMPOSITE):
                self.composites.drop(key)
            self._registry.drop_group(key, origin, self._changes.next_version)
            self._changes.notify()

    def set_owner(self, workload: Workload) -> Collection[GroupKey]:
        """Record a controller of pods. Return the changed groups of its pods."""
        record = owner_record(workload)
        return self.put_owner(group_of_owner(workload.metadata.namespace, record.uid), record)

    def set_controller(
        self, kind: JobKind, job: AnyJob, gang: MadePods | None = None
    ) -> Collection[GroupKey]:
        """Record a job as the owner of pods that name no group. Return the changed groups of its pods.

        Args:
            kind: The kind of the job.
            job: The job.
            gang: The gang that `set_job` has returned for the job; None without a gang.
        """
        record = owner_of_pods(kind, job, self.jobs.table, gang)
        return self.put_owner(job_group_key(kind, job.metadata), record)

    def put_owner(self, key: GroupKey, record: OwnerRecord) -> Collection[GroupKey]:
        with self._lock:
            if not self._registry.owners.put(key, record):
                return ()
            self._changes.notify()
            return self._registry.set_owner(key, record)

    def drop_owner(self, key: GroupKey) -> None:
        with self._lock:
            if self._registry.owners.drop(key):
                self._registry.set_owner(key, OwnerRecord(""))
                self._changes.notify()

    def set_ancestor(self, kind: str, meta: Meta) -> Collection[GroupKey]:
        """Record the author, queue and controller of an owner. Return the groups that depend on the owner."""
        with self._lock:
            if groups := self._registry.ancestors.put(kind, meta):
                self._mark_dirty(groups)
            return groups

    def drop_ancestor(self, namespace: str, uid: str) -> None:
        with self._lock:
            self._registry.ancestors.drop(namespace, uid)

    def expect_controllers(self, is_read: Callable[[str], bool]) -> None:
        """Set the function that returns whether controllers of a kind have been read.

        A group waits for an owner of such a kind as long as the owner is unknown.
        """
        self._registry.owners.is_read = is_read

    def expect_claims(self, are_read: Callable[[], bool]) -> None:
        """Set the function that returns whether all claims are known.

        Once all claims are known, pods wait for claims that do not exist.
        """
        self._registry.claims_are_read = are_read

    def expect_ancestors(self, are_read: Callable[[str], bool]) -> None:
        """Set the function that returns whether owners of a kind are watched: groups wait for them."""
        self._registry.ancestors.are_read = are_read

    def set_job(self, kind: JobKind, job: AnyJob) -> MadePods | None:
        """Record a job. Return the gang that its pods form; None if its pods are not read."""
        ownership, key = self._pods.ownership, podgroup_of(kind, job.metadata)
        with self._lock:
            full_job = self._registry.runtimes.complete(key, self.jobs.table[kind], kind, job)
            shapes, schedulers = self._pods.shapes, ownership.schedulers
            record = job_record(kind, full_job, self.jobs.table, shapes, schedulers, ownership.auto_groups)
            self.put_job(record)
            self._jobs_with_devices.drop(key)
            if record.claims is not None:
                self._jobs_with_devices.put(key, (kind, job), record.claims)
        return record.gang if record.outcome is None and not record.fault else None

    def put_job(self, record: JobRecord) -> None:
        with self._lock:
            if self._registry.jobs.put(record):
                self._mark_dirty([record.group])

    def drop_job(self, key: GroupKey) -> None:
        """Remove a job, by the key of its group."""
        with self._lock:
            self._jobs_with_devices.drop(key)
            self._registry.runtimes.forget(key)
            if self._registry.jobs.drop(key):
                self._mark_dirty([key])

    def leave_jobs(self, kinds: Collection[KindName]) -> None:
        """Leave jobs of these kinds to other controllers. Muster manages all other jobs by its rules."""
        with self._lock:
            changed_kinds = {*self._registry.foreign_kinds} ^ {*kinds}
            self._registry.foreign_kinds = kinds
            self._mark_dirty(self._registry.jobs.groups_of_kinds(changed_kinds))

    def set_runtime(self, name: RuntimeName, spec: Json) -> Collection[GroupKey]:
        """Record an object with the templates of jobs. Return the jobs that have to be read again."""
        with self._lock:
            return self._registry.runtimes.put(name, spec)

    def drop_runtime(self, name: RuntimeName) -> Collection[GroupKey]:
        with self._lock:
            return self._registry.runtimes.drop(name)

    def read_job_again(self, key: GroupKey) -> None:
        """Read a job again after its runtime has changed.

        Callers read one job at a time, because there may be many.
        """
        with self._lock:
            if (recorded_job := self._registry.runtimes.job(key)) is not None:
                self.set_job(*recorded_job)

    def set_queue(self, queue: Queue) -> None:
        with self._lock:
            self._queues[queue.metadata.name] = queue
            self._meter.restore(queue.metadata.name, queue.status.usage)
            self.put_queue(queue_record(queue, self._pods.shapes.devices.resolve_classes))

    def put_queue(self, record: QueueRecord) -> None:
        with self._lock:
            if self._registry.set_queue(record):
                self._changes.record_freed()
                self._changes.notify()

    def drop_queue(self, name: str) -> None:
        with self._lock:
            self._queues.pop(name, None)
            self._registry.drop_queue(name)
            self._changes.notify()

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        self.put_flavor(flavor.metadata.name, shared_flavor(flavor))

    def drop_flavor(self, name: str) -> None:
        self.put_flavor(name, None)

    def put_flavor(self, name: str, flavor: SharedFlavor | None) -> None:
        with self._lock:
            if self._registry.set_flavor(name, flavor):
                self._changes.record_freed()
                self._changes.notify()

    def set_topology(self, topology: ClusterTopology, source: TopologySource = TopologySource.MUSTER) -> None:
        """Record a Topology.

        Raises:
            BadTopology: The levels are invalid.
        """
        self.put_topology(topology.metadata.name, levels_of(topology), source)

    def put_topology(self, name: str, levels: Levels | None, source: TopologySource) -> None:
        """Record the levels of a topology; None means that the topology is gone."""
        with self._lock:
            if self._topologies.put(source, name, levels):
                self._claims.capacity.set_topologies(self._topologies.in_order())
                self._changes.record_freed()
                self._changes.notify()

    def set_hyper_node(self, hyper_node: HyperNode) -> None:
        """Record a HyperNode. Its nodes get their labels before the next decision.

        Raises:
            BadTopology: The HyperNode has an unusable pattern.
        """
        with self._lock:
            if self._hyper_nodes.put(hyper_node):
                self._changes.notify()

    def drop_hyper_node(self, name: str) -> None:
        with self._lock:
            self._hyper_nodes.drop(name)
            self._changes.notify()

    def sync_hyper_nodes(self) -> None:
        """Update the labels that nodes have for the tiers of HyperNodes, if any HyperNode has changed."""
        if not self._hyper_nodes.are_stale:
            return
        for name in self._hyper_nodes.refresh(self._claims.capacity.table()):
            if (node := self._nodes.get(name)) is not None:
                self.put_node(node)
        self._hyper_nodes.are_stale = False
        levels = dict(enumerate(self._hyper_nodes.levels))
        for number in range(2):
            self.put_topology(str(number), levels.get(number), TopologySource.VOLCANO)

    def set_local_queue(self, local_queue: LocalQueue) -> None:
        self.put_local_queue(local_queue_record(local_queue))

    def put_local_queue(self, record: LocalQueueRecord) -> None:
        """Record a LocalQueue. This may change the queue of groups and jobs that name it."""
        with self._lock:
            group_keys = self._registry.routes.local_queues.put(record)
            if group_keys is not None:
                for key in group_keys:
                    self._registry.record_arrival(self._registry.groups[key])
                self._changes.record_freed()
                self._mark_dirty([*group_keys, *self._registry.jobs.find_jobs(record.namespace, record.name)])

    def drop_local_queue(self, key: str) -> None:
        """Remove a LocalQueue, by its namespace/name."""
        namespace, _, name = key.partition("/")
        with self._lock:
            group_keys = self._registry.routes.local_queues.drop(key)
            if group_keys is not None:
                self._mark_dirty([*group_keys, *self._registry.jobs.find_jobs(namespace, name)])

    def record_kueue(self, is_served: bool) -> None:
        """Record whether the cluster has Kueue's LocalQueues, to which labels of Kueue may refer."""
        with self._lock:
            local_queues = self._registry.routes.local_queues
            if local_queues.kueue_is_served is not is_served:
                local_queues.kueue_is_served = is_served
                self._mark_dirty([*local_queues.naming_groups, *self._registry.jobs.jobs_with_label])

    def set_namespace(self, namespace: Namespace) -> None:
        """Record a namespace with its defaults for groups."""
        name, labels = namespace.metadata.name, namespace.metadata.labels or {}
        annotations = namespace.metadata.annotations or {}
        queue, min_member = annotations.get(keys.QUEUE, ""), annotations.get(keys.MIN_MEMBER, "")
        with self._lock:
            if self._registry.routes.set_namespace(name, queue, labels, min_member):
                self._mark_dirty(self._registry.groups_in(name))

    def drop_namespace(self, name: str) -> None:
        with self._lock:
            if self._registry.routes.drop_namespace(name):
                self._mark_dirty(self._registry.groups_in(name))

    def set_quota_namespaces(self, queues: Mapping[str, str]) -> None:
        """Record the queue of each namespace's quota, for namespaces whose annotation names no queue."""
        with self._lock:
            if changed_names := self._registry.routes.set_quota_namespaces(queues):
                self._mark_dirty(key for name in changed_names for key in self._registry.groups_in(name))

    def set_priority_class(self, priority: PriorityClass) -> None:
        with self._lock:
            if self._registry.priorities.put(priority):
                self._mark_dirty(self._registry.groups)

    def drop_priority_class(self, name: str) -> None:
        with self._lock:
            if self._registry.priorities.drop(name):
                self._mark_dirty(self._registry.groups)

    def set_disruption_budget(self, budget: PodDisruptionBudget) -> None:
        self.put_disruption_budget(disruption_budget(budget))

    def put_disruption_budget(self, record: DisruptionBudget) -> None:
        """Record a PodDisruptionBudget."""
        with self._lock:
            budgets = self._budgets.setdefault(record.namespace, {})
            if budgets.get(record.name) != record:
                budgets[record.name] = record
                self._changed_namespaces.add(record.namespace)
                self._changes.notify()

    def drop_disruption_budget(self, namespace: str, name: str) -> None:
        with self._lock:
            if self._budgets.get(namespace, {}).pop(name, None) is not None:
                self._changed_namespaces.add(namespace)
                self._changes.notify()

    def disruption_budgets(self) -> BudgetsByNamespace:
        """Return the disruption budgets by namespace.

        The result is the same immutable object until a budget changes.
        Callers hold the lock.
        """
        if self._changed_namespaces:
            budgets_by_namespace = dict(self._shown_budgets)
            for namespace in self._changed_namespaces:
                if budgets := self._budgets[namespace]:
                    budgets_by_namespace[namespace] = tuple(budgets.values())
                else:
                    del self._budgets[namespace]
                    budgets_by_namespace.pop(namespace, None)
            self._shown_budgets, self._changed_namespaces = budgets_by_namespace, set()
        return self._shown_budgets

    def trust_markers(self, is_trusted: bool) -> None:
        """Record whether annotations on PodGroups count.

        They count only if the API server lets nobody but Muster write these annotations.
        """
        with self._lock:
            if self._registry.trusts_markers is not is_trusted:
                self._registry.trusts_markers = is_trusted
                self._mark_dirty(self._registry.groups)

    def trust_authors(self, is_trusted: bool) -> None:
        """Record whether records of authors count.

        They count only if the API server refuses records with the names of other users.
        """
        with self._lock:
            if self._registry.trusts_authors is not is_trusted:
                self._registry.trusts_authors = is_trusted
                self._mark_dirty(self._registry.groups)

    def trust_uses(self, is_trusted: bool) -> None:
        """Record whether records of the right to use a queue count.

        They count only if the API server checks them.
        """
        with self._lock:
            if self._registry.trusts_uses is not is_trusted:
                self._registry.trusts_uses = is_trusted
                self._mark_dirty(self._registry.groups)

    def review_users(self) -> None:
        """Check from now on that the authors of groups may use restricted queues."""
        with self._lock:
            self._registry.requires_rights = True
            self._mark_dirty(self._registry.groups)

    def _mark_dirty(self, groups: Iterable[GroupKey]) -> None:
        """Mark groups that depend on a change as dirty, and request a decision."""
        for key in groups:
            self._registry.mark_dirty(key)
        self._changes.notify()
