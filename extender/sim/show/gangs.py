"""A gang as the screen shows it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.api.conditions import condition
from extender.api.keys import ENDED_PHASES, SCHEDULED
from extender.api.objects.base import Meta
from extender.api.objects.groups import PodGroup
from extender.api.objects.pods import Pod
from extender.api.workloads.table import WORKLOADS
from extender.domain.model.local_queue_label import local_queue_label
from extender.domain.model.pod_owners import controller_of, group_name_of
from extender.domain.model.queue_of_group import queue_of_podgroup
from extender.domain.model.reasons import NOT_WAITING, Verdict
from extender.domain.queues.local_queue_records import LocalQueueRecord, find_local_queue
from extender.sim.show.outcome import GroupSummary


class Gang(msgspec.Struct, frozen=True):
    """A group as the screen needs it: its summary in the report, and what that does not have.

    `title`: how it is shown, NAMESPACE/NAME. A group that Muster made for pods that name none is shown as the
    controller of those pods, or as the pod: NAMESPACE/KIND/NAME."""

    summary: GroupSummary
    title: str
    verdict: str  # the reason of its condition; empty before Muster has written one
    detail: str
    pods: int
    running: int
    ended: int
    failed: int
    nodes: tuple[str, ...]
    position: int = 0  # in the line of its queue, as Muster decided; 0: it is in none
    is_job: bool = False  # it stands for a job, which may wait before it has pods
    hint: str = ""  # what was probably meant where a name leads nowhere, as a sentence

    @property
    def key(self) -> str:
        return f"{self.summary.namespace}/{self.summary.name}"

    @property
    def state(self) -> str:
        """ended, runs, starts, waits, or pending: Muster has not decided yet."""
        if self.summary.phase == "Completed" or 0 < self.pods == self.ended:
            return "ended"
        if self.summary.phase in ("Running", "Unknown"):
            return "runs"
        if self.verdict == Verdict.STARTING:
            return "starts"
        return "waits" if self.summary.reason else "pending"

    @property
    def waits(self) -> bool:
        return self.state == "waits"

    @property
    def has_started(self) -> bool:
        """Whether the members that it needs have started."""
        return self.state in ("runs", "ended")

    @property
    def size(self) -> int:
        """How many pods it has, or will have: those of a job come once it is let go."""
        return self.pods if self.pods or not self.is_job else self.summary.min_member

    @property
    def left_out(self) -> int:
        """How many members wait although the gang runs: it has more than it needs, or replaces lost ones."""
        return self.pods - self.summary.bound if self.state == "runs" else 0


class WaysIn(NamedTuple):
    """How groups come into queues that they do not name."""

    namespace_queues: Mapping[str, str]  # the queue that a namespace names, by the namespace
    local_queues: Mapping[str, LocalQueueRecord]  # by namespace/name

    def queue_of(self, group: PodGroup) -> str:
        meta = group.metadata
        label = local_queue_label(meta)
        local = find_local_queue(meta.namespace, label, self.local_queues, False) if label else None
        by_label = local.leads_to if local is not None else ""
        return queue_of_podgroup(group.spec.queue, self.namespace_queues.get(meta.namespace, ""), by_label)


def gang_of(group: PodGroup, members: Sequence[Pod], ways: WaysIn) -> Gang:
    meta, scheduled = group.metadata, condition(group.status.conditions, SCHEDULED)
    phases = [pod.status.phase for pod in members]
    bound = [pod.spec.node_name for pod in members if pod.spec.node_name]
    reason = scheduled.reason if scheduled else ""
    summary = GroupSummary(
        namespace=meta.namespace,
        name=meta.name,
        queue=ways.queue_of(group),
        phase=group.status.phase or "Pending",
        reason="" if reason in NOT_WAITING else reason,
        min_member=group.spec.min_member,
        bound=len(bound),
    )
    return Gang(
        summary,
        title=_title(meta),
        verdict=reason,
        detail=scheduled.message if scheduled else "",
        pods=len(members),
        running=phases.count("Running"),
        ended=sum(phase in ENDED_PHASES for phase in phases),
        failed=phases.count("Failed"),
        nodes=tuple(sorted(set(bound))),
        is_job=_is_job(meta),
    )


def _title(meta: Meta) -> str:
    owner = controller_of(meta.owner_references)
    if owner and meta.name == group_name_of(owner.uid):
        return f"{meta.namespace}/{owner.kind.lower()}/{owner.name}"
    return key_of(meta)


def _is_job(meta: Meta) -> bool:
    owner = controller_of(meta.owner_references)
    row = WORKLOADS.get((owner.api_version, owner.kind)) if owner else None
    return bool(row and row.manageable and owner and meta.name == group_name_of(owner.uid))


def key_of(meta: Meta) -> str:
    return f"{meta.namespace}/{meta.name}"
