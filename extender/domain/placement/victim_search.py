"""Search for victims: the smallest set of units whose eviction makes a whole gang fit on real nodes.

Member by member, the search takes the node on which one more costs the least, by these criteria in order:
free capacity first, the lower tier, the smallest loss of work, the smallest part of the cluster, the fewest
pods, the queue furthest above its share, the shortest run. The capacity that a whole group frees on other
nodes counts at once. In the end, unneeded units stay, and so do units that another one with a smaller loss
can replace. Members whose constraints concern other pods are placed by the planner, with more and more units
removed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec
import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape
from extender.domain.placement.eviction_units import (
    Disruptions,
    EvictionUnit,
    EvictionUnitsOfRow,
    Loss,
    Pick,
    Picks,
    Shares,
    requests_together,
)
from extender.domain.placement.planner import Planner
from extender.domain.snapshot.nodes import Mask
from extender.domain.snapshot.wholeness import Missing

_TRIALS, _EXCHANGES = 64, 16  # placements tried to spare units, and to replace units
_MOST_COMPARED = 1024  # looks at units that might replace another one
_NO_LOSS = Loss(0.0, 0.0, 0)


class Cost(NamedTuple):
    """Cost of capacity on a row for one more member; the smallest first, except for the queue.

    The queue is compared by its share.
    """

    tier: int
    loss: Loss
    queue: str  # the queue that loses capacity; of several, the one with the smallest share
    last_first: tuple[int, ...]  # the rank of the units, inverted
    row: int


class Found(msgspec.Struct, frozen=True):
    """Units whose eviction makes a gang fit, and the nodes of the gang."""

    picks: tuple[Pick, ...]
    plan: Mapping[Uid, str]  # a node for each member
    homes: Mapping[Uid, str] = {}  # nodes of the replacements of moved pods


class Search:
    """Search for victims. `planner`, the capacity without terminating pods, and `disruptions` are used up."""

    def __init__(
        self,
        planner: Planner,
        shares: Shares,
        eviction_units: Iterable[EvictionUnit],
        disruptions: Disruptions,
    ) -> None:
        self._planner = planner
        self._shares = shares
        self._disruptions = disruptions
        losses = {each: shares.price([Pick(each, each.pods)]) for each in eviction_units}
        self._eviction_units = sorted(losses, key=lambda each: (each.tier, losses[each].work, *each.order))
        self._columns = {name: column for column, name in enumerate(planner.capacity.dimensions)}
        self._on_row: dict[int, EvictionUnitsOfRow] = {}
        self._picks = Picks(planner, shares, disruptions)
        self._rows: Mask | None = None  # rows of the domain in which victims are searched; None: all
        self._must_free_share = False  # whether the group's own queue must free share first
        row = planner.nodes.row
        for each in self._eviction_units:
            for node in each.by_node:
                if node in row:
                    self._on_row.setdefault(row[node], EvictionUnitsOfRow()).add(each, losses[each])

    def find(self, wanted: Missing) -> Found | None:
        """Return the victims and nodes; None where no set of units suffices.

        Members that share a domain get the domain whose units lose the least.
        """
        domains = self._planner.domains_to_clear(wanted.members) if wanted.pod_sets else []
        if not domains:
            return self._find(wanted)
        found: list[tuple[int, Loss, int, Found]] = []
        for number, self._rows in enumerate(domains):
            checkpoint = self._planner.checkpoint()
            with self._planner.inside(self._rows):
                found_here = self._find(wanted)
            self._planner.roll_back(checkpoint)
            self._picks = Picks(self._planner, self._shares, self._disruptions)
            if found_here is not None:
                for pick in found_here.picks:
                    self._picks.count(pick, times=-1)
                tier = max((pick.eviction_unit.tier for pick in found_here.picks), default=-1)
                found.append((tier, self._shares.price(found_here.picks), number, found_here))
        if not found:
            return None
        cheapest = min(found)[-1]
        for pick in cheapest.picks:
            self._picks.count(pick)
        return cheapest

    def _find(self, wanted: Missing) -> Found | None:
        """Search step by step, and by trial if that fails and pods depend on each other."""
        is_interdependent = bool(wanted.pod_sets) or self._planner.affinity.any_interdependent(wanted)
        other = self._planner.clone() if is_interdependent else None
        self._must_free_share = not self._shares.suffices()
        plan: dict[Uid, str] = {}
        batches = self._planner.batches(wanted.members)
        has_parts = sum(pod_set.is_required for pod_set in wanted.pod_sets) > 1
        if not has_parts and all(self._place(batch, plan) for batch in batches) and self._free_share():
            self._fill_back(wanted)
            fewest = _spare_unneeded(self._planner, self._shares, self._picks, wanted, plan)
            cheapest = self._exchange(fewest, wanted)
            return Found(tuple(self._picks.all), cheapest)
        if other is None:
            return None
        for pick in self._picks.all:
            self._picks.count(pick, times=-1)
        picks = Picks(other, self._shares, self._disruptions)
        with other.inside(self._rows):
            units = filter(self._is_near, self._eviction_units)
            trial = _find_by_trial(other, self._shares, units, picks, wanted)
        if trial is None:
            for pick in picks.all:
                picks.count(pick, times=-1)
        return None if trial is None else Found(tuple(picks.all), trial)

    def _is_near(self, eviction_unit: EvictionUnit) -> bool:
        """Return whether a unit has pods on the rows that count."""
        rows = map(self._planner.nodes.row.get, eviction_unit.by_node)
        return self._rows is None or any(self._rows[row] for row in rows if row is not None)

    def _place(self, members: Sequence[PodRecord], plan: dict[Uid, str]) -> bool:
        """Find nodes for all of some equal members, and the units to evict there; return False if none."""
        shape, waiting, affinity = members[0].shape, list(reversed(members)), self._planner.affinity
        if len(members) > 1 and affinity.is_interdependent(members[0]):  # the place of each limits the next
            return all(self._place([member], plan) for member in members)
        if not shape.requests.keys() <= self._columns.keys():
            return False
        suitable = self._suitable(members[0])
        rows = CheapestFirst(self._bounds(shape, suitable), self._shares.share)
        while waiting and (known := rows.pop()) is not None:
            found = self._cost(shape, known.row)
            if found is None:
                continue
            cost, picks = found
            if cost != known:
                rows.push(cost)
                continue
            changed = self._picks.evict(picks) | {known.row}
            node = self._planner.name_of(known.row)
            while waiting and self._planner.allocate_on_node(waiting[-1], node):  # up to its current capacity
                plan[waiting.pop().uid] = node
            for row in sorted(changed):  # rows whose costs may be lower now
                if suitable[row]:
                    rows.push(no_cost(row))
        return not waiting

    def _suitable(self, pod: PodRecord) -> Mask:
        """Return the rows that may take a pod once others are evicted."""
        suitable, affinity = self._planner.capacity.suitable(pod.shape), self._planner.affinity
        if self._rows is not None:
            suitable = suitable & self._rows
        return suitable & affinity.admit(pod) if affinity.is_interdependent(pod) else suitable

    def _bounds(self, shape: Shape, suitable: Mask) -> Iterator[Cost]:
        """Yield lower bounds of the costs of rows: none, or the row's first unit with the smallest loss."""
        have_capacity = (suitable & (self._planner.capacity.counts(shape) > 0)).tolist()
        for row in np.flatnonzero(suitable).tolist():
            units = self._on_row.get(row)
            if have_capacity[row]:
                yield no_cost(row)
            elif units is not None:
                eviction_unit = units.first()
                least = units.least_rest if self._picks.all else units.least
                yield (
                    Cost(eviction_unit.tier, least, eviction_unit.queue, eviction_unit.last_first, row)
                    if eviction_unit
                    else no_cost(row)
                )

    def _cost(self, shape: Shape, row: int) -> tuple[Cost, list[Pick]] | None:
        """Return the cost of one more member on a row; None if the row cannot hold it."""
        free = self._planner.capacity.free[row]
        short = ((name, n - int(free[self._columns[name]])) for name, n in shape.requests.items() if n > 0)
        lacking = {name: n for name, n in short if n > 0}
        if not lacking:
            return no_cost(row), []
        if (units := self._on_row.get(row)) is None:
            return None
        found = self._units_that_free(units.in_turn(self._shares.share), lacking, row)
        if found is None:
            return None
        node = self._planner.name_of(row)
        for eviction_unit in units.cheaper_than(found[0].loss):  # a single unit may lose less
            freed = eviction_unit.freed_on(node, eviction_unit.pods)
            if all(n <= freed.get(name, 0) for name, n in lacking.items()):
                alone = self._units_that_free([eviction_unit], lacking, row)
                if alone is not None and alone[0][:2] < found[0][:2]:
                    return alone
        return found

    def _units_that_free(
        self, eviction_units: Iterable[EvictionUnit], lacking: Mapping[str, int], row: int
    ) -> tuple[Cost, list[Pick]] | None:
        """Return the first of `eviction_units` that free what is lacking on a row, and their cost."""
        picks: list[Pick] = []
        counted: list[Pick] = []
        node = self._planner.name_of(row)
        for eviction_unit in eviction_units:
            pods = self._picks.remaining_pods(eviction_unit, picks)
            freed = eviction_unit.freed_on(node, pods)
            if not any(name in freed for name in lacking):
                continue
            pick = Pick(eviction_unit, pods)
            if not self._picks.may_take(pick):
                continue
            picks.append(pick)
            lacking = {name: n - freed.get(name, 0) for name, n in lacking.items() if n > freed.get(name, 0)}
            if lacking or self._must_free_share:  # or the queue needs more share
                self._picks.count(pick)
                counted.append(pick)
            if not lacking:
                break
        others = int(self._must_free_share and not self._shares.suffices())  # further units, anywhere
        for pick in counted:
            self._picks.count(pick, times=-1)
        if lacking:
            return None
        loss = self._shares.price(picks)
        cost = Cost(
            max(pick.eviction_unit.tier for pick in picks),
            loss._replace(pods=loss.pods + others),
            min((pick.eviction_unit.queue for pick in picks), key=self._shares.share),
            max(pick.eviction_unit.last_first for pick in picks),
            row,
        )
        return cost, picks

    def _free_share(self) -> bool:
        """Evict more units until the group's own queue may hold the group."""
        for eviction_unit in self._eviction_units:
            if self._shares.suffices():
                return True
            if eviction_unit.queue:
                self._picks.take_rest(eviction_unit)
        return self._shares.suffices()

    def _exchange(self, plan: Mapping[Uid, str], wanted: Missing) -> Mapping[Uid, str]:
        """Return the nodes after exchanging units for cheaper ones where all members still fit.

        The most expensive unit comes first.
        """
        trials, planner, picks = _EXCHANGES, self._planner, self._picks
        for pick in sorted(picks.all, key=lambda each: self._shares.price([each]), reverse=True)[:trials]:
            for other in self._instead_of(pick, wanted):
                if not trials:
                    return plan
                trials -= 1
                planner.unplace(wanted.members, plan)
                picks.put_back(pick)
                if picks.may_take(other):
                    picks.evict([other])
                    if self._shares.suffices() and (found := planner.place(wanted.members)) is not None:
                        plan = found
                        break
                    picks.put_back(other)
                picks.evict([pick])
                planner.allocate((pod, plan[pod.uid]) for pod in wanted.members)
        return plan

    def _instead_of(self, pick: Pick, wanted: Missing) -> Iterator[Pick]:
        """Yield units that could replace a chosen unit, with a smaller loss."""
        group, picks, loss = pick.eviction_unit.group, self._picks, self._shares.price([pick])
        if group and sum(each.eviction_unit.group == group for each in picks.all) > 1:
            return
        spare = self._planner.capacity.sum_for(wanted.shapes)
        names = {name for shape in wanted.shapes for name, n in shape.requests.items() if n > 0}
        freed = _freed_for(self._planner, pick, wanted)
        lacks = {name: n - spare.get(name, 0) for name, n in freed.items() if name in names}
        for eviction_unit in self._eviction_units[:_MOST_COMPARED]:
            other = Pick(eviction_unit, picks.remaining_pods(eviction_unit))
            if other.pods and eviction_unit.tier <= pick.eviction_unit.tier:
                suffices = all(other.requests.get(name, 0) >= n for name, n in lacks.items())
                if suffices and self._shares.price([other]) < loss:
                    yield other

    def _fill_back(self, wanted: Missing) -> None:
        """Put back units whose capacity is not used by any member, the last chosen first."""
        names = {name for shape in wanted.shapes for name, n in shape.requests.items() if n > 0}
        columns = [column for column, name in enumerate(self._planner.capacity.dimensions) if name in names]
        for pick in reversed(tuple(self._picks.all)):
            if self._picks.is_evicted_whole(pick) or any(map(self._planner.affinity.is_counted, pick.pods)):
                continue
            self._picks.put_back(pick)
            rows = [row for pod in pick.pods if (row := self._planner.nodes.row.get(pod.node)) is not None]
            fits = (self._planner.capacity.free[np.ix_(rows, columns)] >= 0).all()
            if not (fits and self._shares.suffices()):
                self._picks.evict([pick])


def _find_by_trial(
    planner: Planner, shares: Shares, eviction_units: Iterable[EvictionUnit], picks: Picks, wanted: Missing
) -> Mapping[Uid, str] | None:
    """Return a node for each member where constraints concern other pods.

    The number of evicted units doubles until the planner places all members: some units may be in the
    way by a property, such as a host port. `planner` and `picks` are used up.

    Args:
        planner: The free capacity; it is used up.
        shares: The shares without the units taken.
        eviction_units: In the order in which they are taken.
        picks: The units taken so far; it is extended.
        wanted: The members without a node.
    """
    plan, step, remaining = None, 1, iter(eviction_units)
    while plan is None:
        evicted = 0
        for eviction_unit in remaining:
            evicted += picks.take_rest(eviction_unit)
            if evicted >= step:
                break
        if not evicted:
            return None
        step *= 2
        plan = planner.place(wanted.members) if shares.suffices() else None
    return _spare_unneeded(planner, shares, picks, wanted, plan)


def _spare_unneeded(
    planner: Planner, shares: Shares, picks: Picks, wanted: Missing, plan: Mapping[Uid, str]
) -> Mapping[Uid, str]:
    """Return the nodes of the members after sparing units that are not needed.

    A unit is spared if all members fit without its eviction, perhaps on other nodes: units with the
    largest loss first.
    """
    trials, names = _TRIALS, {name for shape in wanted.shapes for name, n in shape.requests.items() if n > 0}
    for pick in sorted(picks.all, key=lambda pick: shares.price([pick]), reverse=True):
        spare = planner.capacity.sum_for(wanted.shapes)
        freed = _freed_for(planner, pick, wanted).items()
        is_spare = all(n <= spare.get(name, 0) for name, n in freed if name in names)
        if not (is_spare and trials) or picks.is_evicted_whole(pick):
            continue
        trials -= 1
        planner.unplace(wanted.members, plan)
        picks.put_back(pick)
        other = planner.place(wanted.members) if shares.suffices() else None
        if other is None:
            picks.evict([pick])
            planner.allocate((pod, plan[pod.uid]) for pod in wanted.members)
        else:
            plan = other
    return plan


def _freed_for(planner: Planner, pick: Pick, wanted: Missing) -> Resources:
    """Return the amounts that a pick frees on nodes that suit any of the members."""
    suitable = np.logical_or.reduce([planner.capacity.suitable(shape) for shape in wanted.shapes])
    rows = ((pod, planner.nodes.row.get(pod.node)) for pod in pick.pods)
    return requests_together(pod for pod, row in rows if row is not None and suitable[row])


class _Turn(NamedTuple):
    tier: int
    loss: Loss
    share: float  # negative: the queue furthest above its share gives first
    last_first: tuple[int, ...]
    row: int
    queue: str


def no_cost(row: int) -> Cost:
    """Return the cost of a row where nothing needs to be evicted."""
    return Cost(tier=-1, loss=_NO_LOSS, queue="", last_first=(), row=row)


class CheapestFirst:
    """Rows of nodes, the cheapest first.

    Each chosen unit changes the order of all rows where its queue would lose capacity: so rows are kept by
    queue, and only the first of each are compared.

    Attributes:
        costs: Lower bounds of the costs of rows.
        share: Returns the current share of a queue, allocated/deserved.
    """

    def __init__(self, costs: Iterable[Cost], share: Callable[[str], float]) -> None:
        self._share = share
        self._lines: dict[str, list[Cost]] = {}
        for cost in costs:
            self._lines.setdefault(cost.queue, []).append(cost)
        self._turns: list[_Turn] = []
        for queue, line in self._lines.items():
            heapify(line)
            self._record(queue)

    def push(self, cost: Cost) -> None:
        """Add a cost. The line of its queue may get a new first one."""
        line = self._lines.setdefault(cost.queue, [])
        heappush(line, cost)
        if line[0] is cost:
            self._record(cost.queue)

    def pop(self) -> Cost | None:
        """Return the cheapest known row; None if none is left."""
        while self._turns:
            turn = heappop(self._turns)
            if turn == self._turn(turn.queue):
                cost = heappop(self._lines[turn.queue])
                self._record(turn.queue)
                return cost
            # The turn is outdated. If the next one is the queue's, too, that is checked instead.
            if not self._turns or self._turns[0].queue != turn.queue:
                self._record(turn.queue)
        return None

    def _record(self, queue: str) -> None:
        if (turn := self._turn(queue)) is not None:
            heappush(self._turns, turn)

    def _turn(self, queue: str) -> _Turn | None:
        """Return the turn of the first cost of a queue; None: the queue has no further one."""
        line = self._lines[queue]
        if not line:
            return None
        tier, loss, _, last_first, row = line[0]
        return _Turn(tier, loss, -self._share(queue), last_first, row, queue)
