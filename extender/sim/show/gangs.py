"""Gangs and single pods for the screen, and the outcome that -o json prints."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ENDED_PHASES, GATE
from extender.api.objects.base import Meta, condition
from extender.api.objects.pods import Pod
from extender.api.units import Quantity
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.kinds import Json
from extender.domain.explain.observed_objects import ObservedGroup
from extender.domain.model.ownership import auto_group_name, group_name
from extender.domain.model.queue_of_group import explicit_queue, local_queue_label
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.local_queues import QueueRoutes
from extender.sim.scheduler.loop import EXTENDED_PROFILES, PLAIN_PROFILES
from extender.terminal.text import counted, did_you_mean, names_in, near_miss, near_misses, pods_that_name

Written = dict[str, Quantity]  # amounts by resource, in the notation of Kubernetes


class ReportedQueue(msgspec.Struct, frozen=True):
    name: str
    state: str
    weight: int
    deserved: Written
    allocated: Written
    share: float


class ReportedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Group in the report. `reason` says why members wait, if some do.

    `bound` is the number of members on nodes.
    """

    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    min_member: int
    bound: int


class PodSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Pod in the report. `pod_group` is the group that the pod names, which may not exist.

    `reason` says why the pod has no node.
    """

    namespace: str
    name: str
    pod_group: str
    phase: str
    reason: str
    node: str


class ReportedNode(msgspec.Struct, frozen=True):
    name: str
    allocatable: Written
    used: Written


class ClusterReport(msgspec.Struct, frozen=True, rename="camel"):
    pod_groups: list[ReportedGroup]
    queues: list[ReportedQueue]
    pods: list[PodSummary]
    nodes: list[ReportedNode]


class Gang(msgspec.Struct, frozen=True):
    """Group on the screen: its PodGroup, its queue, and its pods."""

    group: ObservedGroup
    queue: str
    pods: Sequence[Pod]
    position: int = 0  # position in its queue; 0 if it is not pending
    hint: str = ""  # a sentence that suggests a name for one that does not exist

    @property
    def key(self) -> str:
        return self.group.key

    @property
    def title(self) -> str:
        """Return `NAMESPACE/NAME`.

        The title of a group that Muster made is `NAMESPACE/KIND/NAME` of the owner or pod.
        """
        return f"{self.group.namespace}/{self.group.display_name}"

    @property
    def state(self) -> Verdict:
        return Verdict.ENDED if 0 < len(self.pods) == self.ended_count else self.group.verdict

    @property
    def bound_count(self) -> int:
        """Return the number of members that are on a node or have ended there."""
        return sum(bool(pod.spec.node_name) for pod in self.pods)

    @property
    def nodes(self) -> list[str]:
        return sorted({pod.spec.node_name for pod in self.pods} - {""})

    @property
    def running_count(self) -> int:
        return sum(pod.status.phase == "Running" for pod in self.pods)

    @property
    def ended_count(self) -> int:
        return sum(pod.status.phase in ENDED_PHASES for pod in self.pods)

    @property
    def failed_count(self) -> int:
        return sum(pod.status.phase == "Failed" for pod in self.pods)

    @property
    def is_job(self) -> bool:
        """Return whether the gang belongs to a job, which may have no pods while it waits."""
        owner = self.group.controller
        row = WORKLOADS.get((owner.api_version, owner.kind)) if owner else None
        return row is not None and row.manageable

    @property
    def as_report(self) -> ReportedGroup:
        group, bound = self.group, self.bound_count
        phase, needed = group.status.phase or "Pending", group.spec.min_member
        return ReportedGroup(group.namespace, group.name, self.queue, phase, group.reason, needed, bound)

    @property
    def waits(self) -> bool:
        return self.state is Verdict.WAITING

    @property
    def has_started(self) -> bool:
        """Return whether the minimum of members has started."""
        return self.state in (Verdict.RUNNING, Verdict.ENDED)

    @property
    def size(self) -> int:
        """Return the number of existing or future pods. A job creates its pods after its admission."""
        return len(self.pods) or (self.group.spec.min_member if self.is_job else 0)

    @property
    def admission_text(self) -> str:
        """Return a clause about the number of pods with which the gang was admitted."""
        minimum, existing = self.group.spec.min_member, len(self.pods)
        if self.is_job and existing < minimum:
            return f"has capacity for {counted(minimum, 'pod')}; {existing} of them are created"
        return f"admitted whole, with {counted(self.size, 'pod')}"

    @property
    def starts_one_by_one(self) -> bool:
        """Return whether each pod starts as soon as it can, without waiting for the other pods."""
        return self.group.spec.min_member <= 1 < self.size

    @property
    def waiting_count(self) -> int:
        """Return the number of waiting members of a running gang: surplus members or replacements."""
        return len(self.pods) - self.bound_count if self.state is Verdict.RUNNING else 0


def gang_of(group: ObservedGroup, members: Sequence[Pod], routes: QueueRoutes) -> Gang:
    queue_name, label = explicit_queue(group.spec.queue), local_queue_label(group.metadata)
    return Gang(group, routes.queue_of(group.namespace, queue_name, label) or DEFAULT_QUEUE, members)


def key_of(meta: Meta) -> str:
    return f"{meta.namespace}/{meta.name}"


# ---- pods that are members of no group
#
# These pods name no PodGroup, a missing PodGroup, or another scheduler. Muster's debug port has the reason
# of a pod that Muster schedules. The pods of another scheduler have a condition with the reason.

SERVED_PROFILES = EXTENDED_PROFILES | PLAIN_PROFILES
NO_SCHEDULER = "NoSuchScheduler"
FOREIGN_GATES = "SchedulingGated"


class WaitReason(NamedTuple):
    """Reason of a wait. `detail` has the numbers, `hint` a similar name."""

    reason: str = ""
    detail: str = ""
    hint: str = ""


class SinglePod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    group: str  # name of the PodGroup that the pod names
    missing_group: str  # name of that PodGroup if it does not exist, else empty
    scheduler: str
    state: Verdict
    node: str
    failed: bool
    wait_reason: WaitReason = WaitReason()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_started(self) -> bool:
        return self.state in (Verdict.RUNNING, Verdict.ENDED)


class KnownObjects(NamedTuple):
    """Existing objects that may explain why a pod waits."""

    decided_groups: Mapping[str, Json]  # groups from Muster's debug port, by key
    groups: Collection[str]  # keys of all groups
    queues: Collection[str]  # names of all queues


def single_pod(pod: Pod, known_objects: KnownObjects) -> SinglePod:
    meta, node, phase = pod.metadata, pod.spec.node_name, pod.status.phase
    wait = WaitReason() if node or phase in ENDED_PHASES else _pod_reason(pod, known_objects)
    if phase in ENDED_PHASES:
        state = Verdict.ENDED
    elif node:
        state = Verdict.RUNNING
    else:
        state = Verdict.WAITING if wait.reason else Verdict.UNKNOWN
    named_group, scheduler = group_name(pod), pod.spec.scheduler_name
    missing = "" if f"{meta.namespace}/{named_group}" in known_objects.groups else named_group
    failed = phase == "Failed"
    return SinglePod(meta.namespace, meta.name, named_group, missing, scheduler, state, node, failed, wait)


def _pod_reason(pod: Pod, known_objects: KnownObjects) -> WaitReason:
    scheduler = pod.spec.scheduler_name
    if scheduler not in SERVED_PROFILES:
        detail = f"no scheduler named {scheduler} runs here; {', '.join(sorted(SERVED_PROFILES))} do"
        return WaitReason(NO_SCHEDULER, detail, _suggestion(scheduler, SERVED_PROFILES))
    if foreign := [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != GATE]:
        return WaitReason(FOREIGN_GATES, f"gates that Muster does not remove: {', '.join(foreign)}")
    group_reason = _group_reason(pod, known_objects) if scheduler in EXTENDED_PROFILES else None
    if group_reason is not None:
        return group_reason
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled and scheduled.reason != FOREIGN_GATES:
        return WaitReason(scheduled.reason, scheduled.message)
    return WaitReason()


def _group_reason(pod: Pod, known_objects: KnownObjects) -> WaitReason | None:
    """Return the reason of the group that a pod names, or of the group that Muster made for the pod."""
    meta, named = pod.metadata, group_name(pod)
    names = (named,) if named else (f"pod:{meta.name}", auto_group_name(pod))
    candidates = (known_objects.decided_groups.get(f"{meta.namespace}/{name}") for name in names)
    decided: Json = next(filter(None, candidates), {})
    if not (reason := decided.get("reason", "")):
        return None
    hint = ""
    if reason == Reason.QUEUE_NOT_FOUND:
        hint = _suggestion(str(decided.get("queue", "")), known_objects.queues)
    elif reason == Reason.GROUP_NOT_FOUND:
        namespaces = [key.partition("/")[0] for key in known_objects.groups if key.endswith(f"/{named}")]
        elsewhere = f"there is one in namespace {namespaces[0]}" if namespaces else ""
        hint = _suggestion(named, names_in(meta.namespace, known_objects.groups)) or elsewhere
    return WaitReason(reason, decided.get("detail", ""), hint)


def _suggestion(name: str, known_names: Iterable[str]) -> str:
    return did_you_mean(near_misses(name, known_names, 1))


def hint_for(gang: Gang, known_objects: KnownObjects, single_pods: Sequence[SinglePod]) -> str:
    """Return a hint about a gang as a sentence; empty if there is none."""
    namespace, name, reason = gang.group.namespace, gang.group.name, gang.group.reason
    if reason == Reason.QUEUE_NOT_FOUND:
        suggestion = _suggestion(gang.queue, known_objects.queues)
        return suggestion[:1].upper() + suggestion[1:]
    if reason != Reason.NOT_ENOUGH_MEMBERS:
        return ""
    pods = [pod for pod in single_pods if pod.namespace == namespace]
    if others := Counter(pod.scheduler for pod in pods if pod.group == name):
        counts = (f"{pods_that_name(count)} it with schedulerName {other}" for other, count in others.items())
        return f"{' and '.join(counts)}, which is not Muster's."
    names = names_in(namespace, known_objects.groups)
    for missing_name, count in Counter(pod.missing_group for pod in pods if pod.missing_group).items():
        if near_miss(missing_name, names) == name:
            return f"{pods_that_name(count)} {missing_name}: did you mean {name}?"
    elsewhere = Counter(pod.namespace for pod in single_pods if pod.missing_group == name)
    for other, count in elsewhere.items():
        return f"{pods_that_name(count)} it in namespace {other}, where there is no such group."
    return ""
