"""Ledger from a snapshot: records that lead to the same infos, and the history of groups.

A snapshot contains the facts on which decisions depend, but not the objects behind them. Therefore, a
restored job has the pods that are expected from it, and a restored namespace has the label by which queues
refuse it. Later pods of a running job are unknown.
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
from extender.domain.ledger.topologies import TopologySource
from extender.domain.model.ownership import OwnerRecord
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.records import GroupRecord, PodRecord, Uid, group_of_owner
from extender.domain.model.topology import TopologyRequest
from extender.domain.queues.flavors import SharedFlavor
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.job_start_and_suspension import CreatedPods
from extender.domain.snapshot.jobs import ExpectedPods, JobKind, JobRecord
from extender.domain.snapshot.snapshot import Snapshot

_NAME_LABEL = "kubernetes.io/metadata.name"  # label that each namespace has
_JOB_KIND = JobKind("batch/v1", "Job")


def restore(ledger: Ledger, snapshot: Snapshot) -> None:
    """Bring an empty ledger to the state of a snapshot.

    The ledger's clocks must show the times of the snapshot.
    """
    intake = ledger.intake
    intake.leave_jobs(())
    intake.trust_markers(True)
    intake.trust_authors(True)
    intake.trust_uses(True)
    intake.review_users()
    for node in filter(None, snapshot.nodes.nodes):
        intake.put_node(node)
    for number, levels in enumerate(snapshot.nodes.topologies.level_lists):
        intake.put_topology(f"{number:06}", levels, TopologySource.MUSTER)
    _restore_queues(ledger, snapshot)
    for pod in snapshot.other_pods:
        ledger.pods.put(pod)
    for group in snapshot.groups.values():
        _restore_group(ledger, group, snapshot)
    ledger.snapshot()  # create the expected members
    ledger.restore_state(snapshot)


def _restore_queues(ledger: Ledger, snapshot: Snapshot) -> None:
    """Restore the queues, and the objects on which queues depend.

    Each queue gets a selector that refuses the namespaces whose groups it refused.
    """
    intake, refused_namespaces = ledger.intake, defaultdict[str, set[str]](set)
    for group in snapshot.groups.values():
        namespace = group.key.partition("/")[0]
        ledger.registry.routes.set_namespace(namespace, "", {_NAME_LABEL: namespace})
        if not group.is_namespace_allowed:
            refused_namespaces[group.queue].add(namespace)
        if group.local_queue is not None and group.local_queue.exists:
            intake.put_local_queue(group.local_queue)
        intake.set_priority_class(_priority_class_of(group))
    for queue in snapshot.queues.values():
        for flavor in queue.record.flavors:
            if flavor.resource_flavor and not flavor.is_missing:
                shared_record = SharedFlavor(flavor.resource_flavor, dict(flavor.nodes.labels), flavor.taints)
                intake.put_flavor(flavor.resource_flavor, shared_record)
        if queue.exists:
            names = sorted(refused_namespaces[queue.record.name])
            requirements = [Requirement(_NAME_LABEL, "NotIn", names)]
            selector = LabelSelector(match_expressions=requirements) if names else None
            intake.put_queue(replace(queue.record, namespace_selector=selector))
    for budgets in snapshot.disruption_budgets.values():
        for budget in budgets:
            intake.put_disruption_budget(budget)


def _priority_class_of(group: GroupInfo) -> PriorityClass:
    """Return an invented PriorityClass that leads to the priority and policy of a group."""
    policy = "" if group.may_preempt else keys.NEVER
    meta = Meta(f"{group.priority}{policy}", annotations={keys.FOR_POD_GROUPS: "true"})
    return PriorityClass(meta, group.priority, preemption_policy=policy)


def _restore_group(ledger: Ledger, info: GroupInfo, snapshot: Snapshot) -> None:
    """Bring a group, its pods, its owner and its job to the state of the group's info."""
    namespace, intake = info.key.partition("/")[0], ledger.intake
    owner = _owner_of(info)
    if info.spec.has_podgroup:
        intake.put_group(_record_of(info, owner.uid))
        intake.put_owner(group_of_owner(namespace, owner.uid), owner)
    group, history = ledger.registry.group(info.key), info.history
    if not info.spec.has_podgroup:
        intake.put_owner(info.key, owner)
        group.min_member_of_pods = str(info.min_member)
    group.entitled_queue = info.queue if history.is_entitled else ""
    group.start, group.run_needs, group.ready_at = info.start, history.run_needs, history.ready_at
    group.reclaim_times, group.eviction_times = dict(history.reclaim_times), dict(history.eviction_times)
    group.lost_work, group.last_eviction = history.lost_work, history.last_eviction
    group.has_waited = not (history.resumes or info.job.is_unsuspended)
    for pod in _pods_of(ledger, info):
        ledger.pods.put(pod)
    if info.job.is_managed or info.job.outcome is not None:
        intake.put_job(_job_of(info, snapshot))
    for pod in (*info.waiting_pods, *(pod for pod, _ in info.assumed_pods)):
        if pod.reserved_for and not pod.is_for_min_resources:  # replacement of a lost member
            group.pods[pod.uid] = pod
            group.reserved_until[pod.uid] = snapshot.now + ledger.limits.arrival_grace
    if info.job.created_pods is not None:
        group.created_pods = CreatedPods(info.job.created_pods, snapshot.now, snapshot.now)
    group.bound_since, group.attempts = dict(info.bound_since), dict(info.attempts)
    ledger.registry.mark_dirty(info.key)


def _pods_of(ledger: Ledger, info: GroupInfo) -> Iterator[PodRecord]:
    """Yield the existing pods of a group.

    Of failed and gated pods, only the number is known, so that copies of another pod are returned.
    """
    pods = [*info.placed_pods, *info.departing_pods, *(p for p, _ in info.assumed_pods), *info.waiting_pods]
    peer = pods[0] if pods else _any_pod(ledger, info)
    fields: dict[str, Any] = {"node": "", "deleting": False, "is_expected": False, "reserved_for": Uid("")}
    for n in range(info.held_back_count):
        yield replace(
            peer, uid=Uid(f"{info.key}/gated/{n}"), has_foreign_gates=True, phase="Pending", **fields
        )
    for n in range(info.failed - sum(pod.phase == "Failed" for pod in pods)):
        yield replace(peer, uid=Uid(f"{info.key}/failed/{n}"), phase="Failed", **fields)
    for pod in pods:
        if not pod.is_expected:
            yield pod if info.spec.has_podgroup else replace(pod, **_queue_fields_of(info))


def _any_pod(ledger: Ledger, info: GroupInfo) -> PodRecord:
    """Return an invented pod of a group, of which its other pods are copies."""
    namespace = info.key.partition("/")[0]
    shape = ledger.pods.shapes.shape_of(PodSpec(), namespace)
    return PodRecord(
        Uid(f"{info.key}/any"),
        namespace,
        "any",
        shape,
        {},
        group=info.key,
        is_auto=not info.spec.has_podgroup,
    )


def _queue_fields_of(info: GroupInfo) -> dict[str, Any]:
    """Return the fields by which records of pods, PodGroups and jobs lead into a queue."""
    if info.local_queue is None:
        return {"queue": info.queue, "local_queue": None}
    return {"queue": "", "local_queue": LocalQueueLabel(info.local_queue.name, keys.LOCAL_QUEUE)}


def _record_of(info: GroupInfo, owner: str) -> GroupRecord:
    """Return the record of a PodGroup from which the ledger makes this info again."""
    spec, history = info.spec, info.history
    namespace, _, name = info.key.partition("/")
    return GroupRecord(
        key=info.key,
        namespace=namespace,
        name=name,
        uid=f"group {info.key}",
        min_member=info.min_member,
        min_task_member=info.min_task_member,
        priority_class=_priority_class_of(info).metadata.name,
        created_at=info.created_at,
        phase=spec.reported_phase,
        was_admitted=history.resumes,
        fault=spec.fault,
        min_resources=spec.min_resources,
        queue_uid=history.accepted_by,
        owner_uid=owner,
        is_held=spec.is_held,
        run_time=spec.run_time,
        start_timeouts=info.job.start_timeouts,
        submitter=spec.submitter,
        series=spec.series,
        stands_for=spec.owner_name,
        is_preemptable=spec.is_preemptable,
        is_evicted_whole=spec.is_evicted_whole,
        on_lost_domain=keys.RESTART if spec.restarts else "",
        checkpoint=info.checkpoint,
        usable_queue=info.queue if info.is_use_allowed else "",
        topology=_topology_of(info),
        composite=spec.composite,
        **_queue_fields_of(info),
    )


def _owner_of(info: GroupInfo) -> OwnerRecord:
    """Return the owner of the pods of a group."""
    limit = None if info.run_limit is None else int(info.run_limit)
    uid, needed_count = f"owner {info.key}", info.min_member
    if info.spec.has_podgroup:
        return OwnerRecord(uid, is_suspended=info.is_aborted, run_limit=limit)
    return OwnerRecord(
        uid,
        MadePods(needed_count, at_once=needed_count, is_together=True),
        is_suspended=info.is_aborted,
        run_limit=limit,
        usable_queue=info.queue if info.is_use_allowed else "",
        checkpoint=info.checkpoint,
        run_time=info.spec.run_time,
        on_lost_domain=keys.RESTART if info.spec.restarts else "",
        topology=_topology_of(info),
    )


def _topology_of(info: GroupInfo) -> TopologyRequest:
    """Return the topology request of the whole group."""
    members = (*info.placed_pods, *(pod for pod, _ in info.assumed_pods), *info.waiting_pods)
    levels = {each.is_required: each.level for pod in members for each in pod.pod_sets if not each.part}
    return TopologyRequest(levels.get(True, ""), levels.get(False, ""))


def _job_of(info: GroupInfo, snapshot: Snapshot) -> JobRecord:
    """Return the record of a job from which the ledger makes this info again."""
    namespace, _, name = info.key.partition("/")
    uid, parts = _parts_of(info)
    since = info.running_since or snapshot.timestamp(snapshot.now)
    return JobRecord(
        uid=uid,
        kind=_JOB_KIND,
        namespace=namespace,
        name=info.spec.owner_name.rpartition("/")[2] or name,
        group=info.key,
        created_at=info.created_at,
        priority_class=_priority_class_of(info).metadata.name,
        is_suspended=not info.job.is_unsuspended and info.job.outcome is None,
        started_at=since if info.job.is_unsuspended else "",
        outcome=info.job.outcome,
        pods=parts,
        gang=MadePods(info.min_member, at_once=info.min_member),
        by_role=info.min_task_member,
        declared_count=sum(part.count for part in parts),
        min_partial_size=info.job.min_partial_size,
        fault=info.spec.fault,
        is_for_muster=info.job.is_managed,
        checkpoint=info.checkpoint,
        run_time=info.spec.run_time,
        usable_queue=info.queue if info.is_use_allowed else "",
        **_queue_fields_of(info),
    )


def _parts_of(info: GroupInfo) -> tuple[str, tuple[ExpectedPods, ...]]:
    """Return the UID of a group's job, and its parts: parts of expected pods, then parts of existing pods."""
    members = [*info.placed_pods, *info.waiting_pods, *(pod for pod, _ in info.assumed_pods)]
    expected_pods = [pod for pod in members if pod.is_expected and not pod.reserved_for]
    existing_counts = Counter((pod.role, pod.shape) for pod in members if not pod.is_expected)
    pods_by_part = {int(pod.uid.rsplit("/", 2)[1]): replace(pod, min_member="") for pod in expected_pods}
    counts = Counter(int(pod.uid.rsplit("/", 2)[1]) for pod in expected_pods)
    for part, pod in pods_by_part.items():
        counts[part] += existing_counts.pop((pod.role, pod.shape), 0)
    numbers = (n for n in range(len(pods_by_part) + len(existing_counts)) if n not in pods_by_part)
    pods = {(pod.role, pod.shape): pod for pod in members}
    for part, (kind, count) in zip(numbers, existing_counts.items(), strict=False):
        pods_by_part[part] = replace(pods[kind], node="", phase="Pending", is_expected=True)
        counts[part] = count
    uid = expected_pods[0].uid.rsplit("/", 2)[0] if expected_pods else f"job {info.key}"
    return uid, tuple(ExpectedPods(pod.role, counts[part], pod) for part, pod in sorted(pods_by_part.items()))
