"""Pods that are members of no group: where they are, and why those without a node wait.

They name no PodGroup, or one that does not exist, or a scheduler that is not Muster's.

Muster's debug port has the reason of those that it schedules; of others, the condition that their scheduler
wrote. A pod whose scheduler does not run here has neither.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from extender.api.conditions import condition
from extender.api.keys import ENDED_PHASES, GATE
from extender.api.objects.pods import Pod
from extender.domain.model.ownership import group_name
from extender.domain.model.pod_owners import auto_name
from extender.domain.model.reasons import Reason
from extender.sim.apiserver.kinds import Json
from extender.sim.scheduler.loop import EXTENDED, PLAIN
from extender.terminal.near_misses import did_you_mean, names_in, near_misses

SERVED = EXTENDED | PLAIN
NO_SCHEDULER = "NoSuchScheduler"
FOREIGN_GATES = "SchedulingGated"


class Why(NamedTuple):
    """A reason, the numbers behind it, and a name that was probably meant."""

    reason: str = ""
    detail: str = ""
    hint: str = ""


class LoosePod(msgspec.Struct, frozen=True):
    """`group`: the PodGroup that it names, or empty. `missing_group`: the same if that does not exist.
    `state`: as Gang's, or failed."""

    namespace: str
    name: str
    group: str
    missing_group: str
    scheduler: str
    state: str
    node: str
    why: Why = Why()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_started(self) -> bool:
        return self.state in ("runs", "ended", "failed")


class Known(NamedTuple):
    """What explains a pod. `decided`: what Muster's debug port says, by group. `groups`: keys of all."""

    decided: Mapping[str, Json]
    groups: Collection[str]
    queues: Collection[str]


def loose_pod(pod: Pod, known: Known) -> LoosePod:
    meta, node = pod.metadata, pod.spec.node_name
    state = _state(pod)
    why = _why(pod, known) if state == "waits" else Why()
    if state == "waits" and not why.reason:
        state = "pending"
    named, scheduler = group_name(pod), pod.spec.scheduler_name
    missing = "" if f"{meta.namespace}/{named}" in known.groups else named
    return LoosePod(meta.namespace, meta.name, named, missing, scheduler, state, node, why)


def _state(pod: Pod) -> str:
    if pod.status.phase in ENDED_PHASES:
        return "failed" if pod.status.phase == "Failed" else "ended"
    return "runs" if pod.spec.node_name else "waits"


def _why(pod: Pod, known: Known) -> Why:
    scheduler = pod.spec.scheduler_name
    if scheduler not in SERVED:
        served = ", ".join(sorted(SERVED))
        detail = f"no scheduler named {scheduler} runs here; {served} do"
        return Why(NO_SCHEDULER, detail, _meant(scheduler, SERVED))
    if foreign := [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != GATE]:
        return Why(FOREIGN_GATES, f"gates that Muster does not remove: {', '.join(foreign)}")
    decided = _decided(pod, known) if scheduler in EXTENDED else {}
    if reason := decided.get("reason", ""):
        return Why(reason, decided.get("detail", ""), _hint(pod, reason, decided, known))
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled and scheduled.reason != FOREIGN_GATES:
        return Why(scheduled.reason, scheduled.message)
    return Why()


def _decided(pod: Pod, known: Known) -> Json:
    """On the group that it names, or else on that of its own, which has one of two names."""
    meta, named = pod.metadata, group_name(pod)
    names = (named,) if named else (f"pod:{meta.name}", auto_name(pod))
    found = (known.decided.get(f"{meta.namespace}/{name}") for name in names)
    return next(filter(None, found), {})


def _hint(pod: Pod, reason: str, decided: Json, known: Known) -> str:
    if reason == Reason.QUEUE_NOT_FOUND:
        return _meant(str(decided.get("queue", "")), known.queues)
    if reason != Reason.GROUP_NOT_FOUND:
        return ""
    named, namespace = group_name(pod), pod.metadata.namespace
    return _meant(named, names_in(namespace, known.groups)) or _elsewhere(named, known.groups)


def _meant(name: str, known: Iterable[str]) -> str:
    return did_you_mean(near_misses(name, known, 1))


def _elsewhere(name: str, keys: Iterable[str]) -> str:
    found = [key.partition("/")[0] for key in keys if key.endswith(f"/{name}")]
    return f"there is one in namespace {found[0]}" if found else ""
