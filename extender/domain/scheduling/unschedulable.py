"""Why a group does not fit: never, not now, or only in pieces."""

from collections import Counter
from collections.abc import Sequence

from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.reasons import Reason
from extender.domain.model.records import PodRecord
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, show
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

_MOST_NAMES = 8  # of resources in one sentence: a pod may ask for thousands, and a status should stay small


def explain(round_: Round, planner: Planner, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
    """The reason and its numbers for members that have no placement in `space`."""
    members, shapes = wanted.members, wanted.shapes
    return (
        _never(round_, members, shapes)
        or _refused(planner, group, shapes)
        or _lacking(planner, shapes)
        or (
            Reason.FRAGMENTED,
            f"room for {_at_once(planner, members, shapes)} of {len(members)} members at once",
        )
    )


def _never(round_: Round, members: Sequence[PodRecord], shapes: Counter[Shape]) -> tuple[Reason, str] | None:
    empty = round_.empty
    for shape in shapes:
        if not empty.capacity.total(shape):
            return Reason.NEVER_FITS, _no_node(round_, shape)
    if not empty.could_place(members, shapes):
        return (
            Reason.NEVER_FITS,
            f"all suitable nodes together cannot hold {len(members)} members, even when empty",
        )
    return None


def _no_node(round_: Round, shape: Shape) -> str:
    """Resources that no node has at all explain more than the whole request."""
    if lacking := _lacked_by_all(round_.snapshot, shape.requests):
        more = f" and {len(lacking) - _MOST_NAMES} more" if len(lacking) > _MOST_NAMES else ""
        return f"no node has {', '.join(lacking[:_MOST_NAMES])}{more}"
    suitable = int(round_.snapshot.nodes.suitable(shape).sum())
    return f"no node can hold {describe(shape.requests)} (suitable nodes: {suitable})"


def _lacked_by_all(snapshot: Snapshot, requests: Resources) -> list[str]:
    """What is requested and no node has, by name; empty without nodes, which lack more than that."""
    if not len(snapshot.allocatable):
        return []
    offers = dict(zip(snapshot.dimensions, snapshot.allocatable.max(axis=0), strict=True))
    return sorted(name for name, amount in requests.items() if amount > 0 >= offers.get(name, 0))


def _refused(planner: Planner, group: GroupView, shapes: Counter[Shape]) -> tuple[Reason, str] | None:
    if not any(planner.capacity.refuses(shape) for shape in shapes):
        return None
    if not all(planner.capacity.could_hold_but_for_refusals(shape, n) for shape, n in shapes.items()):
        return None
    return (
        Reason.REFUSED_BY_SCHEDULER,
        group.start.failure or "the scheduler rejects the nodes that have room",
    )


def _lacking(planner: Planner, shapes: Counter[Shape]) -> tuple[Reason, str] | None:
    parts = [{shape: count} for shape, count in shapes.items()]
    for part in (*parts, shapes) if len(parts) > 1 else parts:
        there = planner.capacity.sum_for(part)
        for name, amount in requests_of(part).items():
            if there.get(name, 0) < amount:
                needed, left = show(name, amount), show(name, there.get(name, 0))
                fitting = _fitting(planner, shapes)
                members = f"room for {fitting} of {shapes.total()} members"
                return Reason.NO_ROOM, f"{name}: {needed} needed, {left} left on suitable nodes; {members}"
    return None


def _at_once(planner: Planner, members: Sequence[PodRecord], shapes: Counter[Shape]) -> int:
    """How many members fit at the same time. Members of one shape do not exclude each other."""
    if len(shapes) == 1 and not planner.affinity.any_particular(members, shapes):
        return _fitting(planner, shapes)
    return len(planner.fitting(members))


def _fitting(planner: Planner, shapes: Counter[Shape]) -> int:
    return sum(min(planner.capacity.total(shape), n) for shape, n in shapes.items())


def describe(requests: Resources) -> str:
    """A request in words: cpu and memory first, pods left out; of very many resources the first few."""
    order = [name for name in (CPU, MEMORY) if name in requests]
    order += sorted(name for name in requests if name not in (CPU, MEMORY, PODS))
    more = f" and {len(order) - _MOST_NAMES} more" if len(order) > _MOST_NAMES else ""
    text = " ".join(f"{name} {show(name, requests[name])}" for name in order[:_MOST_NAMES])
    return text + more if text else "an empty request"
