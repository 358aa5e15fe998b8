"""Why a group does not fit: never (NeverFits), not now (NoRoom), or only in pieces (Fragmented)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from extender.api.objects.pods import NodeSelectorTerm, Requirement, Toleration
from extender.domain.model.reasons import Reason
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, show, three_digits
from extender.domain.model.selectors import tolerated
from extender.domain.model.shapes import Constraints, Shape, requests_of
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, NodeTable, Rows
from extender.domain.snapshot.wholeness import Missing

_MOST_NAMES = 8  # of resources in one sentence: a pod may ask for thousands, and a status should stay small
_ALL_TAINTS = (Toleration(operator="Exists"),)
_UNBOUNDED = np.iinfo(np.int64).max
Alike = frozenset[object]  # the keys of NodeTests: equal for shapes that suit the same nodes


class Tally:
    """How many pods of each shape all nodes have room for, and how much is left on them together, for shapes
    that the scheduler refuses nowhere. It is carried from event to event: the effect of one is computed from
    the few rows that it changed. Never changed."""

    def __init__(
        self,
        table: "_ShapeTable",
        totals: Mapping[Shape, int],
        sums: Mapping[Alike, tuple[Sequence[Shape], Mapping[str, int]]],
    ) -> None:
        self._table = table
        self.totals = totals
        self._sums = sums  # by Alike: example shapes, and what is left on the nodes that suit any of them

    @classmethod
    def of(cls, capacity: Capacity, gangs: Iterable[Iterable[Shape]]) -> "Tally":
        """The tally of a capacity. `gangs`: the shapes of each gang."""
        parts = [tuple(gang) for gang in gangs]
        shapes = dict.fromkeys(shape for part in parts for shape in part)
        parts += [(shape,) for shape in shapes]
        sums = {_alike(part): (part, capacity.sum_for(part)) for part in parts}
        totals = {shape: capacity.total(shape) for shape in shapes}
        return cls(_ShapeTable(tuple(shapes), capacity.dimensions, capacity.nodes), totals, sums)

    def total(self, shape: Shape) -> int:
        """How many pods of `shape` all nodes have room for."""
        return self.totals[shape]

    def sum_for(self, shapes: Iterable[Shape]) -> Mapping[str, int]:
        """What is left on all nodes that suit any of `shapes`."""
        return self._sums[_alike(shapes)][1]

    def is_short_for(self, shapes: Mapping[Shape, int]) -> bool:
        """Whether the nodes lack room for any shape's number of pods, even without those of other shapes."""
        return any(n > self.totals[shape] for shape, n in shapes.items())

    def after(self, rows: Rows, then: AmountRows, now: AmountRows) -> "Tally":
        """The tally once the amounts left on `rows` have changed from `then` to `now`."""
        if not len(rows):
            return self
        more = self._table.count(rows, now) - self._table.count(rows, then)
        totals = self.totals
        if more.any():
            pairs = zip(totals.items(), more.tolist(), strict=True)
            totals = {shape: total + difference for (shape, total), difference in pairs}
        difference = np.maximum(now, 0) - np.maximum(then, 0)
        sums = {
            alike: (shapes, self._table.add(sums, shapes, rows, difference))
            for alike, (shapes, sums) in self._sums.items()
        }
        return Tally(self._table, totals, sums)

    def reads_like(self, later: "Tally") -> bool:
        """Whether the amounts left are printed alike for both."""
        if self._sums is later._sums:
            return True
        return all(
            sums is (new := later._sums[alike][1])
            or all(three_digits(name, n) == three_digits(name, new[name]) for name, n in sums.items())
            for alike, (_, sums) in self._sums.items()
        )

    def recounted(self, later: "Tally") -> set[Shape]:
        """Shapes of which the later tally has room for more, or fewer, pods."""
        if self.totals is later.totals:
            return set()
        return {shape for shape, total in self.totals.items() if later.totals[shape] != total}

    def difference(self, later: "Tally") -> dict[Shape, int]:
        """How many more pods of each shape the later tally has room for; negative for fewer."""
        return {shape: later.totals[shape] - total for shape, total in self.totals.items()}


class _ShapeTable:
    """The requests of shapes, one row per shape, so that all of them are counted at once."""

    def __init__(self, shapes: Sequence[Shape], dimensions: Sequence[str], nodes: NodeTable) -> None:
        self._shapes = shapes
        self._columns = {name: column for column, name in enumerate(dimensions)}
        self._nodes = nodes
        self._offered = np.array(
            [shape.requests.keys() <= self._columns.keys() for shape in shapes], np.bool_
        )
        self._asked = np.zeros((len(shapes), len(dimensions)), dtype=np.int64)
        for row, shape in enumerate(shapes):
            for name, amount in shape.requests.items() if self._offered[row] else ():
                self._asked[row, self._columns[name]] = amount

    def count(self, rows: Rows, left: AmountRows) -> Rows:
        """How many pods of each shape fit on `rows`, with the amounts `left` on them."""
        asked, sums = self._asked, np.zeros(len(self._shapes), dtype=np.int64)
        for number, row in enumerate(rows):
            fits = np.where(asked > 0, left[number] // np.maximum(asked, 1), _UNBOUNDED).min(axis=1)
            by_key: dict[object, bool] = {}
            for shape in self._shapes:
                if shape.suits.key not in by_key:
                    by_key[shape.suits.key] = bool(self._nodes.suitable(shape)[row])
            suits = np.array([by_key[shape.suits.key] for shape in self._shapes], np.bool_)
            sums += np.where(self._offered & suits, np.maximum(fits, 0), 0)
        return sums

    def add(
        self, sums: Mapping[str, int], shapes: Sequence[Shape], rows: Rows, difference: AmountRows
    ) -> Mapping[str, int]:
        """`sums`, which are left on the nodes that suit any of `shapes`, with `difference` added on
        `rows`."""
        suitable = np.logical_or.reduce([self._nodes.suitable(shape)[rows] for shape in shapes])
        more = difference[suitable].sum(axis=0)
        if not more.any():
            return sums
        return {name: n + int(more[self._columns[name]]) for name, n in sums.items()}


def _alike(shapes: Iterable[Shape]) -> Alike:
    return frozenset(shape.suits.key for shape in shapes)


def explain(round_: Round, planner: Planner, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
    """The reason and its numbers for members that have no placement in `planner`."""
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
    """What no node has at all explains more than the whole request."""
    snapshot, offers = round_.snapshot, round_.largest_offers
    lacking = sorted(name for name, n in shape.requests.items() if n > 0 >= offers.get(name, 0))
    if offers and lacking:  # without nodes, more than that is lacking
        return f"no node has {_first_few(lacking, ', ')}"
    suitable = np.count_nonzero(snapshot.nodes.suitable(shape))
    if not suitable and snapshot.nodes.row:
        return _unsuitable(snapshot.nodes, shape.constraints)
    return f"no node can hold {describe(shape.requests)} (suitable nodes: {suitable})"


def _unsuitable(nodes: NodeTable, asked: Constraints) -> str:
    """Which of the demands that no node meets together no node meets even alone."""
    labels = {
        f"the label {key}={value} that nodeSelector names": Constraints(((key, value),), b"", _ALL_TAINTS)
        for key, value in asked.node_labels
    }
    affinity = f"what the required node affinity asks for ({_in_words(asked.node_terms)})"
    demands = labels | (
        {affinity: Constraints((), asked.node_terms, _ALL_TAINTS)} if asked.node_terms else {}
    )
    unmet = [text for text, alone in demands.items() if not nodes.suitable(Shape({}, alone)).any()]
    if unmet:
        return f"no node has {_first_few(unmet, ' and ')}"
    if not nodes.suitable(Shape({}, Constraints(tolerations=asked.tolerations))).any():
        taints = {taint for node in nodes.nodes if node for taint in node.taints}
        named = sorted(
            f"{taint.key}{taint.value and '='}{taint.value}:{taint.effect}"
            for taint in taints
            if not tolerated(taint, asked.tolerations)
        )
        return f"every node has a taint that is not tolerated: {_first_few(named, ', ')}"
    tolerated_too = (*demands, "taints that are tolerated")
    return f"no node has all at once: {_first_few(tolerated_too, ', ')}"


def _in_words(node_terms: bytes) -> str:
    terms = msgspec.json.decode(node_terms or b"[]", type=list[NodeSelectorTerm])
    asked = [(*(term.match_expressions or ()), *(term.match_fields or ())) for term in terms]
    return _first_few([_first_few([_phrase(one) for one in each], " and ") for each in asked], " or ")


def _phrase(asked: Requirement) -> str:
    values = f" {_first_few(asked.values, ', ')}" if asked.values else ""
    return f"{asked.key} {asked.operator}{values}"


def _first_few(names: Sequence[str], between: str) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return between.join(names[:_MOST_NAMES]) + more


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
