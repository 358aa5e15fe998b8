"""Records of pods and PodGroups, made from wire objects, and the records that Muster writes on PodGroups.

Records on a PodGroup survive a restart of Muster: that the group has fully run, or that its start was
admitted. A record contains the UID of its PodGroup, so that the record does not count on a copy from a file.
A PodGroup has no status subresource, so users who may change a PodGroup may write its status. Therefore,
records only count if the API server lets nobody but Muster write them (manifests/marks.yaml).
"""

from collections.abc import Collection, Mapping
from sys import intern
from typing import Any, NamedTuple
from weakref import ref

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.keys import ADMITTED, STOOD_WHOLE, STOOD_WHOLE_NOTE
from extender.api.objects import queues
from extender.api.objects.base import Condition, Meta, condition
from extender.api.objects.pods import Pod
from extender.api.objects.queues import NativePodGroup, PluginsPodGroup, PodGroup, PodGroupSpec
from extender.api.units import BadQuantity, is_count
from extender.domain.model import ownership
from extender.domain.model.queue_of_group import (
    local_queue_label,
    recorded_author,
    recorded_queue_uid,
    recorded_usable_queue,
)
from extender.domain.model.reasons import Reason
from extender.domain.model.records import (
    GroupKey,
    GroupRecord,
    Origin,
    PodRecord,
    Uid,
    Unscheduled,
    composite_key,
)
from extender.domain.model.resources import counted_spec, requested_amounts
from extender.domain.model.run_history import checkpoint_of, run_time_of, series_of
from extender.domain.model.shapes import Constraints, Shape, Shapes
from extender.domain.model.topology import (
    SubGroupPolicy,
    constraint_request,
    first_request,
    network_topology,
    sub_group_policies,
    topology_of,
)

_NODE_OWNER_KINDS = frozenset({"DaemonSet", "Node"})  # kinds of owners whose pods belong to a node


def foreign_record(pod: Pod, shapes: Shapes) -> PodRecord:
    """Return the record of a pod of another scheduler.

    The record has the pod's requests, its node, and the labels that terms may select. A cluster may have many
    more such pods than pods of Muster, so each record is small.

    Raises:
        BadQuantity: A request cannot be read.
    """
    meta, spec = pod.metadata, pod.spec
    return PodRecord(
        uid=Uid(meta.uid),
        namespace=intern(meta.namespace),
        name=meta.name,
        shape=shapes.foreign_shape(counted_spec(pod), meta.namespace),
        labels=shapes.labels.intern(meta.labels),
        node=intern(spec.node_name),
        scheduler=intern(spec.scheduler_name),
        phase=intern(pod.status.phase),
        deleting=meta.deletion_timestamp is not None,
        deletion_deadline=meta.deletion_timestamp or "",
        nominated_node=intern(pod.status.nominated_node_name),
        priority=spec.priority or 0,
        is_preemptable=allows_preemption(meta),
        is_vital=_is_vital(pod),
        running_since=pod.status.start_time or "",
        checkpoint=checkpoint_of(meta),
    )


_NO_SHAPE = Shape({}, Constraints())

_ANNOTATION_KEYS = frozenset(
    {
        *(keys.GROUP_ANNOTATION, keys.MIN_MEMBER, keys.QUEUE, keys.ROLE, keys.PREEMPTABLE),
        *(keys.MAY_USE, keys.AUTHOR, keys.CHECKPOINT, keys.RUN_TIME),
        *(keys.REQUIRED_TOPOLOGY, keys.KUEUE_REQUIRED_TOPOLOGY),
        *(keys.PREFERRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
        *(keys.SLICE_TOPOLOGY, keys.KUEUE_SLICE_TOPOLOGY, keys.SLICE_SIZE, keys.KUEUE_SLICE_SIZE),
        keys.ON_LOST_DOMAIN,
    }
)
_LABEL_KEYS = frozenset(
    {
        *(keys.GROUP_LABEL, keys.QUEUE, keys.LOCAL_QUEUE, keys.KUEUE_QUEUE, keys.ROLE, keys.PREEMPTABLE),
        keys.REPLICATED_JOB,
        *ownership.CONTROLLER_LABELS,
    }
)
_MAX_TEMPLATES, _MAX_BYTES = 64, 4096  # limit of cached templates, and of the bytes of a cached template
_encode = msgspec.json.Encoder().encode


def _common_part(pod: Pod) -> Pod:
    """Return the part of a pod that all pods of one template share.

    Raises:
        BadQuantity: A request cannot be read.
    """
    meta, spec = pod.metadata, counted_spec(pod)
    if spec.node_name:
        spec = replace(spec, node_name="")
    common_meta = Meta(
        namespace=meta.namespace,
        labels=_selected_labels(meta.labels, _LABEL_KEYS),
        annotations=_selected_labels(meta.annotations, _ANNOTATION_KEYS),
        owner_references=meta.owner_references,
    )
    return Pod(common_meta, spec)


def _selected_labels(labels: Mapping[str, str] | None, names: Collection[str]) -> dict[str, str] | None:
    return {key: text for key, text in labels.items() if key in names} if labels else None


class _Template(NamedTuple):
    """Facts that equal pods share."""

    record: PodRecord  # record without the fields that differ between pods
    shape: ref[Shape]  # weak reference, so that the shape is freed with its last pod
    is_alone: bool  # whether each pod forms a group by itself


def pod_record(pod: Pod, shapes: Shapes, is_ours: bool, auto_groups: bool = False) -> PodRecord:
    """Return the record of a single pod.

    Raises:
        BadQuantity: A request cannot be read.
    """
    return PodRecordReader(shapes, auto_groups).record_of(pod, is_ours)


class PodRecordReader:
    """Reader of the records of member pods.

    Pods of one template differ little, so that their `_common_part` is read only once for all. Of their
    annotations and labels, only `_ANNOTATION_KEYS` and `_LABEL_KEYS` count. With `is_ours` set to False, the
    reader makes records of pods that Muster leaves to another scheduler.
    """

    def __init__(self, shapes: Shapes, auto_groups: bool = False) -> None:
        self._shapes = shapes
        self._auto_groups = auto_groups
        self._templates: dict[bytes, _Template] = {}  # keyed by the common part of their pods

    def record_of(self, pod: Pod, is_ours: bool) -> PodRecord:
        """Return the record of a pod.

        Raises:
            BadQuantity: A request cannot be read.
        """
        common, uid = _common_part(pod), pod.metadata.uid
        key = _encode((is_ours, common, self._shapes.devices.key_of(common.spec, common.metadata.namespace)))
        template = self._templates.get(key)
        shape = template.shape() if template is not None else None
        if template is None or shape is None:
            template, shape = self._read(common, is_ours)
            self._store_template(key, template)
        record = template.record
        if template.is_alone:
            group = GroupKey(f"{record.namespace}/{ownership.group_of(pod, self._auto_groups)[0]}")
            record = replace(record, group=group if is_ours else GroupKey(""), own_group=group)
        elif uid in record.own_group:  # the pod names the group that Muster would make for it
            own_metadata = replace(common.metadata, uid=uid, name=pod.metadata.name)
            record = self._read(replace(common, metadata=own_metadata), is_ours)[0].record
        return self._with_own_fields(record, pod, self._shapes.namespace_shape(shape, record.namespace))

    def _store_template(self, key: bytes, template: _Template) -> None:
        """Store a template in the cache, unless it is too long.

        The oldest template is dropped beyond the limit.
        """
        if len(key) > _MAX_BYTES:
            return
        while len(self._templates) >= _MAX_TEMPLATES:
            del self._templates[next(iter(self._templates))]
        self._templates[key] = template

    def _read(self, pod: Pod, is_ours: bool) -> tuple[_Template, Shape]:
        """Return the facts that equal pods share: the shape, and a record without the pod's own fields."""
        meta, spec, annotations = pod.metadata, pod.spec, pod.metadata.annotations or {}
        group, is_auto = ownership.group_of(pod, self._auto_groups)
        key = GroupKey(f"{meta.namespace}/{group}")
        owner = ownership.group_owner_of(pod) if is_auto else None
        gates = {gate.name for gate in spec.scheduling_gates or ()}
        raws = (raw for each in spec.volumes or () for raw in (each.persistent_volume_claim, each.ephemeral))
        topology = topology_of(annotations)
        role = annotations.get(keys.ROLE) or (meta.labels or {}).get(keys.ROLE) or ""
        if any(topology):  # as in Kueue, the pods of one replicated Job share a domain
            role = role or (meta.labels or {}).get(keys.REPLICATED_JOB, "")
        shape = self._shapes.shape_of(spec, meta.namespace)
        record = PodRecord(
            uid=Uid(meta.uid),
            namespace=intern(meta.namespace),
            name=meta.name,
            shape=_NO_SHAPE,
            labels={},
            scheduler=intern(spec.scheduler_name),
            group=key if is_ours else GroupKey(""),
            own_group=key,
            is_auto=is_auto,
            controller=intern(f"{owner.api_version}/{owner.kind}") if owner is not None else "",
            min_member=annotations.get(keys.MIN_MEMBER, "") if is_auto else "",
            queue=ownership.queue_named_by(meta),
            local_queue=local_queue_label(meta),
            role=ownership.name_of(role),
            priority=spec.priority or 0,
            is_gated=keys.GATE in gates,
            has_foreign_gates=bool(gates - {keys.GATE}),
            binds_late=bool(spec.resource_claims) or any(bytes(raw) not in (b"", b"null") for raw in raws),
            run_limit=spec.active_deadline_seconds,
            is_preemptable=allows_preemption(meta),
            is_vital=meta.namespace == keys.SYSTEM_NAMESPACE if is_ours else _is_vital(pod),
            never_preempts=spec.preemption_policy == keys.NEVER,
            usable_queue=recorded_usable_queue(meta, "Pod"),
            author=recorded_author(meta, "Pod"),
            checkpoint=checkpoint_of(meta),
            run_time=run_time_of(meta),
            topology=topology,
            on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
            is_replaceable=ownership.controller_of(meta.owner_references) is not None,
        )
        is_alone = not ownership.group_name(pod) and (not self._auto_groups or owner is None)
        return _Template(record, ref(shape), is_alone), shape

    def _with_own_fields(self, record: PodRecord, pod: Pod, shape: Shape) -> PodRecord:
        """Return a record, completed with the fields that differ between pods of a template."""
        meta, status, node = pod.metadata, pod.status, pod.spec.node_name
        if not node and leaves_no_space(meta.annotations or {}):
            shape = self._shapes.unevaluated_shape(shape, f"annotations of {TOO_MANY_RECORDS}")
        return replace(
            record,
            uid=meta.uid,
            name=meta.name,
            shape=shape,
            labels=self._shapes.labels.intern(meta.labels),
            node=intern(node),
            queue_uid=intern(recorded_queue_uid(meta)),
            created_at=meta.creation_timestamp or "",
            phase=intern(status.phase),
            deleting=meta.deletion_timestamp is not None,
            has_started=_has_run(pod),
            nominated_node=status.nominated_node_name,
            version="" if node else meta.resource_version,
            running_since=status.start_time or "",
            unscheduled=_unscheduled_of(pod),
            deletion_deadline=meta.deletion_timestamp or "",
            **self._claim_fields(pod),
        )

    def _claim_fields(self, pod: Pod) -> dict[str, Any]:
        """Return the fields that depend on device claims, for a pod without a node."""
        if pod.spec.node_name or not pod.spec.resource_claims:
            return {}
        devices = self._shapes.devices
        return {
            "awaited_claims": devices.awaited_claims(pod),
            "claims_of_one_node": devices.awaited_claims(pod, only_counted=True),
            "claim_fault": devices.fault_of(pod),
        }


def _is_vital(pod: Pod) -> bool:
    """Return whether a pod of another scheduler is never evicted.

    A pod that belongs to its node would come back at once. Owners and priority classes count for pods of
    other schedulers only, because the author of a pod of Muster can write both.
    """
    meta, owners = pod.metadata, pod.metadata.owner_references or ()
    is_system = meta.namespace == keys.SYSTEM_NAMESPACE or (pod.spec.priority or 0) >= keys.SYSTEM_PRIORITY
    return is_system or any(owner.kind in _NODE_OWNER_KINDS for owner in owners)


def _has_run(pod: Pod) -> bool:
    """Return whether any container of the pod has ever run. A rejected pod fails before that."""
    if pod.status.phase in ("Running", "Succeeded"):
        return True
    statuses = (pod.status.init_container_statuses or []) + (pod.status.container_statuses or [])
    states = (state for status in statuses for state in (status.state, status.last_state) if state)
    return any(
        state.running is not None or (state.terminated is not None and bool(state.terminated.started_at))
        for state in states
    )


def _unscheduled_of(pod: Pod) -> Unscheduled | None:
    """Return why the pod has no node; messages that change with every attempt are left out."""
    condition_ = condition(pod.status.conditions, keys.POD_SCHEDULED)
    if condition_ is None or condition_.status != "False":
        return None
    state = Unscheduled(intern(condition_.reason), condition_.message)
    return state if state.reason == keys.UNSCHEDULABLE or state.is_ours else state._replace(message="")


_MAX_ANNOTATIONS = 256 * 1024 - 1024  # limit of an object's annotations in bytes; the API server's is 256 KiB
TOO_MANY_RECORDS = f"more than {_MAX_ANNOTATIONS} bytes, to which Muster can add none"
_WHOLE_PREFIX = "all members that it needs ran at the same time: "
_MAX_DIGITS = 10  # digits of the largest minMember


def whole_condition(group_uid: str, members: int) -> Condition:
    """Return the condition StoodWhole for a PodGroup of Volcano.

    Args:
        group_uid: The UID of the PodGroup.
        members: The number of needed members.
    """
    return Condition(STOOD_WHOLE, "True", "AllMembersStarted", _WHOLE_PREFIX + _record(group_uid, members))


def whole_members(condition: Condition, group_uid: str) -> int | None:
    """Return the number of members that the group needed when it fully ran; None without such a condition."""
    if condition.status != "True" or not condition.message.startswith(_WHOLE_PREFIX):
        return None
    return _number_in(condition.message.removeprefix(_WHOLE_PREFIX), group_uid)


def whole_record(group_uid: str, members: int) -> dict[str, str]:
    """Return the annotation with the number of members with which a PodGroup fully ran.

    The annotation is used for PodGroups whose status another controller writes.
    """
    return {STOOD_WHOLE_NOTE: _record(group_uid, members)}


def recorded_members(group: Meta) -> int | None:
    """Return the number of members with which the group fully ran, from its annotation.

    None means that the annotation is missing or invalid.
    """
    return _number_in((group.annotations or {}).get(STOOD_WHOLE_NOTE, ""), group.uid)


def admitted_record(group_uid: str, is_admitted: bool) -> dict[str, str | None]:
    """Return the annotation of an admitted start that is not complete yet, or else its removal."""
    return {ADMITTED: group_uid if is_admitted else None}


def has_admitted_record(group: Meta) -> bool:
    """Return whether the PodGroup has a valid record of an admitted start."""
    recorded_uid = (group.annotations or {}).get(ADMITTED, "")
    return bool(recorded_uid) and recorded_uid == group.uid


def lost_work_record(group_uid: str, seconds: int) -> dict[str, str]:
    """Return the annotation with the seconds of work that evictions have cost a group."""
    return {keys.LOST_WORK: _record(group_uid, seconds)}


def recorded_lost_work(group: Meta) -> int:
    """Return the seconds of work that evictions have cost a group, from its annotation."""
    return _number_in((group.annotations or {}).get(keys.LOST_WORK, ""), group.uid) or 0


def _record(group_uid: str, number: int) -> str:
    """Return a number with the UID of its object, in the form of a record."""
    return f"{number}/{group_uid}"


def _number_in(record: str, group_uid: str) -> int | None:
    """Return the number in a record; None if the record is invalid or belongs to another object."""
    number, _, uid = record.partition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    return int(number) if is_number and uid and uid == group_uid else None


def any_group_record(group: PodGroup | PluginsPodGroup | NativePodGroup) -> GroupRecord:
    """Return the record of a PodGroup of any API."""
    match group:
        case PluginsPodGroup(metadata=meta, spec=spec):
            # The fields are those of Volcano, but the queue is in an annotation or a label.
            record = group_record(PodGroup(meta, replace(spec, queue=ownership.queue_named_by(meta))))
            record = replace(record, origin=Origin.PLUGINS, queue_uid="")
            return replace(record, members_when_run=recorded_members(meta))
        case NativePodGroup():
            return _native_record(group)
    return group_record(group)


def _native_record(group: NativePodGroup) -> GroupRecord:
    """Return the record of a Kubernetes group.

    `min_member` of a composite is its minimum number of child groups, which is 0 without a gang policy.
    """
    meta, gang = group.metadata, group.spec.scheduling_policy.gang
    is_composite = isinstance(group, queues.CompositePodGroup)
    minimum = 0 if is_composite else 1
    if gang is not None:
        minimum = gang.min_group_count if is_composite else gang.min_count
    spec = PodGroupSpec(
        min_member=minimum,
        queue=ownership.queue_named_by(meta),
        priority_class_name=group.spec.priority_class_name,
    )
    mode, parent = group.spec.disruption_mode, group.spec.parent_composite_pod_group_name
    kind = keys.COMPOSITE_SCHEDULED if is_composite else keys.INITIALLY_SCHEDULED
    reason, status_condition = "", condition(group.status.conditions, kind)
    if status_condition is not None:  # the inverse of `native_condition`
        is_started = status_condition.status == "True"
        reason = keys.SCHEDULED if is_started else status_condition.message.partition(":")[0]
    record = group_record(PodGroup(meta, spec))
    if is_composite:
        origin, key = Origin.COMPOSITE, composite_key(meta.namespace, meta.name)
        record = replace(record, key=key, usable_queue=recorded_usable_queue(meta, "CompositePodGroup"))
    else:
        origin = Origin.ALPHA if isinstance(group, queues.AlphaPodGroup) else Origin.NATIVE
    return replace(
        record,
        origin=origin,
        members_when_run=recorded_members(meta),
        queue_uid="",
        is_evicted_whole=mode == "PodGroup" or "all" in (mode or ()),
        topology=first_request(constraint_request(group.spec.scheduling_constraints), record.topology),
        last_reason=reason,
        parent=composite_key(meta.namespace, parent) if parent else GroupKey(""),
        workload=group.spec.workload_ref.workload_name,
    )


def native_condition(group: GroupRecord, reason: str, fault: str = "") -> dict[str, str]:
    """Return the condition of a Kubernetes group, without numbers.

    The condition says that the group has started, or why the group waits.
    """
    is_started = reason == keys.SCHEDULED
    why = fault if fault and reason == Reason.INVALID_SPEC else "" if is_started else Reason(reason).meaning
    return {
        "type": keys.COMPOSITE_SCHEDULED if group.origin is Origin.COMPOSITE else keys.INITIALLY_SCHEDULED,
        "status": str(is_started),
        "reason": reason if is_started else keys.UNSCHEDULABLE,
        "message": "" if is_started else f"{reason}: {why}",
    }


def recorded_timeouts(meta: Meta) -> int:
    """Return how many starts of the job in a row took too long or were undone."""
    text = (meta.annotations or {}).get(keys.START_TIMEOUTS, "")
    return int(text) if is_count(text) else 0


def group_record(group: PodGroup) -> GroupRecord:
    """Return the record of a group. An invalid spec becomes a `fault`, which delays this group only."""
    meta, spec = group.metadata, group.spec
    annotations, roles = meta.annotations or {}, spec.min_task_member or {}
    min_resources, fault = {}, ""
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    try:
        sub_groups = sub_group_policies(spec.sub_group_policy or ())
    except BadQuantity as bad:
        fault = str(bad)
    try:
        min_resources = requested_amounts(spec.min_resources)
    except BadQuantity as bad:
        fault = f"spec.minResources: {bad}"
    if leaves_no_space(annotations):
        fault = f"metadata.annotations: {TOO_MANY_RECORDS}"
    counts = {"minMember": spec.min_member} | {
        f"minTaskMember[{ownership.name_of(role)}]": n for role, n in roles.items()
    }
    negative = (f"spec.{name} is {n}; it must be 0 or more" for name, n in counts.items() if n < 0)
    # The series is named after the controller, whose name says more than the name of the group.
    owner = ownership.controller_of(meta.owner_references)
    kind, source = (owner.kind, owner.name) if owner is not None else ("PodGroup", meta.name)
    made_for = ownership.represented_owner(meta.name, meta.owner_references)
    return GroupRecord(
        key=GroupKey(f"{meta.namespace}/{meta.name}"),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=ownership.name_of(spec.queue),
        local_queue=local_queue_label(meta),
        min_member=max(spec.min_member, 0),
        min_task_member={ownership.name_of(role): n for role, n in roles.items() if n > 0},
        priority_class=spec.priority_class_name,
        created_at=meta.creation_timestamp or "",
        phase=group.status.phase,
        members_when_run=whole_members(_condition_of(group, keys.STOOD_WHOLE), meta.uid),
        was_admitted=has_admitted_record(meta),
        last_reason=_condition_of(group, keys.SCHEDULED).reason,
        fault=next(negative, fault),
        min_resources=min_resources,
        owner_uid=owner.uid if owner is not None else "",
        is_held=annotations.get(keys.HOLD) == "true",
        run_time=run_time_of(meta),
        start_timeouts=recorded_timeouts(meta),
        submitter=annotations.get(keys.SUBMITTER, ""),
        is_preemptable=allows_preemption(meta),
        checkpoint=checkpoint_of(meta),
        lost_work=recorded_lost_work(meta),
        queue_uid=recorded_queue_uid(meta),
        usable_queue=recorded_usable_queue(meta, "PodGroup"),
        topology=first_request(network_topology(spec.network_topology), topology_of(annotations)),
        sub_groups=sub_groups,
        on_lost_domain=annotations.get(keys.ON_LOST_DOMAIN, ""),
        series=series_of(meta.namespace, ownership.name_of(kind), ownership.name_of(source)),
        stands_for=ownership.name_of(made_for.display_name) if made_for is not None else "",
    )


def _condition_of(group: PodGroup, kind: str) -> Condition:
    """Return a condition of a PodGroup; with status Unknown if it is missing."""
    return condition(group.status.conditions, kind) or Condition(kind, "Unknown")


def leaves_no_space(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations leave no space for Muster's records and the annotations of a Binding.

    The API server does not check the size of annotations in a Binding. But then it refuses any later change
    of the pod, and also its eviction.
    """
    return len("".join((*annotations, *annotations.values())).encode()) > _MAX_ANNOTATIONS


def allows_preemption(meta: Meta) -> bool:
    """Return whether an object's annotation or label allows the eviction of its pods for others."""
    text = (meta.annotations or {}).get(keys.PREEMPTABLE) or (meta.labels or {}).get(keys.PREEMPTABLE)
    return text != "false"
