"""The ledger: everything that Muster knows, updated event by event, and every claim on room."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from extender.api.objects.cluster import Namespace, Node, PodDisruptionBudget, PriorityClass, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, NativePodGroup, PluginsPodGroup, PodGroup, Queue
from extender.api.workloads.runtimes import RuntimeName
from extender.api.workloads.shape import Json
from extender.domain.ledger.assumed_pods import Confirmation, PreemptionGrants, Reservations
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.expected_members import ExpectedMembers
from extender.domain.ledger.group_views import GroupViews
from extender.domain.ledger.intake import DisruptionBudgets, Intake, PodIntake
from extender.domain.ledger.publishing import Publishing
from extender.domain.ledger.queries import LedgerQueries
from extender.domain.ledger.shown_pods import ShownPods
from extender.domain.ledger.state import Parts
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, Origin, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRules
from extender.domain.snapshot.snapshot import Limits, Snapshot

__all__ = ["Confirmation", "Ledger"]


class Ledger(LedgerQueries):
    """`clock` is monotonic, in seconds; `wall_clock` counts them since 1970. `on_change` is called, under the
    lock, when a decision may change, `on_shown` when the scheduler is to be shown something else; None: it
    reads its pods from the API."""

    def __init__(
        self,
        ownership: Ownership,
        limits: Limits | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        lock: AbstractContextManager[object] | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_shown: Callable[[], None] | None = None,
        wall_clock: Callable[[], float] = lambda: 0.0,
        jobs: JobRules | None = None,
    ) -> None:
        self.limits = limits or Limits()
        parts = Parts.of(self.limits, clock, on_change, on_shown)
        lock, jobs = lock or nullcontext(), jobs or JobRules()
        pods = PodIntake(parts, ownership)
        views = GroupViews(parts.registry, parts.claims)
        budgets = DisruptionBudgets(parts.changes)
        self._expected = ExpectedMembers(parts, pods, jobs, self.limits.expected_pods)
        publishing = Publishing(parts, self.limits, views, self._expected, budgets, wall_clock, pods.others)
        self._attendance = parts.attendance
        self._disruption_budgets = budgets
        self._intake = Intake(parts, pods, jobs)
        self._reservations = Reservations(parts, pods.pods, lambda: publishing.decisions)
        self._grants = PreemptionGrants(pods.pods, parts.registry, parts.claims, clock)
        self.shown = ShownPods(parts, lock, pods)
        super().__init__(lock, parts.registry, views, parts.claims, pods, publishing, parts.changes)

    # ---- from the watches

    def set_node(self, node: Node) -> None:
        """Raises BadQuantity."""
        with self._lock:
            self._intake.set_node(node)

    def drop_node(self, name: str) -> None:
        with self._lock:
            self._intake.drop_node(name)

    def set_pod(self, pod: Pod) -> None:
        """Raises BadQuantity."""
        with self._lock:
            self._pod_intake.set_pod(pod)

    def drop_pod(self, uid: Uid) -> None:
        with self._lock:
            self._pod_intake.drop_pod(uid)

    def leave(self, schedulers: frozenset[str]) -> None:
        """From now on pods of these schedulers are left to another scheduler; all others are ours again."""
        with self._lock:
            self._pod_intake.leave(schedulers)

    def set_group(self, group: PodGroup | PluginsPodGroup | NativePodGroup) -> None:
        with self._lock:
            self._intake.set_group(group)

    def drop_group(self, key: GroupKey, origin: Origin = Origin.VOLCANO) -> None:
        with self._lock:
            self._intake.drop_group(key, origin)

    def set_owner(self, workload: Workload) -> bool:
        """A controller of pods. True if anything changed that matters for their group."""
        with self._lock:
            return self._intake.set_owner(workload)

    def drop_owner(self, namespace: str, uid: str) -> None:
        with self._lock:
            self._intake.drop_owner(namespace, uid)

    def set_job(self, kind: JobKind, job: AnyJob) -> None:
        with self._lock:
            self._intake.set_job(kind, job)

    def drop_job(self, namespace: str, uid: str) -> None:
        with self._lock:
            self._intake.drop_job(namespace, uid)

    def set_runtime(self, name: RuntimeName, spec: Json) -> Collection[GroupKey]:
        """An object that has the templates of jobs. Returns the jobs that are to be read again."""
        with self._lock:
            return self._registry.runtimes.put(name, spec)

    def drop_runtime(self, name: RuntimeName) -> Collection[GroupKey]:
        """Returns the jobs that are to be read again."""
        with self._lock:
            return self._registry.runtimes.drop(name)

    def read_job_again(self, key: GroupKey) -> None:
        """A job whose runtime has changed: one at a time, since there may be many."""
        with self._lock:
            self._intake.read_again(key)

    def give_up_start(self, key: GroupKey, why: str) -> None:
        """The job of a group did not get going in time: the group waits again, and backs off."""
        with self._lock:
            self._publishing.give_up_start(key, why)

    def set_queue(self, queue: Queue) -> None:
        with self._lock:
            self._intake.set_queue(queue)

    def drop_queue(self, name: str) -> None:
        with self._lock:
            self._intake.drop_queue(name)

    def set_local_queue(self, local: LocalQueue) -> None:
        with self._lock:
            self._intake.set_local_queue(local)

    def drop_local_queue(self, key: str) -> None:
        """`key`: namespace/name."""
        with self._lock:
            self._intake.drop_local_queue(key)

    def note_kueue(self, is_served: bool) -> None:
        """Whether the cluster has Kueue's own LocalQueues, so that its labels may be meant for those."""
        with self._lock:
            self._intake.note_kueue(is_served)

    def set_namespace(self, namespace: Namespace) -> None:
        with self._lock:
            self._intake.set_namespace(namespace)

    def drop_namespace(self, name: str) -> None:
        with self._lock:
            self._intake.drop_namespace(name)

    def set_quota_namespaces(self, queues: Mapping[str, str]) -> None:
        """By namespace: the queue that its quota gives it, which counts where its annotation names none."""
        with self._lock:
            self._intake.set_quota_namespaces(queues)

    def set_priority_class(self, priority: PriorityClass) -> None:
        with self._lock:
            self._intake.set_priority_class(priority)

    def drop_priority_class(self, name: str) -> None:
        with self._lock:
            self._intake.drop_priority_class(name)

    def set_disruption_budget(self, budget: PodDisruptionBudget) -> None:
        with self._lock:
            self._disruption_budgets.put(budget)

    def drop_disruption_budget(self, namespace: str, name: str) -> None:
        with self._lock:
            self._disruption_budgets.drop(namespace, name)

    def trust_marks(self, kept: bool) -> None:
        """Whether marks on PodGroups count: only if `kept`, that is, if the API server lets only Muster write
        them."""
        with self._lock:
            self._intake.trust_marks(kept)

    def note_asked(self) -> None:
        """The scheduler asks about a pod, so it is running."""
        if self._attendance.note_asked():
            with self._lock:
                self._changes.mark()

    def set_leading(self, leading: bool) -> None:
        """Whether decisions made here take effect."""
        if self._attendance.set_leading(leading):
            with self._lock:
                self._changes.mark()

    # ---- for the verbs

    def answer(self, uid: Uid, nodes: Sequence[str]) -> list[str] | Reason:
        """The offered `nodes` that a pod of ours may use; its claim moves with the answer."""
        with self._lock:
            return self._reservations.answer(uid, nodes)

    def hold(self, uid: Uid, node: str, token: int) -> Reason | None:
        """A bind call, identified by `token`, arrived for a pod. A reason if it must be refused."""
        with self._lock:
            return self._reservations.hold(uid, node, token)

    def confirm(self, key: GroupKey) -> Confirmation:
        """The last check of a group whose bound and held members make it whole."""
        with self._lock:
            return self._reservations.confirm(key)

    def release(self, uid: Uid, token: int) -> None:
        """The bind call identified by `token` ended without a binding."""
        with self._lock:
            self._reservations.release(uid, token)

    def posted_before(self, moment: float) -> list[Claim]:
        """Claims whose binding was posted before `moment` and that no watch has confirmed since."""
        with self._lock:
            return self._reservations.posted_before(moment)

    def fullness(self, uid: Uid, nodes: Sequence[str]) -> dict[str, float]:
        """By node: the part of its scarcest resource that would be taken with the pod on it, 0 … 1."""
        with self._lock:
            return self._reservations.fullness(uid, nodes)

    def may_clear(
        self, claimant: Uid, victims: Mapping[str, Sequence[Uid]], is_confirmed: bool = False
    ) -> set[str]:
        """The nodes whose victims a pod that is not ours may evict without breaking a gang or a start under
        way. `is_confirmed`: the API server has the pod, whether the watch has shown it or not."""
        with self._lock:
            return self._grants.may_clear(claimant, victims, is_confirmed)

    # ---- for decisions

    def snapshot(self) -> Snapshot:
        with self._lock:
            return self._publishing.snapshot()

    def spare(self, uid: Uid) -> None:
        """The eviction of a pod was refused: for a while it is no victim."""
        with self._lock:
            self._publishing.spare(uid)

    def publish(self, decisions: Decisions) -> None:
        """Turn plans into claims. Claims that filter has pinned since the snapshot was taken stay as they
        are."""
        with self._lock:
            self._publishing.publish(decisions)
