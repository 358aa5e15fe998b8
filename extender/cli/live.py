"""State of the live cluster, made from objects of the API server, with the rights of the command's user.

Decisions on this state equal the decisions that Muster would make after a restart. The clock can be advanced
to simulate the ends of pods. Nothing is written. The state lacks the history of a running Muster: run times
of ended groups, and failed starts.
"""

import time
from collections.abc import Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from extender.api.configuration import SETTINGS, Configuration, InvalidConfiguration
from extender.api.objects import cluster, devices, queues, volcano
from extender.api.objects.cluster import QuotaKind
from extender.api.objects.pods import Pod
from extender.api.workloads.shape import RuntimeName, runtime_kinds
from extender.api.workloads.table import WORKLOADS
from extender.cli.access import ClusterAccess
from extender.cli.installation import Installation
from extender.cli.settings import GivenSetting, resolve
from extender.domain.explain.future import Future
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.topologies import BadTopology, TopologySource
from extender.domain.model.device_requests import LogicalResources
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey
from extender.domain.placement.departures import RunTimes
from extender.domain.queues.quotas import Quotas, plan_of
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRules, JobRuntime, podgroup_of
from extender.domain.snapshot.snapshot import Limits
from extender.kube import resources
from extender.kube.calls import AUTHORS_POLICIES, MARKERS_POLICY, ApiClient
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import Resource, resource_of

T = TypeVar("T")
_POLICY_SETTINGS = (  # fields of settings that affect decisions
    *("scheduler_names", "volcano_jobs", "auto_groups", "window", "bind_deadline", "manage_jobs"),
    *("unmanaged_namespaces", "unmanaged_kinds", "max_queue_depth", "oversell", "reservations"),
    *("usage_half_life", "quota_sources"),
)
_MAX_CYCLES = 2000
_TIMEOUT = 60.0  # maximum seconds for a simulation
NO_SETTINGS = "Muster's settings may not be read here, so their defaults are assumed."


class ClockAdvance(NamedTuple):
    """Result of advancing the clock: the simulated future."""

    future: Future
    reached_limit: bool  # whether the simulation limit was reached

    @property
    def timestamp(self) -> str:
        """Return the timestamp to which the clock was advanced."""
        return self.future.snapshot.timestamp(self.future.snapshot.now)


class LiveCluster:
    """Ledger of the live cluster.

    `read_at` is the time at which the cluster was read, in seconds since 1970. `notes` name parts that could
    not be read.
    """

    def __init__(self, access: ClusterAccess) -> None:
        self._access, self.notes = access, list[str]()
        self.settings = self._settings()
        self.read_at = time.time()
        self.ledger = Ledger(
            Ownership(frozenset(self.settings.scheduler_names), self.settings.auto_groups == "on"),
            Limits(
                window=self.settings.window,
                oversell=self.settings.oversell,
                max_reserved_part=self.settings.reservations,
                usage_half_life=self.settings.usage_half_life,
                start_deadline=self.settings.bind_deadline,
            ),
            wall_clock=lambda: self.read_at,
            jobs=JobRules(
                self.settings.manage_jobs,
                frozenset(self.settings.unmanaged_namespaces),
                frozenset(self.settings.unmanaged_kinds),
            ),
            logical=LogicalResources(self.settings.logical_resources),
        )
        self.inventory = DeviceInventory(self.ledger.intake)
        self._read()

    # ---- forward in time

    def advance(self, groups: Set[GroupKey]) -> ClockAdvance:
        """Advance the clock until all `groups` have started, no event is pending, or a limit is reached."""
        snapshot, deadline = self.ledger.snapshot(), time.monotonic() + _TIMEOUT
        future = Future(snapshot, RunTimes(snapshot).expected_end)
        for _ in range(_MAX_CYCLES):
            if groups <= future.starts.keys() or not future.step():
                return ClockAdvance(future, reached_limit=False)
            if time.monotonic() > deadline:
                break
        return ClockAdvance(future, reached_limit=True)

    # ---- reading

    def _settings(self) -> Configuration:
        """Return the settings of the installation, as far as its workload shows them."""
        installation, self._is_installed = Installation(self._access._replace(namespace="")), True
        try:
            self._is_installed = bool(installation.workloads)
            serving = installation.first_workload
            given_settings: dict[str, GivenSetting] = {}
            for row in SETTINGS:
                if row.field in _POLICY_SETTINGS:
                    value = serving.settings(row.field) if row.repeatable else serving.setting(row.field)
                    given_settings[row.field] = GivenSetting(row.flag, value)
            return resolve(given_settings)
        except (ApiError, InvalidConfiguration):
            self.notes.append(NO_SETTINGS)
            return Configuration()

    def _read(self) -> None:
        """Read all objects. Pods come last, because their scheduler and queue depend on other objects."""
        intake = self.ledger.intake
        with suppress(Forbidden):
            api = ApiClient(self._access.connection)
            intake.trust_markers(api.enforces(MARKERS_POLICY))
            intake.trust_authors(all(map(api.enforces, AUTHORS_POLICIES)))
        if self.settings.volcano_jobs == "on" or not self._is_installed:  # `muster run` has no installation
            intake.leave_jobs(())
        required_kinds: Sequence[tuple[Resource, type[Any], Any]] = (
            (resources.NAMESPACES, cluster.Namespace, intake.set_namespace),
            (resources.PRIORITY_CLASSES, cluster.PriorityClass, intake.set_priority_class),
            (resources.QUEUES, queues.Queue, intake.set_queue),
            (resources.NODES, cluster.Node, intake.set_node),
            (resources.POD_GROUPS, queues.PodGroup, intake.set_group),
        )
        optional_kinds: Sequence[tuple[Resource, type[Any], Any]] = (
            (resources.LOCAL_QUEUES, queues.LocalQueue, intake.set_local_queue),
            (resources.RESOURCE_FLAVORS, queues.ResourceFlavor, intake.set_flavor),
            (resources.TOPOLOGIES, cluster.ClusterTopology, intake.set_topology),
            *(
                (resource, cluster.ClusterTopology, partial(intake.set_topology, source=TopologySource.KUEUE))
                for resource in resources.KUEUE_TOPOLOGIES
            ),
            (resources.HYPER_NODES, volcano.HyperNode, intake.set_hyper_node),
            (resources.DISRUPTION_BUDGETS, cluster.PodDisruptionBudget, intake.set_disruption_budget),
            (resources.DEVICE_CLASSES, devices.DeviceClass, self.inventory.add),
            (resources.CLAIM_TEMPLATES, devices.ResourceClaimTemplate, self.inventory.add),
            (resources.RESOURCE_CLAIMS, devices.ResourceClaim, self.inventory.add),
            (resources.RESOURCE_SLICES, devices.ResourceSlice, self.inventory.add),
            *((resource, kind, intake.set_group) for resource, kind in resources.FOREIGN_GROUPS),
            *((resource, cluster.Workload, intake.set_owner) for resource in resources.OWNERS.values()),
        )
        for resource, kind, put in required_kinds:
            for obj in self._access.reader.list(resource, "", kind):
                put(obj)
        for resource, kind, put in optional_kinds:
            for obj in self._objects_of(resource, kind):
                with suppress(BadTopology):
                    put(obj)
        self._read_quotas()
        self._read_jobs()
        for pod in self._access.reader.list(resources.PODS, "", Pod):
            self.ledger.pods.set_pod(pod)

    def _read_quotas(self) -> None:
        sources = [kind for kind in QuotaKind if kind in self.settings.quota_sources]
        by_kind = {kind: self._objects_of(*resources.QUOTAS[kind]) for kind in sources}
        kinds = (QuotaKind.ELASTIC_QUOTA_TREE, QuotaKind.ELASTIC_QUOTA, QuotaKind.RESOURCE_QUOTA)
        plan = plan_of(Quotas(*(by_kind.get(kind, []) for kind in kinds)), self.settings.max_queue_depth)
        self.ledger.intake.set_quota_namespaces(plan.namespaces)

    def _read_jobs(self) -> None:
        """Read the jobs. A job whose PodGroup Muster made waits as a whole.

        A job also says how many of its pods start together.
        """
        intake, served_versions = self.ledger.intake, self._served_versions()
        rows = [row for row in WORKLOADS.values() if row.group and row.api_version in served_versions]
        for kind in runtime_kinds(rows):
            for runtime in self._objects_of(resource_of(kind), JobRuntime):
                meta = runtime.metadata
                intake.set_runtime(RuntimeName(kind.kind, meta.namespace, meta.name), runtime.spec)
        for row in rows:
            name = JobKind(*row.key)
            for job in self._objects_of(resource_of(row), AnyJob):
                intake.set_ancestor(row.kind, job.metadata)
                podgroup = self.ledger.registry.groups.get(podgroup_of(name, job.metadata))
                is_managed = row.manageable and podgroup is not None and podgroup.record is not None
                managed_job = intake.set_job(name, job) if is_managed else None
                if row.makes_groups:
                    intake.set_controller(name, job, managed_job)

    def _served_versions(self) -> set[str]:
        """Return the API versions that the cluster serves, such as `batch/v1`."""
        document = self._access.reader.get(resources.API_GROUPS, "", "", dict[str, Any])
        groups = document.get("groups") or ()
        return {version["groupVersion"] for group in groups for version in group.get("versions") or ()}

    def _objects_of(self, resource: Resource, kind: type[T]) -> list[T]:
        """Return the objects of a kind; empty if the cluster does not serve the kind.

        A refused read is noted.
        """
        try:
            return self._access.reader.list(resource, "", kind)
        except NotFound:
            return []
        except Forbidden:
            self.notes.append(f"You may not list {resource.plural} of all namespaces: they count as absent.")
            return []
