"""What the ledger remembers of pods and groups: small frozen records, made from wire objects.

Which pods are ours, which group and which queue a pod belongs to is read here, in one place.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NewType

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects import (
    Condition,
    ContainerStatus,
    Meta,
    NativePodGroup,
    PluginsPodGroup,
    Pod,
    PodGroup,
    PodGroupSpec,
)
from extender.api.quantities import BadQuantity
from extender.domain.auto_groups import auto_name, controller_of, group_name_of
from extender.domain.queue_notes import noted_queue
from extender.domain.resources import asked
from extender.domain.selectors import Labels
from extender.domain.shapes import Shape, Shapes

Uid = NewType("Uid", str)
GroupKey = NewType(
    "GroupKey", str
)  # "namespace/name" of a PodGroup, "namespace/pod:name" of a pod on its own

_TERMINAL = ("Succeeded", "Failed")


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    uid: Uid
    namespace: str
    name: str
    shape: Shape
    labels: Labels
    node: str = ""
    scheduler: str = ""
    group: GroupKey = GroupKey("")  # empty: not ours
    own_group: GroupKey = GroupKey("")  # what `group` is whenever it is ours
    auto: bool = False  # nobody named the group: it follows from the pod
    queue: str = ""
    role: str = ""
    priority: int = 0
    created: str = ""
    phase: str = ""
    gated: bool = False
    foreign_gates: bool = False
    deleting: bool = False
    started: bool = False
    nominated: str = ""
    unschedulable: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holds_room(self) -> bool:
        return bool(self.node) and self.phase not in _TERMINAL

    @property
    def placed(self) -> bool:
        """Counts for its group's quorum: on a node and not on its way out, or done."""
        return (bool(self.node) and not self.deleting and self.phase != "Failed") or self.phase == "Succeeded"

    @property
    def waiting(self) -> bool:
        return not self.node and not self.deleting and self.phase not in _TERMINAL

    @property
    def order(self) -> tuple[int, str]:
        """Inside a group: priority, then name."""
        return (-self.priority, self.name)


class Origin(IntEnum):
    """Whose kind of PodGroup it is; where one name has several, the first of these counts."""

    VOLCANO = 0
    PLUGINS = 1  # scheduler-plugins
    NATIVE = 2  # Kubernetes itself


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    key: GroupKey
    namespace: str
    name: str
    uid: str
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    priority_class: str = ""
    created: str = ""
    phase: str = ""
    stood_whole: bool = False
    last_reason: str = ""
    fault: str = ""
    queue_uid: str = ""  # of the queue that took it in
    owner: str = ""  # the UID of its controller
    origin: Origin = Origin.VOLCANO


class Ownership(msgspec.Struct, frozen=True):
    """Which pods are ours: those of our schedulers, and in the cluster's default one those that name a group
    or a queue, themselves or through their namespace."""

    schedulers: frozenset[str]
    auto_groups: bool = False  # whether pods that name no group make one with their siblings

    def owns(self, pod: Pod, namespace_queue: str) -> bool:
        scheduler = pod.spec.scheduler_name
        if scheduler not in self.schedulers:
            return False
        if scheduler != keys.DEFAULT_SCHEDULER or _is_marked(pod):
            return True
        return bool(group_name(pod) or own_queue(pod) or namespace_queue)


def _is_marked(pod: Pod) -> bool:
    """Whether the admission policy took the pod for ours: nobody else would open its gate."""
    if any(gate.name == keys.GATE for gate in pod.spec.scheduling_gates or ()):
        return True
    first = pod.spec.containers[0].resources.requests if pod.spec.containers else None
    return first is not None and not keys.MARKS.isdisjoint(first)


def group_name(pod: Pod) -> str:
    """The PodGroup that a pod names: Volcano's annotation, scheduler-plugins' label, the native field."""
    meta = pod.metadata
    native = pod.spec.scheduling_group
    return (
        (meta.annotations or {}).get(keys.GROUP_ANNOTATION)
        or (meta.labels or {}).get(keys.GROUP_LABEL)
        or (native.pod_group_name if native else "")
    )


def own_queue(pod: Pod) -> str:
    return _queue_of(pod.metadata)


def pod_record(pod: Pod, shapes: Shapes, ours: bool, auto_groups: bool = False) -> PodRecord:
    """Raises BadQuantity."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    group, auto = _group(pod, auto_groups)
    key = GroupKey(f"{meta.namespace}/{group}")
    gates = {gate.name for gate in spec.scheduling_gates or ()}
    return PodRecord(
        uid=Uid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        shape=shapes.of(spec, meta.namespace),
        labels=meta.labels or {},
        node=spec.node_name,
        scheduler=spec.scheduler_name,
        group=key if ours else GroupKey(""),
        own_group=key,
        auto=auto,
        queue=own_queue(pod),
        role=_role(pod),
        priority=spec.priority or 0,
        created=meta.creation_timestamp or "",
        phase=status.phase,
        gated=keys.GATE in gates,
        foreign_gates=bool(gates - {keys.GATE}),
        deleting=meta.deletion_timestamp is not None,
        started=_started(pod),
        nominated=status.nominated_node_name,
        unschedulable=_scheduler_says(pod),
    )


def _group(pod: Pod, auto_groups: bool) -> tuple[str, bool]:
    """The name of a pod's group, and whether it follows from the pod: naming that one changes nothing."""
    named = group_name(pod)
    if not auto_groups:
        return named or f"pod:{pod.metadata.name}", False
    own = auto_name(pod)
    return named or own, named in ("", own)


def is_single(key: GroupKey) -> bool:
    """Whether a key is that of a pod on its own (":" cannot be in an object's name)."""
    return "/pod:" in key


def _role(pod: Pod) -> str:
    meta = pod.metadata
    return (meta.annotations or {}).get(keys.ROLE) or (meta.labels or {}).get(keys.ROLE) or ""


def _started(pod: Pod) -> bool:
    """Whether any container of the pod ever ran: a kubelet that refuses a pod fails it before that."""
    if pod.status.phase in ("Running", "Succeeded"):
        return True
    statuses = (pod.status.init_container_statuses or []) + (pod.status.container_statuses or [])
    return any(_ran(status) for status in statuses)


def _ran(status: ContainerStatus) -> bool:
    states = [state for state in (status.state, status.last_state) if state]
    return any(
        state.running is not None or (state.terminated is not None and bool(state.terminated.started_at))
        for state in states
    )


def _scheduler_says(pod: Pod) -> str:
    """The scheduler's words when it finds no node for the pod, else empty."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message if condition.reason == "Unschedulable" else ""
    return ""


def group_record(group: PodGroup) -> GroupRecord:
    """Faults in the specification are kept in `fault`: the group waits with them, the rest goes on."""
    meta, spec = group.metadata, group.spec
    return GroupRecord(
        key=GroupKey(f"{meta.namespace}/{meta.name}"),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=spec.queue,
        min_member=max(spec.min_member, 0),
        min_task_member={role: n for role, n in (spec.min_task_member or {}).items() if n > 0},
        priority_class=spec.priority_class_name,
        created=meta.creation_timestamp or "",
        phase=group.status.phase,
        stood_whole=_condition(group, keys.STOOD_WHOLE).status == "True",
        last_reason=_condition(group, keys.SCHEDULED).reason,
        fault=_group_fault(group),
        owner=_owner(meta),
        queue_uid=noted_queue(meta),
    )


def group_of_owner(namespace: str, uid: str) -> GroupKey:
    """The group of the pods of a controller that name none."""
    return GroupKey(f"{namespace}/{group_name_of(uid)}")


def any_group_record(group: PodGroup | PluginsPodGroup | NativePodGroup) -> GroupRecord:
    match group:
        case PluginsPodGroup():
            return plugins_record(group)
        case NativePodGroup():
            return native_record(group)
    return group_record(group)


def plugins_record(group: PluginsPodGroup) -> GroupRecord:
    """It says the same under other names; its queue is that of the group's annotation."""
    record = group_record(PodGroup(group.metadata, replace(group.spec, queue=_queue_of(group.metadata))))
    return replace(record, origin=Origin.PLUGINS, stood_whole=_is_noted(group.metadata))


def native_record(group: NativePodGroup) -> GroupRecord:
    gang = group.spec.scheduling_policy.gang
    spec = PodGroupSpec(
        min_member=gang.min_count if gang else 1,
        queue=_queue_of(group.metadata),
        priority_class_name=group.spec.priority_class_name,
    )
    record = group_record(PodGroup(group.metadata, spec))
    return replace(record, origin=Origin.NATIVE, stood_whole=_is_noted(group.metadata))


def _queue_of(meta: Meta) -> str:
    return (meta.annotations or {}).get(keys.QUEUE) or (meta.labels or {}).get(keys.QUEUE) or ""


def _is_noted(meta: Meta) -> bool:
    return (meta.annotations or {}).get(keys.STOOD_WHOLE_NOTE) == "true"


def _owner(meta: Meta) -> str:
    controller = controller_of(meta.owner_references)
    return controller.uid if controller else ""


def _condition(group: PodGroup, kind: str) -> Condition:
    conditions = group.status.conditions or ()
    return next((each for each in conditions if each.type == kind), Condition(kind, "Unknown"))


def _group_fault(group: PodGroup) -> str:
    spec = group.spec
    if spec.min_member < 0:
        return f"spec.minMember is {spec.min_member}; it must be 0 or more"
    for role, count in (spec.min_task_member or {}).items():
        if count < 0:
            return f"spec.minTaskMember[{role}] is {count}; it must be 0 or more"
    try:
        asked(spec.min_resources)
    except BadQuantity as fault:
        return f"spec.minResources: {fault}"
    return ""
