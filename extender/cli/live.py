"""The live cluster as decisions see it, by objects of the API server alone, read with their reader's rights:
what a Muster would decide that has just read them, and, on a clock that is put forward, what once that ends
which runs now. Nothing is written.

What only a running Muster remembers is missing: how long groups ran that have ended, and failed starts."""

import time
from collections.abc import Container, Mapping, Sequence, Set
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.configuration import SETTINGS, Configuration, InvalidConfiguration
from extender.api.objects import cluster, queues
from extender.api.objects.base import Condition
from extender.api.objects.cluster import QuotaKind
from extender.api.objects.pods import Pod, PodStatus
from extender.api.units import moment, timestamp_at
from extender.api.workloads.runtimes import RuntimeName, runtime_kinds
from extender.api.workloads.table import WORKLOADS
from extender.cli.access import ClusterAccess
from extender.cli.check.findings import Installation
from extender.cli.settings import GivenSetting, resolve
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership, controller_of
from extender.domain.model.records import GroupKey, Origin, Uid
from extender.domain.placement.departures import RunTimes
from extender.domain.queues.quotas import Quotas, plan_of
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRules, JobRuntime, unit_of
from extender.domain.snapshot.snapshot import Limits
from extender.kube import resources
from extender.kube.calls import MARKS_POLICY, ApiClient
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import Resource, resource_of

T = TypeVar("T")
_POLICY = (
    "scheduler_names",
    "volcano_jobs",
    "auto_groups",
    "window",
    "bind_deadline",
    "manage_jobs",
    "unmanaged_namespaces",
    "unmanaged_kinds",
    "max_queue_depth",
    "oversell",
    "reservations",
    "usage_half_life",
    "quota_sources",
)  # settings that decisions depend on
_MOST_ROUNDS = 2000
_PATIENCE = 60.0  # seconds for which a future is worked out
_ABOUT = 1.005  # what is so much later is taken together: a round costs much on large clusters
_QUIET = 3600.0  # seconds without any event after which nothing is expected to change any more
NO_SETTINGS = "Muster's settings may not be read here, so each counts as it is by default."


class Played(NamedTuple):
    """What came of putting the clock forward."""

    starts: Mapping[GroupKey, float]  # by group after how many seconds it starts
    endless: Set[GroupKey]  # what runs, and nobody knows for how long
    is_cut: bool  # more would have happened than is looked at


class LiveCluster:
    """`notes`: what could not be read, and what that may change. `begun`: when, in seconds since 1970."""

    def __init__(self, place: ClusterAccess) -> None:
        self._place, self.notes = place, list[str]()
        self.settings = self._settings()
        self.begun, self._clock = time.time(), 0.0
        self._last = 0.0  # when anything but time last changed something
        self.ledger = Ledger(
            Ownership(frozenset(self.settings.scheduler_names), self.settings.auto_groups == "on"),
            Limits(
                window=self.settings.window,
                oversell=self.settings.oversell,
                reservations=self.settings.reservations,
                usage_half_life=self.settings.usage_half_life,
                start_deadline=self.settings.bind_deadline,
            ),
            clock=lambda: self._clock,
            wall_clock=lambda: self.begun + self._clock,
            jobs=JobRules(
                self.settings.manage_jobs,
                frozenset(self.settings.unmanaged_namespaces),
                frozenset(self.settings.unmanaged_kinds),
            ),
        )
        self._pods: dict[Uid, Pod] = {}
        self._leaving: dict[Uid, float] = {}  # when pods that are being deleted will be gone
        self._ends: dict[GroupKey, float] = {}  # when groups that run are expected to end; inf: nobody knows
        self._bound: set[Uid] = set()  # pods, also of jobs that make none here, that have started on the way
        self._read()

    @property
    def timestamp(self) -> str:
        """The moment of the clock."""
        return timestamp_at(self.begun + self._clock)

    def add(self, pod: Pod) -> None:
        uid = Uid(pod.metadata.uid)
        self._pods[uid] = pod
        self.ledger.pods.set(pod)
        if gone_by := pod.metadata.deletion_timestamp:
            self._leaving[uid] = max(moment(gone_by) - self.begun, 1.0)

    # ---- forward in time

    def play(self, wanted: Set[GroupKey]) -> "Played":
        """Until all groups have started that are `wanted`, or nothing changes any more by itself: groups end
        as is expected of them, those that start run, and who is evicted comes again."""
        starts: dict[GroupKey, float] = {}
        patience = time.monotonic() + _PATIENCE
        for _ in range(_MOST_ROUNDS):
            decisions = decide(self.ledger.snapshot(), self.ledger.decisions)
            self.ledger.publish(decisions)
            begun = [it for it in decisions.groups.values() if it.plan.keys() - self._bound]
            starts = dict.fromkeys((it.key for it in begun), self._clock) | starts
            if wanted <= starts.keys():
                return self._played(starts)
            for made in begun:
                self._bind(made)
            if self._evict(decisions) or begun:
                self._last = self._clock
            else:
                later = self._next(decisions, starts)
                if later is None:
                    return self._played(starts)
                self._clock = later
                self._end()
            if time.monotonic() > patience:
                break
        return self._played(starts, is_cut=True)

    def _played(self, starts: Mapping[GroupKey, float], is_cut: bool = False) -> "Played":
        return Played(starts, frozenset(key for key, end in self._ends.items() if end == inf), is_cut)

    def _bind(self, made: GroupDecision) -> None:
        """Its pods run. Those that a job has yet to make keep the room that is planned for them."""
        self._bound.update(made.plan)
        running = [Condition("Ready", "True", last_transition_time=self.timestamp)]
        for uid, node in made.plan.items():
            if (pod := self._pods.get(uid)) is not None:
                spec = replace(pod.spec, node_name=node, scheduling_gates=None)
                self.add(replace(pod, spec=spec, status=PodStatus("Running", running, self.timestamp)))

    def _evict(self, decisions: Decisions) -> bool:
        """Whether pods go, of which controllers make others at once."""
        undone = (uid for made in decisions.groups.values() for uid in made.undo)
        gone = [pod for uid in (*decisions.evictions, *undone) if (pod := self._pods.pop(Uid(uid), None))]
        for pod in gone:
            meta = pod.metadata
            if (record := self.ledger.pods.get(Uid(meta.uid))) is not None:
                self._ends.pop(record.group, None)
            self.ledger.pods.drop(Uid(meta.uid))
            if controller_of(meta.owner_references) is not None:
                again = replace(meta, uid=f"{meta.uid}+", creation_timestamp=self.timestamp)
                spec = replace(pod.spec, node_name="")
                self.add(replace(pod, metadata=again, spec=spec, status=PodStatus()))
        return bool(gone)

    def _next(self, decisions: Decisions, starts: Container[GroupKey]) -> float | None:
        """When something changes next. What a group is expected to need is not put off as time passes."""
        snapshot = self.ledger.snapshot()
        times = RunTimes(snapshot)
        for key, group in snapshot.groups.items():
            if key not in self._ends and (group.is_on_nodes or key in starts):
                end = times.end_of(group)
                self._ends[key] = end.at if end.is_known else inf
        ends = [at for at in (*self._ends.values(), *self._leaving.values()) if self._clock < at < inf]
        woken = decisions.wake_at
        if woken is not None and self._clock < woken <= self._last + _QUIET:
            ends.append(woken)
        first = min(ends, default=inf) * _ABOUT
        return max((at for at in ends if at <= first), default=None)

    def _end(self) -> None:
        """Of all that has ended by now, pods and groups go."""
        for uid in [uid for uid, at in self._leaving.items() if at <= self._clock]:
            self._last = self._leaving.pop(uid)
            self._pods.pop(uid, None)
            self.ledger.pods.drop(uid)
        for key in [key for key, at in self._ends.items() if at <= self._clock]:
            self._last = self._ends.pop(key)
            for member in self.ledger.groups.members(key):
                self._pods.pop(member.uid, None)
                self.ledger.pods.drop(member.uid)
            self.ledger.intake.drop_job(key)
            for origin in Origin:
                self.ledger.intake.drop_group(key, origin)

    # ---- reading

    def _settings(self) -> Configuration:
        """Those of the installation, as far as its workload says them."""
        site, self._is_installed = Installation(self._place._replace(namespace="")), True
        try:
            self._is_installed = bool(site.workloads)
            serving = site.first
            given = {
                row.field: GivenSetting(
                    row.flag, serving.settings(row.field) if row.repeatable else serving.setting(row.field)
                )
                for row in SETTINGS
                if row.field in _POLICY
            }
            return resolve(given)
        except (ApiError, InvalidConfiguration):
            self.notes.append(NO_SETTINGS)
            return Configuration()

    def _read(self) -> None:
        """Pods last: whether they are ours, and in which queue, depends on all the rest."""
        intake = self.ledger.intake
        with suppress(Forbidden):
            intake.trust_marks(ApiClient(self._place.connection).enforces(MARKS_POLICY))
        if self.settings.volcano_jobs == "on" or not self._is_installed:  # `muster run` runs them, too
            intake.leave_jobs(())
        needed: Sequence[tuple[Resource, type[Any], Any]] = (
            (resources.NAMESPACES, cluster.Namespace, intake.set_namespace),
            (resources.PRIORITY_CLASSES, cluster.PriorityClass, intake.set_priority_class),
            (resources.QUEUES, queues.Queue, intake.set_queue),
            (resources.NODES, cluster.Node, intake.set_node),
            (resources.POD_GROUPS, queues.PodGroup, intake.set_group),
        )
        optional: Sequence[tuple[Resource, type[Any], Any]] = (
            (resources.LOCAL_QUEUES, queues.LocalQueue, intake.set_local_queue),
            (resources.RESOURCE_FLAVORS, queues.ResourceFlavor, intake.set_flavor),
            (resources.DISRUPTION_BUDGETS, cluster.PodDisruptionBudget, intake.set_disruption_budget),
            *((resource, kind, intake.set_group) for resource, kind in resources.GROUPS_OF_OTHERS),
            *((resource, cluster.Workload, intake.set_owner) for resource in resources.OWNERS),
        )
        for resource, kind, put in needed:
            for obj in self._place.reader.list(resource, "", kind):
                put(obj)
        for resource, kind, put in optional:
            for obj in self._listed(resource, kind):
                put(obj)
        self._read_quotas()
        self._read_jobs()
        for pod in self._place.reader.list(resources.PODS, "", Pod):
            self.add(pod)

    def _read_quotas(self) -> None:
        found = {
            name: self._listed(*resources.QUOTAS[name])
            for name in QuotaKind
            if name in self.settings.quota_sources
        }
        kinds = (QuotaKind.ELASTIC_QUOTA_TREE, QuotaKind.ELASTIC_QUOTA, QuotaKind.RESOURCE_QUOTA)
        plan = plan_of(Quotas(*(found.get(kind, []) for kind in kinds)), self.settings.max_queue_depth)
        self.ledger.intake.set_quota_namespaces(plan.namespaces)

    def _read_jobs(self) -> None:
        """A job waits as a whole where Muster has made its group; all say how many pods start together."""
        intake, served = self.ledger.intake, self._served()
        rows = [row for row in WORKLOADS.values() if row.group and row.api_version in served]
        for kind in runtime_kinds(rows):
            for runtime in self._listed(resource_of(kind), JobRuntime):
                meta = runtime.metadata
                intake.set_runtime(RuntimeName(kind.kind, meta.namespace, meta.name), runtime.spec)
        for row in rows:
            if not (row.manageable or row.makes_groups):
                continue
            name = JobKind(*row.key)
            for job in self._listed(resource_of(row), AnyJob):
                unit = self.ledger.registry.groups.get(unit_of(name, job.metadata))
                is_managed = row.manageable and unit is not None and unit.record is not None
                known = intake.set_job(name, job) if is_managed else None
                if row.makes_groups:
                    intake.set_maker(name, job, known)

    def _served(self) -> set[str]:
        """The API groups with their versions."""
        found = self._place.reader.get(resources.API_GROUPS, "", "", dict[str, Any])
        return {
            version["groupVersion"]
            for group in found.get("groups") or ()
            for version in group.get("versions") or ()
        }

    def _listed(self, resource: Resource, kind: type[T]) -> list[T]:
        """None of a kind that the cluster does not serve; what may not be read is noted."""
        try:
            return self._place.reader.list(resource, "", kind)
        except NotFound:
            return []
        except Forbidden:
            self.notes.append(f"You may not list {resource.plural} of all namespaces: they count as absent.")
            return []
