"""What the group itself would have to say or to have."""

import numpy as np
from msgspec.structs import replace

from extender.api import keys
from extender.domain.explanation.case import StartChange, WaitingCase, amounts_text
from extender.domain.explanation.hypotheses import with_group
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources, show
from extender.domain.model.shapes import Shape


def members(case: WaitingCase) -> StartChange | None:
    there = [*case.group.waiting, *(pod for pod, _ in case.group.pinned), *case.group.placed]
    more = case.group.min_member - len(there)
    if more <= 0:
        return None
    text = f"with {more} more member{'s' * (more > 1)}"
    if not there:
        return StartChange(text, then="what they ask for is not known yet")
    copies = tuple(_copy(there[0], number) for number in range(more))
    return case.start_change(
        text, with_group(case.snapshot, replace(case.group, waiting=(*case.group.waiting, *copies)))
    )


def requests(case: WaitingCase) -> StartChange | None:
    """Of members that no node can hold."""
    smaller = {shape: _largest(case, shape) for shape in missing(case.group).shapes}
    changed = {shape: amounts for shape, amounts in smaller.items() if amounts != shape.requests}
    if not changed or any(amounts is None for amounts in changed.values()):
        return None
    shapes = {shape: Shape(amounts or {}, shape.constraints) for shape, amounts in changed.items()}
    waiting = tuple(replace(pod, shape=shapes.get(pod.shape, pod.shape)) for pod in case.group.waiting)
    now = with_group(case.snapshot, replace(case.group, waiting=waiting))
    less = [
        f"{amounts_text({name: n})} per member instead of {show(name, shape.requests[name])}"
        for shape, amounts in changed.items()
        for name, n in (amounts or {}).items()
        if n != shape.requests[name]
    ]
    return case.start_change(f"with requests of at most {', '.join(less)}", now)


def _largest(case: WaitingCase, shape: Shape) -> Resources | None:
    """What the suitable node that falls short least has of its requests; None without such a node."""
    rows, columns = np.flatnonzero(case.snapshot.nodes.suitable(shape)), case.snapshot.dimensions
    best: tuple[float, Resources] | None = None
    for row in rows.tolist():
        there = dict(zip(columns, case.snapshot.allocatable[row].tolist(), strict=True))
        most = {name: min(amount, there.get(name, 0)) for name, amount in shape.requests.items()}
        part = min((most[name] / amount for name, amount in shape.requests.items() if amount), default=1.0)
        if part > 0 and (best is None or part > best[0]):
            best = (part, most)
    return best[1] if best else None


def run_time(case: WaitingCase) -> StartChange | None:
    moments = [each.reservation.passable_until for each in case.decisions.groups.values() if each.reservation]
    left = [moment - case.snapshot.now for moment in moments if moment is not None]
    seconds = int(max(left, default=0.0))
    if seconds < 1:
        return None
    short = with_group(case.snapshot, replace(case.group, run_time=float(seconds)))
    if not case.trial.starts(short):
        return None
    return StartChange(f"with a declared run time of at most {seconds} s ({keys.RUN_TIME})")


def resumed(case: WaitingCase) -> StartChange:
    resumed = with_group(case.snapshot, replace(case.group, held=False))
    return case.start_change(f"without the annotation {keys.HOLD}", resumed)


def tried_again(case: WaitingCase) -> StartChange:
    """Of a job whose start came too late too often."""
    again = with_group(case.snapshot, replace(case.group, start_timeouts=0))
    return case.start_change(f"without the annotation {keys.START_TIMEOUTS}", again)


def local_queue_resumed(case: WaitingCase) -> StartChange | None:
    """Of the LocalQueue by which it comes into its queue."""
    local = case.group.local_queue
    if local is None or not local.stop_policy:
        return None
    resumed = with_group(case.snapshot, replace(case.group, local_queue=replace(local, stop_policy="")))
    return case.start_change(f"with spec.stopPolicy None in LocalQueue {local.key}", resumed)


def _copy(pod: PodRecord, number: int) -> PodRecord:
    return replace(
        pod,
        uid=Uid(f"{pod.uid}:{number}"),
        name=f"{pod.name}:{number}",
        node="",
        phase="Pending",
        role=pod.role,
    )
