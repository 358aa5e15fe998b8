"""Records of pods, made from wire objects."""

from collections.abc import Collection, Mapping
from sys import intern
from typing import NamedTuple
from weakref import ref

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, condition
from extender.api.objects.pods import Pod
from extender.domain.model import ownership
from extender.domain.model.queue_of_group import local_queue_label, noted_author, noted_queue, noted_use
from extender.domain.model.records import GroupKey, PodRecord, Uid, Unscheduled
from extender.domain.model.resources import counted_spec
from extender.domain.model.run_history import checkpoint_of, run_time_of
from extender.domain.model.shapes import Constraints, Shape, Shapes
from extender.domain.model.wire_records import TOO_MANY_NOTES, allows_preemption, leaves_no_room

_BOUND_TO_NODES = frozenset({"DaemonSet", "Node"})  # kinds of owners


def foreign_record(pod: Pod, shapes: Shapes) -> PodRecord:
    """A pod that is not ours: what it takes on which node, and the labels that terms may select it by. There
    may be many more of these than of ours, so each is small. Raises BadQuantity."""
    meta, spec = pod.metadata, pod.spec
    return PodRecord(
        uid=Uid(meta.uid),
        namespace=intern(meta.namespace),
        name=meta.name,
        shape=shapes.of_others(counted_spec(pod), meta.namespace),
        labels=shapes.labels.of(meta.labels),
        node=intern(spec.node_name),
        scheduler=intern(spec.scheduler_name),
        phase=intern(pod.status.phase),
        deleting=meta.deletion_timestamp is not None,
        gone_by=meta.deletion_timestamp or "",
        nominated=intern(pod.status.nominated_node_name),
        priority=spec.priority or 0,
        preemptable=allows_preemption(meta),
        is_vital=_is_vital(pod),
        running_since=pod.status.start_time or "",
        checkpoint=checkpoint_of(meta),
    )


_NO_SHAPE = Shape({}, Constraints())

# ---- Pods of ours. Those of one template differ in little: the rest is read once, and shared.
#
# `_common_part` leaves of a pod what others may have as well. Only that is read for all of them, so what is
# missing from these lists counts for none.

_ANNOTATIONS = frozenset(
    {
        *(keys.GROUP_ANNOTATION, keys.MIN_MEMBER, keys.QUEUE, keys.ROLE, keys.PREEMPTABLE),
        *(keys.MAY_USE, keys.AUTHOR, keys.CHECKPOINT, keys.RUN_TIME),
    }
)
_LABELS = frozenset(
    {
        *(keys.GROUP_LABEL, keys.QUEUE, keys.LOCAL_QUEUE, keys.KUEUE_QUEUE, keys.ROLE, keys.PREEMPTABLE),
        *ownership.MAKER_LABELS,
    }
)
_MOST_KEPT, _LONGEST = 64, 4096  # templates, and bytes of one
_encode = msgspec.json.Encoder().encode


def _common_part(pod: Pod) -> Pod:
    """Raises BadQuantity."""
    meta, spec = pod.metadata, counted_spec(pod)
    if spec.node_name:
        spec = replace(spec, node_name="")
    common = Meta(
        namespace=meta.namespace,
        labels=_those(meta.labels, _LABELS),
        annotations=_those(meta.annotations, _ANNOTATIONS),
        owner_references=meta.owner_references,
    )
    return Pod(common, spec)


def _those(given: Mapping[str, str] | None, names: Collection[str]) -> dict[str, str] | None:
    return {key: text for key, text in given.items() if key in names} if given else None


class _Template(NamedTuple):
    record: PodRecord  # without what is each pod's own
    shape: ref[Shape]  # which goes with the last pod that has it
    is_alone: bool  # each of them is a group of its own


def pod_record(pod: Pod, shapes: Shapes, ours: bool, auto_groups: bool = False) -> PodRecord:
    """A single pod. Raises BadQuantity."""
    return PodRecords(shapes, auto_groups).of(pod, ours)


class PodRecords:
    """Reads pods of ours and, without `ours`, those left to another scheduler."""

    def __init__(self, shapes: Shapes, auto_groups: bool = False) -> None:
        self._shapes = shapes
        self._auto_groups = auto_groups
        self._templates: dict[bytes, _Template] = {}  # by the common part of their pods

    def of(self, pod: Pod, ours: bool) -> PodRecord:
        """Raises BadQuantity."""
        common, uid = _common_part(pod), pod.metadata.uid
        key = _encode((ours, common))
        template = self._templates.get(key)
        shape = template.shape() if template is not None else None
        if template is None or shape is None:
            template, shape = self._read(common, ours)
            self._keep(key, template)
        record = template.record
        if template.is_alone:
            group = GroupKey(f"{record.namespace}/{ownership.group_of(pod, self._auto_groups)[0]}")
            record = replace(record, group=group if ours else GroupKey(""), own_group=group)
        elif uid in record.own_group:  # it names the one that would be its own
            named = replace(common.metadata, uid=uid, name=pod.metadata.name)
            record = self._read(replace(common, metadata=named), ours)[0].record
        return self._with_own(record, pod, self._shapes.now(shape, record.namespace))

    def _keep(self, key: bytes, template: _Template) -> None:
        if len(key) > _LONGEST:
            return
        while len(self._templates) >= _MOST_KEPT:
            del self._templates[next(iter(self._templates))]
        self._templates[key] = template

    def _read(self, pod: Pod, ours: bool) -> tuple[_Template, Shape]:
        meta, spec, annotations = pod.metadata, pod.spec, pod.metadata.annotations or {}
        group, auto = ownership.group_of(pod, self._auto_groups)
        key = GroupKey(f"{meta.namespace}/{group}")
        maker = ownership.maker_of(pod) if auto else None
        gates = {gate.name for gate in spec.scheduling_gates or ()}
        volumes = (
            raw for volume in spec.volumes or () for raw in (volume.persistent_volume_claim, volume.ephemeral)
        )
        shape = self._shapes.of(spec, meta.namespace)
        record = PodRecord(
            uid=Uid(meta.uid),
            namespace=intern(meta.namespace),
            name=meta.name,
            shape=_NO_SHAPE,
            labels={},
            scheduler=intern(spec.scheduler_name),
            group=key if ours else GroupKey(""),
            own_group=key,
            auto=auto,
            maker=intern(f"{maker.api_version}/{maker.kind}") if maker is not None else "",
            min_member=annotations.get(keys.MIN_MEMBER, "") if auto else "",
            queue=ownership.queue_named_by(meta),
            local_queue=local_queue_label(meta),
            role=ownership.name_of(annotations.get(keys.ROLE) or (meta.labels or {}).get(keys.ROLE) or ""),
            priority=spec.priority or 0,
            gated=keys.GATE in gates,
            foreign_gates=bool(gates - {keys.GATE}),
            binds_late=any(bytes(raw) not in (b"", b"null") for raw in (spec.resource_claims, *volumes)),
            run_limit=spec.active_deadline_seconds,
            preemptable=allows_preemption(meta),
            is_vital=meta.namespace == keys.SYSTEM_NAMESPACE if ours else _is_vital(pod),
            never_preempts=spec.preemption_policy == keys.NEVER,
            may_use=noted_use(meta, "Pod"),
            author=noted_author(meta, "Pod"),
            checkpoint=checkpoint_of(meta),
            run_time=run_time_of(meta),
            is_replaced=ownership.controller_of(meta.owner_references) is not None,
        )
        is_alone = not ownership.group_name(pod) and (not self._auto_groups or maker is None)
        return _Template(record, ref(shape), is_alone), shape

    def _with_own(self, record: PodRecord, pod: Pod, shape: Shape) -> PodRecord:
        meta, status, node = pod.metadata, pod.status, pod.spec.node_name
        if not node and leaves_no_room(meta.annotations or {}):
            shape = self._shapes.beyond(shape, f"annotations of {TOO_MANY_NOTES}")
        return replace(
            record,
            uid=meta.uid,
            name=meta.name,
            shape=shape,
            labels=self._shapes.labels.of(meta.labels),
            node=intern(node),
            queue_uid=intern(noted_queue(meta)),
            created=meta.creation_timestamp or "",
            phase=intern(status.phase),
            deleting=meta.deletion_timestamp is not None,
            started=_started(pod),
            nominated=status.nominated_node_name,
            version="" if node else meta.resource_version,
            running_since=status.start_time or "",
            unscheduled=_unscheduled(pod),
            gone_by=meta.deletion_timestamp or "",
        )


def _is_vital(pod: Pod) -> bool:
    """Whether the room of a pod that is not ours is never taken. One that belongs to its node would come back
    at once; one of ours waits in its queue as others do. Whoever may write a pod says whose it is and of
    which class, so that of ours neither counts."""
    meta, owners = pod.metadata, pod.metadata.owner_references or ()
    is_systems = meta.namespace == keys.SYSTEM_NAMESPACE or (pod.spec.priority or 0) >= keys.SYSTEM_PRIORITY
    return is_systems or any(owner.kind in _BOUND_TO_NODES for owner in owners)


def _started(pod: Pod) -> bool:
    """Whether any container of the pod ever ran. A pod that its kubelet refuses fails without that."""
    if pod.status.phase in ("Running", "Succeeded"):
        return True
    statuses = (pod.status.init_container_statuses or []) + (pod.status.container_statuses or [])
    states = (state for status in statuses for state in (status.state, status.last_state) if state)
    return any(
        state.running is not None or (state.terminated is not None and bool(state.terminated.started_at))
        for state in states
    )


def _unscheduled(pod: Pod) -> Unscheduled | None:
    """Why the pod has no node; without messages of other reasons, which change with every attempt."""
    scheduled = condition(pod.status.conditions, keys.POD_SCHEDULED)
    if scheduled is None or scheduled.status != "False":
        return None
    found = Unscheduled(intern(scheduled.reason), scheduled.message)
    return found if found.reason == keys.UNSCHEDULABLE or found.is_ours else found._replace(message="")
