"""A ledger from a snapshot: records from which the same views follow, and what is remembered of groups.

A snapshot has what decisions depend on, not the objects behind it: a restored job makes the pods that are
expected of it, and a restored namespace has the label by which queues refuse it. Later pods of a job that
runs are not known.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import PriorityClass
from extender.api.objects.pods import LabelSelector, PodSpec, Requirement
from extender.api.workloads.gangs import MadePods
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import OwnerRecord
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.records import GroupRecord, PodRecord, Uid, group_of_owner
from extender.domain.queues.flavors import SharedFlavor
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.job_suspension import ComingPods
from extender.domain.snapshot.jobs import ExpectedPods, JobKind, JobRecord
from extender.domain.snapshot.snapshot import Snapshot

_NAME = "kubernetes.io/metadata.name"  # the label of each namespace
_JOB = JobKind("batch/v1", "Job")


def restore(ledger: Ledger, snapshot: Snapshot) -> None:
    """Bring an empty ledger to the state of a snapshot. Its clocks have to show those of the snapshot."""
    intake = ledger.intake
    intake.leave_jobs(())
    intake.trust_markers(True)
    intake.trust_authors(True)
    intake.trust_uses(True)
    intake.review_users()
    for node in filter(None, snapshot.nodes.nodes):
        intake.put_node(node)
    _restore_queues(ledger, snapshot)
    for pod in snapshot.others:
        ledger.pods.put(pod)
    for group in snapshot.groups.values():
        _restore_group(ledger, group, snapshot)
    ledger.snapshot()  # expected members are there now
    ledger.recall(snapshot)


def _restore_queues(ledger: Ledger, snapshot: Snapshot) -> None:
    intake, refused = ledger.intake, defaultdict[str, set[str]](set)
    for group in snapshot.groups.values():
        namespace = group.key.partition("/")[0]
        ledger.registry.routes.set_namespace(namespace, "", {_NAME: namespace})
        if not group.namespace_allowed:
            refused[group.queue].add(namespace)
        if group.local_queue is not None and group.local_queue.exists:
            intake.put_local_queue(group.local_queue)
        intake.set_priority_class(_class_of(group))
    for queue in snapshot.queues.values():
        for flavor in queue.record.flavors:
            if flavor.shared and not flavor.is_missing:
                shared = SharedFlavor(flavor.shared, dict(flavor.nodes.labels), flavor.taints)
                intake.put_flavor(flavor.shared, shared)
        if queue.exists:
            names = sorted(refused[queue.record.name])
            selector = (
                LabelSelector(match_expressions=[Requirement(_NAME, "NotIn", names)]) if names else None
            )
            intake.put_queue(replace(queue.record, namespace_selector=selector))
    for budgets in snapshot.disruption_budgets.values():
        for budget in budgets:
            intake.put_disruption_budget(budget)


def _class_of(group: GroupInfo) -> PriorityClass:
    policy = "" if group.preempts else keys.NEVER
    meta = Meta(f"{group.priority}{policy}", annotations={keys.FOR_POD_GROUPS: "true"})
    return PriorityClass(meta, group.priority, preemption_policy=policy)


# ---- groups


def _restore_group(ledger: Ledger, view: GroupInfo, snapshot: Snapshot) -> None:
    namespace, intake = view.key.partition("/")[0], ledger.intake
    owner = _owner_of(view)
    if view.spec.recorded:
        intake.put_group(_record_of(view, owner.uid))
        intake.put_owner(group_of_owner(namespace, owner.uid), owner)
    group, history = ledger.registry.group(view.key), view.history
    if not view.spec.recorded:
        intake.put_owner(view.key, owner)
        group.asked_by_pods = str(view.min_member)
    group.entitled_in = view.queue if history.entitled else ""
    group.start, group.ran_with = view.start, history.ran_with
    group.took_from, group.gave_to = dict(history.took_from), dict(history.gave_to)
    group.lost_work, group.ready_at = history.lost_work, history.ready_at
    group.waited = not (history.resumes or view.job.let_go)
    for pod in _pods_of(ledger, view):
        ledger.pods.put(pod)
    if view.job.managed or view.job.outcome is not None:
        intake.put_job(_job_of(view, snapshot))
    for pod in (*view.waiting, *(pod for pod, _ in view.pinned)):
        if pod.reserved_for and not pod.keeps_capacity:  # of a member that was lost
            group.pods[pod.uid] = pod
            group.lost[pod.uid] = snapshot.now + ledger.limits.arrival_grace
    if view.job.made is not None:
        group.coming = ComingPods(view.job.made, snapshot.now, snapshot.now)
    group.bound_since, group.attempts = dict(view.bound_since), dict(view.attempts)
    ledger.registry.touch(view.key)


def _pods_of(ledger: Ledger, view: GroupInfo) -> Iterator[PodRecord]:
    """Yield the pods of a group that exist. Of those that failed or are gated, only the number is known."""
    there = [*view.placed, *view.departing, *(pod for pod, _ in view.pinned), *view.waiting]
    like = there[0] if there else _any_pod(ledger, view)
    number: dict[str, Any] = {"node": "", "deleting": False, "to_be": False, "reserved_for": Uid("")}
    for n in range(view.held_back):
        yield replace(like, uid=Uid(f"{view.key}/gated/{n}"), foreign_gates=True, phase="Pending", **number)
    for n in range(view.failed - sum(pod.phase == "Failed" for pod in there)):
        yield replace(like, uid=Uid(f"{view.key}/failed/{n}"), phase="Failed", **number)
    for pod in there:
        if not pod.to_be:
            yield pod if view.spec.recorded else replace(pod, **_ways_of(view))


def _any_pod(ledger: Ledger, view: GroupInfo) -> PodRecord:
    namespace = view.key.partition("/")[0]
    shape = ledger.pods.shapes.of(PodSpec(), namespace)
    return PodRecord(
        Uid(f"{view.key}/any"), namespace, "any", shape, {}, group=view.key, auto=not view.spec.recorded
    )


def _ways_of(view: GroupInfo) -> dict[str, Any]:
    """Return the fields by which records of pods, PodGroups and jobs lead into a queue."""
    if view.local_queue is None:
        return {"queue": view.queue, "local_queue": None}
    return {"queue": "", "local_queue": LocalQueueLabel(view.local_queue.name, keys.LOCAL_QUEUE)}


def _record_of(view: GroupInfo, owner: str) -> GroupRecord:
    spec, history = view.spec, view.history
    namespace, _, name = view.key.partition("/")
    return GroupRecord(
        key=view.key,
        namespace=namespace,
        name=name,
        uid=f"group {view.key}",
        min_member=view.min_member,
        min_task_member=view.min_task_member,
        priority_class=_class_of(view).metadata.name,
        created=view.created,
        phase=spec.reported_phase,
        admitted=history.resumes,
        fault=spec.fault,
        min_resources=spec.min_resources,
        queue_uid=history.accepted_by,
        owner=owner,
        held=spec.held,
        run_time=spec.run_time,
        start_timeouts=view.job.start_timeouts,
        submitter=spec.submitter,
        series=spec.series,
        stands_for=spec.stands_for,
        preemptable=spec.preemptable,
        goes_whole=spec.goes_whole,
        checkpoint=view.checkpoint,
        may_use=view.queue if view.use_allowed else "",
        **_ways_of(view),
    )


def _owner_of(view: GroupInfo) -> OwnerRecord:
    """Return the owner of the pods of a group."""
    limit = None if view.run_limit is None else int(view.run_limit)
    uid, needed = f"owner {view.key}", view.min_member
    if view.spec.recorded:
        return OwnerRecord(uid, suspended=view.aborted, run_limit=limit)
    return OwnerRecord(
        uid,
        MadePods(needed, at_once=needed, together=True),
        suspended=view.aborted,
        run_limit=limit,
        may_use=view.queue if view.use_allowed else "",
        checkpoint=view.checkpoint,
        run_time=view.spec.run_time,
    )


def _job_of(view: GroupInfo, snapshot: Snapshot) -> JobRecord:
    namespace, _, name = view.key.partition("/")
    uid, parts = _parts_of(view)
    since = view.running_since or snapshot.timestamp(snapshot.now)
    return JobRecord(
        uid=uid,
        kind=_JOB,
        namespace=namespace,
        name=view.spec.stands_for.rpartition("/")[2] or name,
        group=view.key,
        created=view.created,
        priority_class=_class_of(view).metadata.name,
        suspended=not view.job.let_go and view.job.outcome is None,
        started_at=since if view.job.let_go else "",
        outcome=view.job.outcome,
        pods=parts,
        gang=MadePods(view.min_member, at_once=view.min_member),
        by_role=view.min_task_member,
        declared=sum(part.count for part in parts),
        least=view.job.least,
        fault=view.spec.fault,
        ours=view.job.managed,
        checkpoint=view.checkpoint,
        run_time=view.spec.run_time,
        may_use=view.queue if view.use_allowed else "",
        **_ways_of(view),
    )


def _parts_of(view: GroupInfo) -> tuple[str, tuple[ExpectedPods, ...]]:
    """Return the UID of its job, and the parts of that: expected pods by their UIDs, then real ones alike."""
    members = [*view.placed, *view.waiting, *(pod for pod, _ in view.pinned)]
    expected = [pod for pod in members if pod.to_be and not pod.reserved_for]
    real = Counter((pod.role, pod.shape) for pod in members if not pod.to_be)
    like = {int(pod.uid.rsplit("/", 2)[1]): replace(pod, min_member="") for pod in expected}
    counts = Counter(int(pod.uid.rsplit("/", 2)[1]) for pod in expected)
    for part, pod in like.items():
        counts[part] += real.pop((pod.role, pod.shape), 0)
    numbers = (number for number in range(len(like) + len(real)) if number not in like)
    pods = {(pod.role, pod.shape): pod for pod in members}
    for part, (sort, count) in zip(numbers, real.items(), strict=False):
        like[part], counts[part] = replace(pods[sort], node="", phase="Pending", to_be=True), count
    uid = expected[0].uid.rsplit("/", 2)[0] if expected else f"job {view.key}"
    return uid, tuple(ExpectedPods(pod.role, counts[part], pod) for part, pod in sorted(like.items()))
