"""What a simulation comes to: makespan, waits, utilisation, and how fair it was, by queue."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any

import msgspec

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS
from extender.sim.files.unasked import Unasked
from extender.sim.virtual.measurements import GroupTimeline, Measurements
from extender.sim.virtual.simulation import RefusedPod
from extender.sim.virtual.workload import key_of_group
from extender.terminal.text import did_you_mean, many, names_in, near_misses, pods_that_name

_DIGITS = 4
NOT_ASKED = "NotAsked"  # the reason of what Muster leaves alone
FAILED_CREATE = "FailedCreate"  # of what lacks pods that a quota refuses, as Kubernetes' own event has it


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed as JSON or YAML."""


class Waits(Part, frozen=True):
    """Seconds from the moment when the members that a group needs were there until they ran."""

    mean: float
    median: float
    p95: float
    max: float


class SizeReport(Part, frozen=True):
    """The groups of so many pods."""

    pods: str
    groups: int
    started: int
    done: int
    waits: Waits | None


class GroupCounts(Part, frozen=True):
    groups: int
    started: int
    done: int


class LevelReport(Part, frozen=True):
    """`jain`: Jain's index of held/deserved among siblings that want more, averaged over time; `level` 1:
    the queues directly below root."""

    level: int
    jain: float


class QueueReport(Part, frozen=True):
    """`allocated` and `deserved` are parts of the whole cluster, averaged over the time with work."""

    name: str
    weight: int
    groups: int
    started: int
    done: int
    waits: Waits | None
    allocated: dict[str, float]
    deserved: dict[str, float]


class Unstarted(Part, frozen=True):
    """A group that still waits when nothing changes any more, and why. `hint`: the name that was probably
    meant, if the group or its queue does not exist. `pods`: of one that has started, its members that have
    not; 0: it has not."""

    group: str
    queue: str
    reason: str
    detail: str
    hint: str = ""
    pods: int = 0


class SimulationReport(Part, frozen=True):
    makespan: float
    nodes: int
    pods: int
    groups: int
    started: int  # groups of which the members that they need have run
    done: int  # groups of which all have ended
    one_by_one: GroupCounts  # those of these whose pods need not start together
    decisions: int
    outsiders: int
    waits: Waits | None
    utilisation: dict[str, float]
    fairness: list[LevelReport]
    evictions: int  # pods that gave their room back to others, and came again
    reservations: int  # groups for which nodes were reserved
    sizes: list[SizeReport]
    queues: list[QueueReport]
    never_started: list[Unstarted]
    compared: "SimulationReport | None" = None  # with traverse only, if that was asked for


def report(
    measured: Measurements,
    nodes: int,
    decisions: int,
    end: float,
    unasked: Sequence[Unasked] = (),
    refused: Sequence[RefusedPod] = (),
) -> SimulationReport:
    lacking = {key_of_group(pod.member.pod) for pod in refused}
    timelines, queues = list(measured.timelines.values()), measured.decisions.queues
    by_queue = defaultdict[str, list[GroupTimeline]](list)
    by_size = defaultdict[int, list[GroupTimeline]](list)
    for timeline in timelines:
        by_queue[timeline.queue].append(timeline)
        by_size[(max(timeline.present, 1).bit_length() - 1) // 2].append(timeline)
    top = [sums.allocated for name, sums in measured.sums.items() if queues[name].parent == ROOT_QUEUE]
    return SimulationReport(
        makespan=_rounded(end - (measured.first or 0.0)),
        nodes=nodes,
        pods=sum(timeline.present for timeline in timelines),
        decisions=decisions,
        outsiders=measured.outsiders,
        **_counts(timelines),
        one_by_one=GroupCounts(**_numbers([each for each in timelines if each.needed <= 1])),
        utilisation=_parts(measured, *top),
        fairness=[LevelReport(level, _rounded(mean)) for level, mean in measured.fairness.means().items()],
        evictions=sum(timeline.reclaimed.total() for timeline in timelines),
        reservations=sum(bool(timeline.reserved) for timeline in timelines),
        sizes=[  # in classes, each four times as large as the one before; empty ones are left out
            SizeReport(f"{4**size}-{4 ** (size + 1) - 1}", **_counts(by_size[size]))
            for size in sorted(by_size)
        ],
        queues=[
            QueueReport(
                name=name,
                weight=queues[name].weight,
                **_counts(by_queue[name]),
                allocated=_parts(measured, measured.sums[name].allocated),
                deserved=_parts(measured, measured.sums[name].deserved),
            )
            for name in sorted(queues.keys() & by_queue.keys())
        ],
        never_started=[
            *_refused(measured, refused),
            *(
                _unstarted(measured, timeline)
                for timeline in timelines
                if timeline.unstarted and timeline.key not in lacking
            ),
            *(Unstarted(job.title, "", NOT_ASKED, job.missing) for job in unasked if job.suspended),
        ],
    )


def _parts(measured: Measurements, *held: Mapping[str, float]) -> dict[str, float]:
    """Of the cluster, for each resource that was asked for and is there."""
    asked = {name for sums in measured.sums.values() for name in sums.allocated}
    return {
        name: _rounded(sum(each.get(name, 0.0) for each in held) / most / (measured.busy or math.inf))
        for name, most in measured.capacity.items()
        if most and name in asked and name != PODS
    }


def _counts(timelines: Sequence[GroupTimeline]) -> dict[str, Any]:
    waits = sorted(timeline.wait for timeline in timelines if timeline.wait is not None)
    p95 = waits[math.ceil(0.95 * len(waits)) - 1] if waits else 0.0
    return _numbers(timelines) | {
        "waits": Waits(*map(_rounded, (mean(waits), median(waits), p95, waits[-1]))) if waits else None,
    }


def _numbers(timelines: Sequence[GroupTimeline]) -> dict[str, int]:
    return {
        "groups": len(timelines),
        "started": sum(timeline.started is not None for timeline in timelines),
        "done": sum(timeline.over is not None for timeline in timelines),
    }


def _refused(measured: Measurements, refused: Sequence[RefusedPod]) -> Iterator[Unstarted]:
    left = Counter(key_of_group(pod.member.pod) for pod in refused)
    first = {key_of_group(pod.member.pod): pod for pod in reversed(refused)}
    for key, number in left.items():
        name, total = measured.name_of(key), measured.members_of[key]
        timeline = measured.timelines.get(key)
        pods = number if timeline is not None and timeline.started is not None else 0
        queue = timeline.queue if timeline is not None else ""
        created = f"{total - number} of {many(total, 'pod')}"
        is_owned = bool(first[key].member.pod.metadata.owner_references)
        said = f"its controller has created {created}" if is_owned else f"{created} created"
        detail = f"{said}: {first[key].why}"
        yield Unstarted(name, queue, FAILED_CREATE, detail, pods=pods)


def _unstarted(measured: Measurements, timeline: GroupTimeline) -> Unstarted:
    decision = measured.decisions.groups.get(timeline.key)
    pods = 0 if timeline.started is None else timeline.unstarted
    if decision is None or (decision.verdict is not Verdict.WAITING and not pods):
        return Unstarted(timeline.name, timeline.queue, "", "", pods=pods)
    hint = ""
    if decision.reason is Reason.QUEUE_NOT_FOUND:
        hint = did_you_mean(near_misses(timeline.queue, {*measured.known_queues, DEFAULT_QUEUE}, 1))
    elif decision.reason is Reason.GROUP_NOT_FOUND:
        namespace, _, named = timeline.name.partition("/")
        if meant := did_you_mean(near_misses(named, names_in(namespace, measured.known_groups), 1)):
            hint = f"{pods_that_name(timeline.present)} {named}: {meant}"
    reason = str(decision.reason or "")
    return Unstarted(timeline.name, timeline.queue, reason, decision.detail, hint, pods)


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
