"""Rules of each path: for queues, flavors, LocalQueues, PodGroups, Jobs and pods.

Some rules set defaults. The others check whether the queue accepts the object, and whether the author may use
the queue.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from extender.api.admission import (
    CREATE,
    DELETE,
    RESIZE,
    UPDATE,
    AnyObject,
    Job,
    NewOtherGroup,
    NewPod,
    ReviewRequest,
)
from extender.api.keys import DEFAULT_SCHEDULER, SUBMITTER
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.queues import LocalQueue, PodGroup, Queue, ResourceFlavor
from extender.api.objects.volcano import CronJob, VolcanoJob
from extender.api.workloads.operators import VOLCANO, VOLCANO_JOB
from extender.domain.admission.access import (
    ACCOUNT_PREFIX,
    Subject,
    acts_for_owners,
    is_cluster_controller,
    missing_right_fault,
    subject,
    subjects_of_pod,
    subjects_of_template,
    unknown_right_fault,
    unreviewed_pods_fault,
)
from extender.domain.admission.faults import (
    Code,
    Fault,
    KnownLevels,
    NamedLevel,
    contradicting_levels,
    ignored_fields,
    level_faults,
    named_levels,
    review_on_lost_domain,
    workload_warnings,
)
from extender.domain.admission.queues import (
    deserved_warnings,
    flavor_warnings,
    guarantee_warnings,
    queue_defaults,
    review_deletion,
    review_flavor,
    review_flavor_deletion,
    review_queue,
)
from extender.domain.admission.submission import (
    Destination,
    QueueLookup,
    annotate,
    annotation_warnings,
    destination_of_group,
    destination_of_other_group,
    destination_of_pod,
    group_defaults,
    job_queue_default,
    pod_defaults,
    queue_named_in,
    request_growth,
    review_budgets,
    review_entry,
    review_growth,
    review_job_entry,
    review_move,
    review_topologies,
)
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import controller_of, group_name, is_adoptable, podgroup_name
from extender.domain.model.queue_of_group import (
    author_record,
    explicit_queue,
    local_queue_label,
    may_use_annotation,
    recorded_author,
)
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.jobs import AnyJob, JobKind, queue_named_by
from extender.domain.snapshot.nodes import NodeTable
from extender.kube.resources import POD_GROUPS
from extender.volcano.admission import job_defaults, job_warnings, review_change, review_gang, review_new
from extender.webhooks.lookups import LatestQueues, MayUse
from extender.webhooks.reviews import NotKnown, Path, ReviewOutcome, Rule, read, read_if_there

_PROGRAM_PREFIX = "system:"  # prefix of service accounts and components of Kubernetes
_MUSTER_PREFIX = f"{ACCOUNT_PREFIX}kube-muster:"  # accounts of Muster, which creates groups for users
_BATCH_GROUP = "batch"
_MAX_LEVEL_WARNINGS = 8
_POD_GROUP = "PodGroup"
_CRON_JOB = JobKind(VOLCANO_JOB.api_version, "CronJob")  # kind of CronJobs, whose Jobs enter a queue

D = TypeVar("D", Destination, Destination | None)
EntryCheck = Callable[[Destination, QueueLookup], list[Fault]]  # faults of a queue that accepts no new work


class EntryRules:
    """Rules of entry into queues, for one review. Each queue is read at most once."""

    def __init__(self, ledger: Ledger, latest: LatestQueues, may_use: MayUse) -> None:
        self._ledger = ledger
        self.latest = latest
        self._may_use = may_use

    def destination(self, find: Callable[[QueueLookup], D]) -> D:
        """Return the destination that `find` returns for the ledger's queues or for the newest queues.

        The newest queues are read if the ledger does not know the LocalQueue. The LocalQueue can lead to a
        restricted queue.
        """
        target = find(self._ledger.queues)
        return find(self.latest) if target is not None and target.leads_nowhere else target

    def review(self, target: Destination, check: EntryCheck, *subjects: Subject) -> list[Fault]:
        """Return the reasons why the queue does not accept an object.

        It is also a reason if `subjects` are given, and none of them has the right to use the queue.
        """
        if check(target, self._ledger.queues):  # ask the API server, as the ledger may lag
            faults = check(target, self.latest)
            if faults:
                return faults
        return self.review_use(target, *subjects)

    def review_use(self, target: Destination, *subjects: Subject) -> list[Fault]:
        """Return a fault if the queue is restricted and `subjects` are given, but no subject may use it."""
        if not subjects or not self.is_restricted(target):
            return []
        try:
            may_use = any(self._may_use(user, target.queue, self.latest.seconds_left()) for user in subjects)
        except NotKnown as fault:
            return [unknown_right_fault(target, str(fault))]
        return [] if may_use else [missing_right_fault(target, subjects)]

    def is_restricted(self, target: Destination) -> bool:
        """Return whether only users with a right may use the queue."""
        if target.leads_nowhere:
            return False
        info = self._ledger.queues.info(target.queue) or self.latest.info(target.queue)
        return info is not None and info.record.is_restricted


def with_warnings(review: Rule, ledger: Ledger) -> Rule:
    """Return the rule with further faults of annotations, and with warnings.

    The warnings are about unreadable annotations, ignored fields, and unknown levels.
    """

    def review_with_warnings(request: ReviewRequest) -> ReviewOutcome:
        outcome, meta = review(request), read(request.object, AnyObject).metadata
        pods = read(request.object, Job).pod if request.kind.group == _BATCH_GROUP else None
        warnings = [*outcome.warnings, *annotation_warnings(meta, pods), *_ignored_field_warnings(request)]
        former_faults = [*review_on_lost_domain(read_if_there(request.old_object, dict[str, Any]) or {})]
        current_faults = review_on_lost_domain(read(request.object, dict[str, Any]))
        faults = [*outcome.faults, *(fault for fault in current_faults if fault not in former_faults)]
        texts = set(map(str, faults))
        level_warnings = [warning for warning in _level_warnings(request, ledger) if warning not in texts]
        return outcome._replace(faults=faults, warnings=[*warnings, *level_warnings])

    return review_with_warnings


def _ignored_field_warnings(request: ReviewRequest) -> list[str]:
    """Return warnings about ignored fields for the author of a new object.

    Objects with a controller get no warnings, since controllers do not read them.
    """
    meta = read(request.object, AnyObject).metadata
    if request.operation != CREATE or controller_of(meta.owner_references):
        return []
    return ignored_fields(request.kind.group, request.kind.kind, read(request.object, dict[str, Any]))


def _level_warnings(request: ReviewRequest, ledger: Ledger) -> list[str]:
    """Return warnings about levels of topologies for the author of a new object."""
    meta = read(request.object, AnyObject).metadata
    if request.operation != CREATE or controller_of(meta.owner_references):
        return []
    levels = [*named_levels(read(request.object, dict[str, Any]))]
    return [*map(str, _unknown_levels(levels, ledger)), *contradicting_levels(levels)][:_MAX_LEVEL_WARNINGS]


def _unknown_levels(wanted_levels: Sequence[NamedLevel], ledger: Ledger) -> list[Fault]:
    """Return faults for unknown levels; an empty list while no node is known."""
    table = ledger.node_table() if wanted_levels else NodeTable()
    down_to = table.topologies.levels_down_to
    known = KnownLevels(table.topologies.levels, lambda level: table.has_label(level) or not down_to(level))
    return list(level_faults(wanted_levels, known)) if table.row_of else []


class AdmissionRules:
    """Admission rules by path.

    Attributes:
        new_latest: Returns a new reader of the newest queues, for one review.
        schedulers: Values of spec.schedulerName. Pods in adopted namespaces get the first value.
        runs_volcano_jobs: Whether Muster, and not Volcano, runs Volcano Jobs.
        has_gates: Whether waiting pods have gates, instead of being hidden in the scheduler proxy.
    """

    def __init__(
        self,
        ledger: Ledger,
        new_latest: Callable[[], LatestQueues],
        may_use: MayUse,
        schedulers: Sequence[str],
        max_depth: int,
        runs_volcano_jobs: Callable[[], bool],
        has_gates: bool = True,
    ) -> None:
        self._ledger = ledger
        self._new_latest = new_latest
        self._may_use = may_use
        self._schedulers = schedulers
        self._max_depth = max_depth  # maximum number of levels below the root queue
        self._runs_volcano_jobs = runs_volcano_jobs
        self._has_gates = has_gates

    def paths(self) -> dict[str, Path]:
        """Return the rules by path."""
        warning_rule = partial(with_warnings, ledger=self._ledger)
        return {
            "/queues/mutate": Path(self.fill_in_queue, (CREATE,), needs_sync=False),
            "/queues/validate": Path(self.review_queue, (CREATE, UPDATE, DELETE)),
            "/resourceflavors/validate": Path(self.review_flavor, (CREATE, UPDATE, DELETE)),
            "/localqueues/validate": Path(self.review_local_queue, (CREATE, UPDATE)),
            "/podgroups/mutate": Path(self.fill_in_group, (CREATE,), needs_sync=False),
            "/podgroups/validate": Path(warning_rule(self.review_group), (CREATE, UPDATE)),
            "/other-podgroups/validate": Path(
                warning_rule(self.review_other_group), (CREATE, UPDATE), is_optional=True
            ),
            "/jobs/mutate": Path(self.fill_in_job, (CREATE,), needs_sync=False),
            "/jobs/validate": Path(warning_rule(self.review_job), (CREATE, UPDATE), is_optional=True),
            "/workloads/validate": Path(
                warning_rule(self.review_workload), (CREATE, UPDATE), needs_sync=False, is_optional=True
            ),
            "/use/mutate": Path(self.record_use, (CREATE, UPDATE), is_optional=True),
            "/authors/mutate": Path(self.record_author, (CREATE, UPDATE), needs_sync=False, is_optional=True),
            "/pods/mutate": Path(self.fill_in_pod, (CREATE,), needs_sync=False),
            "/pods/validate": Path(warning_rule(self.review_pod), (CREATE, UPDATE), is_optional=True),
        }

    def _entry_rules(self) -> EntryRules:
        return EntryRules(self._ledger, self._new_latest(), self._may_use)

    def fill_in_queue(self, request: ReviewRequest) -> ReviewOutcome:
        has_weight = "weight" in (read(request.object, dict[str, Any]).get("spec") or {})
        return ReviewOutcome(patch=queue_defaults(read(request.object, Queue), has_weight))

    def review_queue(self, request: ReviewRequest) -> ReviewOutcome:
        """Review a queue. Before a queue is refused, its ancestors are read from the API server."""
        before = read_if_there(request.old_object, Queue)
        tree = self._ledger.queues.tree()
        if request.operation == DELETE:  # when a whole collection is deleted, only the object has the name
            name = request.name or (before.metadata.name if before else "")
            return ReviewOutcome(review_deletion(name, tree))
        queue = read(request.object, Queue)
        faults = review_queue(queue, before, tree, self._max_depth)
        if faults and queue.spec.parent:
            newest_tree = self._new_latest().with_ancestry(tree, queue.spec.parent)
            faults = review_queue(queue, before, newest_tree, self._max_depth)
        if faults:
            return ReviewOutcome(faults)
        total = self._ledger.offered_amounts()
        unmet = [*guarantee_warnings(queue, before, tree, total), *deserved_warnings(queue, before, total)]
        warnings = [*unmet, *flavor_warnings(queue, before, tree), *_ignored_field_warnings(request)]
        return ReviewOutcome(warnings=warnings)

    def review_flavor(self, request: ReviewRequest) -> ReviewOutcome:
        if request.operation == DELETE:
            old_flavor = read_if_there(request.old_object, ResourceFlavor)
            name = request.name or (old_flavor.metadata.name if old_flavor else "")
            return ReviewOutcome(list(review_flavor_deletion(name, self._ledger.queues.tree())))
        flavor = read(request.object, ResourceFlavor)
        unused_text = "spec.tolerations: not used; pods must tolerate the taints of nodes themselves"
        warnings = [unused_text] if flavor.spec.tolerations else []
        return ReviewOutcome(list(review_flavor(flavor)), warnings=warnings)

    def review_local_queue(self, request: ReviewRequest) -> ReviewOutcome:
        """Review a LocalQueue. If its queue is restricted, the author needs the right to use the queue."""
        local, old_queue = read(request.object, LocalQueue), read_if_there(request.old_object, LocalQueue)
        if old_queue is not None and old_queue.spec.queue == local.spec.queue:
            return ReviewOutcome()
        target = Destination(local.spec.queue, "spec.queue")
        return ReviewOutcome(self._entry_rules().review_use(target, subject(request.user_info)))

    def fill_in_group(self, request: ReviewRequest) -> ReviewOutcome:
        group = read(request.object, PodGroup)
        namespace = request.namespace or group.metadata.namespace
        creator = None if _is_by_muster(request) else _creator(request)
        return ReviewOutcome(patch=group_defaults(group, namespace, creator, self._ledger.queues))

    def review_group(self, request: ReviewRequest) -> ReviewOutcome:
        """Review a group. An update is reviewed only if it names another queue or another LocalQueue."""
        group, is_update = read(request.object, PodGroup), request.operation == UPDATE
        meta, namespace = group.metadata, request.namespace or group.metadata.namespace
        topologies = [*review_topologies(group), *self._unknown_levels(request)]
        if is_update:
            old_group = read(request.old_object, PodGroup)
            is_same_label = local_queue_label(old_group.metadata) == local_queue_label(meta)
            if is_same_label and old_group.spec.queue == group.spec.queue:
                return ReviewOutcome(topologies)
        entry, queue, key = self._entry_rules(), group.spec.queue, GroupKey(f"{namespace}/{meta.name}")
        target = entry.destination(partial(destination_of_group, meta, namespace, queue))
        is_by_muster = _is_by_muster(request)  # Muster creates groups only for reviewed pods and jobs
        users = [] if is_by_muster else [subject(request.user_info)]
        faults = entry.review(target, review_entry, *users)
        if is_update or explicit_queue(queue):  # a LocalQueue can lead to another queue meanwhile
            faults += review_move(target, self._ledger.groups.start_queue(key))
        if is_by_muster:  # with a missing queue, the group waits and its status says why
            faults = [fault for fault in faults if fault.code is not Code.QUEUE_NOT_FOUND]
        elif not faults and not is_update and entry.is_restricted(target):
            # Pods that already wait were reviewed before the group had this queue.
            members = self._ledger.groups.members(key)
            if unreviewed_count := sum(pod.is_waiting and not pod.is_auto for pod in members):
                faults = [unreviewed_pods_fault(target, unreviewed_count)]
        return ReviewOutcome([*faults, *topologies])

    def _unknown_levels(self, request: ReviewRequest) -> list[Fault]:
        """Return faults for unknown levels that a user adds to a group."""
        if _is_by_muster(request) or controller_of(read(request.object, AnyObject).metadata.owner_references):
            return []
        old_levels = named_levels(read_if_there(request.old_object, dict[str, Any]) or {})
        old_names = {named.level for named in old_levels}
        new_levels = named_levels(read(request.object, dict[str, Any]))
        return _unknown_levels([named for named in new_levels if named.level not in old_names], self._ledger)

    def review_other_group(self, request: ReviewRequest) -> ReviewOutcome:
        """Review a PodGroup of scheduler-plugins or of Kubernetes. Only its queue is reviewed."""
        entry = self._entry_rules()

        def destination(raw: msgspec.Raw) -> Destination | None:
            group = read(raw, NewOtherGroup)
            namespace = request.namespace
            return entry.destination(lambda cluster: destination_of_other_group(group, namespace, cluster))

        target = destination(request.object)
        if target is None:
            return ReviewOutcome()
        if request.operation == UPDATE:
            old_target = destination(request.old_object)
            if old_target is not None and old_target.queue == target.queue:
                return ReviewOutcome()
        name = request.name or read(request.object, NewOtherGroup).metadata.name
        moves = review_move(target, self._ledger.groups.start_queue(GroupKey(f"{request.namespace}/{name}")))
        return ReviewOutcome([*entry.review(target, review_entry, subject(request.user_info)), *moves])

    def review_job(self, request: ReviewRequest) -> ReviewOutcome:
        """Review the queue of a Job's pods. Warn if the queue that the Job names does not accept the Job."""
        entry = self._entry_rules()
        if request.kind.group == VOLCANO_JOB.group:
            return self._review_volcano_job(request, entry)
        job, job_entry = read(request.object, Job), self._job_entry_check()
        pod = _with_namespace(job.pod, request)
        starts_at_once = not job.spec.suspend  # otherwise the job itself waits
        target = self._destination(pod, "spec.template.", job.metadata if starts_at_once else None)
        if target is None:
            return ReviewOutcome()
        if request.operation == UPDATE:
            before = read(request.old_object, Job)
            if self._had_same_queue(before.pod, target, request, before.metadata if starts_at_once else None):
                return ReviewOutcome()
        is_by_muster = _is_by_muster(request)  # Muster unsuspends jobs and writes their group
        owner = controller_of(job.metadata.owner_references)
        needs_right = not (is_by_muster or self._is_made_by_operator(pod, owner, target, request))
        users = subjects_of_template(pod, request.user_info) if needs_right else ()
        job_target = queue_named_in(job.metadata)
        faults = entry.review(target, job_entry, *users)
        if job_target is None or faults:
            return ReviewOutcome(faults)
        job_target = replace(job_target, namespace=pod.metadata.namespace)
        faults = [] if owner else entry.review_use(job_target, *users)
        if faults:
            return ReviewOutcome(faults)
        warnings = [f"the job waits: {fault}" for fault in entry.review(job_target, job_entry)]
        return ReviewOutcome(warnings=warnings)

    def _review_volcano_job(self, request: ReviewRequest, entry: EntryRules) -> ReviewOutcome:
        """Review queue and gang of a new job. If Muster runs Volcano Jobs, review all other fields, too."""
        job, runs_jobs = read(request.object, VolcanoJob), self._runs_volcano_jobs()
        meta, spec, namespace = job.metadata, job.spec, request.namespace or job.metadata.namespace
        if spec.scheduler_name and spec.scheduler_name not in self._schedulers:
            return ReviewOutcome()
        if request.operation == UPDATE:
            if not runs_jobs:
                return ReviewOutcome()
            return ReviewOutcome(review_change(read(request.old_object, VolcanoJob), job))
        target = entry.destination(partial(destination_of_group, meta, namespace, spec.queue))
        # Muster creates jobs only for CronJobs. Such a job waits if the CronJob lacks the record of a right.
        users = [] if _is_by_muster(request) else [subject(request.user_info)]
        faults = entry.review(target, self._job_entry_check(), *users)
        job_faults = review_new(job) if runs_jobs else review_gang(spec)
        return ReviewOutcome([*job_faults, *faults], warnings=job_warnings(job) if runs_jobs else [])

    def fill_in_job(self, request: ReviewRequest) -> ReviewOutcome:
        job, schedulers = read(request.object, VolcanoJob), self._schedulers
        if not (job.spec.tasks and self._runs_volcano_jobs()):  # a job without tasks will be refused
            return ReviewOutcome()
        namespace = request.namespace or job.metadata.namespace
        queue = job_queue_default(job.metadata, namespace, job.spec.queue, self._ledger.queues)
        scheduler = VOLCANO if VOLCANO in schedulers else min(schedulers)
        return ReviewOutcome(patch=[*job_defaults(job, scheduler), *queue])

    def review_workload(self, request: ReviewRequest) -> ReviewOutcome:
        """Review an object whose controller makes pods or jobs. The object gets only warnings.

        The pods or jobs may be refused later.
        """
        workload = read(request.object, dict[str, Any])
        return ReviewOutcome(warnings=[*workload_warnings(workload, self._schedulers)])

    def _job_entry_check(self) -> EntryCheck:
        """Return the check whether a queue accepts a job."""
        return partial(review_job_entry, read_tree=self._ledger.queues.tree)

    def record_use(self, request: ReviewRequest) -> ReviewOutcome:
        """Record that the author of an object may use the restricted queue that the object enters.

        Without this record, the object waits, and its author gets a warning. No object is refused here,
        because operators also create jobs for other users.
        """
        if _is_by_muster(request):
            return ReviewOutcome()
        entry, kind = self._entry_rules(), request.kind
        job = read(request.object, AnyJob)
        meta = replace(job.metadata, namespace=request.namespace or job.metadata.namespace)
        users: tuple[Subject, ...] = (subject(request.user_info),)
        if kind.kind == "Pod":
            pod = _with_namespace(read(request.object, NewPod), request)
            target, users = self._destination(pod), subjects_of_pod(pod, request.user_info)
        elif kind.group == POD_GROUPS.group:
            queue = read(request.object, PodGroup).spec.queue
            target = entry.destination(partial(destination_of_group, meta, meta.namespace, queue))
        else:
            job_kind, queued_job = JobKind(f"{kind.group}/{kind.version}", kind.kind), job
            if job_kind == _CRON_JOB:
                template = read(request.object, CronJob).spec.job_template
                job_kind, queued_job = JobKind(*VOLCANO_JOB.key), AnyJob(template.metadata, template.spec)
            queue_name = queue_named_by(job_kind, queued_job, self._ledger.intake.jobs.table)
            job_meta = queued_job.metadata
            target = entry.destination(partial(destination_of_group, job_meta, meta.namespace, queue_name))
            if kind.group == _BATCH_GROUP:
                pod = _with_namespace(read(request.object, Job).pod, request)
                users = subjects_of_template(pod, request.user_info)
        if target is None:
            return ReviewOutcome()
        author = _authorship(request)
        if not users or not entry.is_restricted(target):
            return ReviewOutcome(patch=annotate(meta, author))
        if faults := entry.review_use(target, *users):
            warnings = [f"it will wait: {fault}" for fault in faults]
            return ReviewOutcome(warnings=warnings, patch=annotate(meta, author))
        return ReviewOutcome(patch=annotate(meta, {**may_use_annotation(target.queue, kind.kind), **author}))

    def record_author(self, request: ReviewRequest) -> ReviewOutcome:
        """Record the author of an object whose pods enter the queue of the object."""
        return ReviewOutcome(patch=annotate(read(request.object, AnyObject).metadata, _authorship(request)))

    def fill_in_pod(self, request: ReviewRequest) -> ReviewOutcome:
        """Set the defaults of a pod that Muster starts, or that it adopts because of the pod's namespace."""
        pod, user = _with_namespace(read(request.object, NewPod), request), request.user_info.username
        is_default = DEFAULT_SCHEDULER in self._schedulers  # then no pods are adopted
        adopts = self._ledger.queues.adopts(pod.metadata.namespace) and not is_default and is_adoptable(pod)
        if not (adopts or self._ledger.pods.owns(pod)):
            return ReviewOutcome()
        scheduler = self._schedulers[0] if adopts else ""
        obj = read(request.object, dict[str, Any])
        patch = pod_defaults(obj, user, scheduler, is_gated=self._has_gates, adds_markers=is_default)
        return ReviewOutcome(patch=patch)

    def review_pod(self, request: ReviewRequest) -> ReviewOutcome:
        """Review a pod's queue when a pod is created, changes its queue, or grows by a resize."""
        pod = _with_namespace(read(request.object, NewPod), request)
        target = self._destination(pod)
        if request.sub_resource == RESIZE:
            if not target or not pod.spec.node_name:  # a pending pod is evaluated with its new requests
                return ReviewOutcome()
            increase = request_growth(read(request.old_object, NewPod), pod)
            if not increase:
                return ReviewOutcome()
            check = partial(review_growth, increase, ceilings=tuple(self._ledger.ceilings(target.queue)))
            users = subjects_of_template(pod, request.user_info)
            return ReviewOutcome(self._entry_rules().review(target, check, *users))
        if request.operation == UPDATE:
            if target is None or self._had_same_queue(read(request.old_object, NewPod), target, request):
                return ReviewOutcome()
        elif budgets := list(review_budgets(pod) if self._ledger.pods.owns(pod) else ()):
            return ReviewOutcome(budgets)
        if target is None:
            return ReviewOutcome()
        needs_right = not self._is_made_by_operator(pod, pod.controller, target, request)
        users = subjects_of_pod(pod, request.user_info) if needs_right else ()
        return ReviewOutcome(self._entry_rules().review(target, review_entry, *users))

    def _destination(self, pod: NewPod, path: str = "", job: Meta | None = None) -> Destination | None:
        """Return the destination of a pod or of a job's pods; None for pods of another scheduler."""
        if not self._ledger.pods.owns(pod):
            return None
        return self._entry_rules().destination(lambda cluster: destination_of_pod(pod, cluster, path, job))

    def _is_made_by_operator(
        self, pod: NewPod, owner: OwnerReference | None, target: Destination, request: ReviewRequest
    ) -> bool:
        """Return whether an operator creates the pod or job for an owner whose author may use the queue.

        An operator is an account of another namespace. The rights of the operator do not matter. Muster
        trusts the owner references that operators write, and the owner references that Muster itself writes
        on pods of Volcano Jobs.
        """
        user, namespace, may_use = request.user_info, pod.metadata.namespace, self._ledger.groups.may_use
        is_by_operator = acts_for_owners(user, namespace) and not is_cluster_controller(user)
        group = group_name(pod)
        is_owner_group = owner is not None and group == podgroup_name(owner) and target.is_joining
        if is_by_operator and target.is_by_owner and not group:  # the ledger checks the owner's right
            return True
        return is_by_operator and is_owner_group and may_use(GroupKey(f"{namespace}/{group}"), target.queue)

    def _had_same_queue(
        self, old_pod: NewPod, target: Destination, request: ReviewRequest, job: Meta | None = None
    ) -> bool:
        """Return whether the old version of an object had the same queue."""
        former_target = self._destination(_with_namespace(old_pod, request), "", job)
        return former_target is not None and former_target.queue == target.queue


def _authorship(request: ReviewRequest) -> Mapping[str, str]:
    """Return the record of the user who makes an object.

    An update keeps the record. If an object has no record, the first user who changes the object counts as
    the author. Volcano's PodGroups get their record in `fill_in_group`.
    """
    kind = request.kind.kind
    if kind == _POD_GROUP:
        is_new = request.operation == CREATE and request.kind.group != POD_GROUPS.group
        user, meta = _creator(request), read(request.object, AnyObject).metadata
        has_record = SUBMITTER in (meta.annotations or {})  # an empty record replaces it
        return {SUBMITTER: user} if is_new and (user or has_record) else {}
    before = read_if_there(request.old_object, AnyObject) if request.operation == UPDATE else None
    user = recorded_author(before.metadata, kind) if before is not None else ""
    is_by_program = before is not None and request.user_info.username.startswith(_PROGRAM_PREFIX)
    if not user and not is_by_program:
        user = _creator(request)
    return author_record(kind, user)


def _creator(request: ReviewRequest) -> str:
    """Return the user who creates an object; empty if an account creates the object for its owner.

    If the result is empty, the author of the owner counts. A pod with a controller is in the group of its
    controller, so its creator never counts.
    """
    user, meta = request.user_info, read(request.object, AnyObject).metadata
    namespace = request.namespace or meta.namespace
    has_owner = controller_of(meta.owner_references) is not None
    is_for_owner = has_owner and (request.kind.kind == "Pod" or acts_for_owners(user, namespace))
    return "" if is_for_owner or _is_by_muster(request) else user.username


def _is_by_muster(request: ReviewRequest) -> bool:
    """Return whether Muster sends the request. Muster creates pods, groups and jobs for users."""
    return request.user_info.username.startswith(_MUSTER_PREFIX)


def _with_namespace(pod: NewPod, request: ReviewRequest) -> NewPod:
    """Return a pod with the namespace of the request, since a pod template names no namespace."""
    namespace = request.namespace or pod.metadata.namespace
    return replace(pod, metadata=replace(pod.metadata, namespace=namespace))
