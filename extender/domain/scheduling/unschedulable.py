"""Why a group does not fit: never, not now, or only in pieces."""

from collections import Counter

from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.reasons import Reason
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, show, three_digits
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.planner import Planner
from extender.domain.placement.tally import Tally
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

_MOST_NAMES = 8  # of resources in one sentence: a pod may ask for thousands, and a status should stay small


def explain(round_: Round, planner: Planner, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
    """The reason and its numbers for members that have no placement in `space`."""
    members, shapes = wanted.members, wanted.shapes
    fixed = _never(round_, wanted) or _refused(planner.capacity, group, shapes)
    if fixed is not None:
        return fixed
    if not planner.affinity.any_particular(members, shapes) and planner.capacity.is_short_for(shapes):
        return explain_shortage(planner.capacity, shapes)
    at_once = f"room for {len(planner.fitting(members))} of {len(members)} members at once"
    return _lacking(planner.capacity, shapes) or (Reason.FRAGMENTED, at_once)


def explain_shortage(capacity: Capacity | Tally, shapes: Counter[Shape]) -> tuple[Reason, str]:
    """The same where there is too little room for some shape alone, and no member looks at others: amounts
    and counts say all, nothing needs to be placed."""
    return _lacking(capacity, shapes) or (Reason.FRAGMENTED, f"{_room_for(capacity, shapes)} at once")


def _never(round_: Round, wanted: Missing) -> tuple[Reason, str] | None:
    for shape in wanted.shapes:
        if not round_.empty.capacity.total(shape):
            return Reason.NEVER_FITS, _no_node(round_, shape)
    if not round_.could_stand_alone(wanted):
        return (
            Reason.NEVER_FITS,
            f"all suitable nodes together cannot hold {len(wanted.members)} members, even when empty",
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


def _refused(capacity: Capacity, group: GroupView, shapes: Counter[Shape]) -> tuple[Reason, str] | None:
    if not any(capacity.refuses(shape) for shape in shapes):
        return None
    if not all(capacity.could_hold_but_for_refusals(shape, n) for shape, n in shapes.items()):
        return None
    return (
        Reason.REFUSED_BY_SCHEDULER,
        group.start.failure or "the scheduler rejects the nodes that have room",
    )


def _lacking(capacity: Capacity | Tally, shapes: Counter[Shape]) -> tuple[Reason, str] | None:
    """What is left counts with three digits: of many thousands, each event changes the others."""
    parts = [{shape: count} for shape, count in shapes.items()]
    for part in (*parts, shapes) if len(parts) > 1 else parts:
        there = capacity.sum_for(part)
        for name, amount in requests_of(part).items():
            left = three_digits(name, there.get(name, 0))
            if left < amount:
                numbers = f"{name}: {show(name, amount)} needed, {show(name, left)} left on suitable nodes"
                return Reason.NO_ROOM, f"{numbers}; {_room_for(capacity, shapes)}"
    return None


def _room_for(capacity: Capacity | Tally, shapes: Counter[Shape]) -> str:
    """Of several shapes each is counted alone."""
    fitting = sum(min(capacity.total(shape), n) for shape, n in shapes.items())
    return f"room for {'at most ' * (len(shapes) > 1)}{fitting} of {shapes.total()} members"


def describe(requests: Resources) -> str:
    """A request as text: cpu and memory first, pods left out; of very many resources the first few."""
    order = [name for name in (CPU, MEMORY) if name in requests]
    order += sorted(name for name in requests if name not in (CPU, MEMORY, PODS))
    more = f" and {len(order) - _MOST_NAMES} more" if len(order) > _MOST_NAMES else ""
    text = " ".join(f"{name} {show(name, requests[name])}" for name in order[:_MOST_NAMES])
    return text + more if text else "an empty request"
