"""The candidates of a round: what runs and may have to go, and for which group by which rule.

All rules are a plain AND: no rule allows what another one forbids.
"""

from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from math import inf

from extender.domain.lifecycle.state import runs
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.reclaim.disruptions import Disruptions
from extender.domain.reclaim.units import Unit, standing, unit_of, units_of
from extender.domain.scheduling.giving_back import is_drained
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.victims_left import to_be_evicted
from extender.domain.snapshot.group_view import GroupView

_ALL = tuple(EvictionCause)


class Candidates:
    """Looked up once for all groups of a round that need room."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._known: dict[str, list[GroupView]] = {}
        self._lowest_of: dict[str, float] = {}
        self._may_exist: dict[tuple[str, int, tuple[EvictionCause, ...]], bool] = {}
        self._units_of_others: dict[Uid, Unit] = {}
        self.taken: set[Uid] = set()
        """Pods that were promised to a group in this round."""
        self.spared = GroupKey("")
        """A group that was left out of the last answer because it has given once already."""

    @cached_property
    def disruptions(self) -> Disruptions:
        """What disruption budgets allow besides what is evicted already. Asked again for each unit that is
        chosen: several may count for one budget."""
        budgets = self._round.snapshot.disruption_budgets
        return Disruptions(budgets, to_be_evicted(self._round) if budgets else ())

    def may_exist_for(self, group: GroupView, causes: tuple[EvictionCause, ...] = _ALL) -> bool:
        """False: nothing runs that any of these rules could find. Cheap, since it is asked of all groups that
        wait."""
        alike = group.queue, group.priority, causes
        if alike not in self._may_exist:
            self._may_exist[alike] = any(self._may_find(group, cause) for cause in causes)
        return self._may_exist[alike]

    def _may_find(self, group: GroupView, cause: EvictionCause) -> bool:
        rules = self._round.snapshot.queues[group.queue].record.preemption
        match cause:
            case EvictionCause.RECLAIM:
                return len(self._givers) > (group.queue in self._givers)
            case EvictionCause.PREEMPT:
                return rules.within_queue and group.priority > self._lowest_in(group.queue)
            case EvictionCause.UNMANAGED:
                return rules.unmanaged and group.priority > self._lowest
            case _:
                return False

    @cached_property
    def _lowest(self) -> float:
        """The lowest priority of pods that are not ours."""
        return min(self._others, default=inf)

    def _lowest_in(self, queue: str) -> float:
        """The lowest priority of the groups of a queue that run and allow to be evicted."""
        if queue not in self._lowest_of:
            self._lowest_of[queue] = min((each.priority for each in self._running_in(queue)), default=inf)
        return self._lowest_of[queue]

    @cached_property
    def _givers(self) -> frozenset[str]:
        """Queues with groups on nodes that gave to others when this was first asked: later they hold less."""
        shares, queues = self._round.budget.shares, self._round.snapshot.queues
        found = ((name, queues.get(name)) for name in self._on_nodes)
        return frozenset(
            name
            for name, view in found
            if view is not None and view.record.reclaimable and shares.holds_too_much(name)
        )

    def of(self, group: GroupView, causes: Iterable[EvictionCause]) -> list[Unit]:
        """What may be evicted for `group`, by these rules."""
        self.spared = GroupKey("")
        rules = {
            EvictionCause.RECLAIM: self._of_other_queues,
            EvictionCause.PREEMPT: self._of_the_same_queue,
            EvictionCause.UNMANAGED: self._unmanaged,
        }
        return [unit for cause in causes for unit in rules[cause](group)]

    # ---- by rule

    def _of_other_queues(self, group: GroupView) -> Iterator[Unit]:
        shares = self._round.budget.shares
        for queue, view in self._round.snapshot.queues.items():
            if queue != group.queue and view.record.reclaimable and shares.holds_too_much(queue):
                yield from self._units(group, self._running_in(queue), EvictionCause.RECLAIM)

    def _of_the_same_queue(self, group: GroupView) -> Iterator[Unit]:
        if self._round.snapshot.queues[group.queue].record.preemption.within_queue:
            runners = self._running_in(group.queue)
            lower = [each for each in runners if each.priority < group.priority]
            yield from self._units(group, lower, EvictionCause.PREEMPT)

    def _unmanaged(self, group: GroupView) -> Iterator[Unit]:
        if self._round.snapshot.queues[group.queue].record.preemption.unmanaged:
            for priority, pods in self._others.items():
                if priority < group.priority:
                    yield from filter(self._is_free, map(self._unit_of, pods))

    # ---- what is asked of all

    def _units(self, group: GroupView, runners: Iterable[GroupView], cause: EvictionCause) -> Iterator[Unit]:
        for each in runners:
            if self._may_give_to(group, each):
                units = self._units_of(each, cause)
                yield from filter(self._is_free, units) if self._is_any_barred else units

    @staticmethod
    def _units_of(victim: GroupView, cause: EvictionCause) -> list[Unit]:
        try:
            return units_of(victim, cause)
        except Exception:  # whatever is wrong with it: it costs nobody else their turn
            return []

    def _may_give_to(self, group: GroupView, victim: GroupView) -> bool:
        """A group gives to the same one only once: the room that it gave did not help."""
        if victim.key == group.key or not self._has_run_long_enough(victim):
            return False
        given = group.took_from.get(victim.key)
        if given is not None and not self._round.is_due(given + self._round.limits.reclaim_memory):
            self.spared = victim.key
            return False
        return True

    def _has_run_long_enough(self, victim: GroupView) -> bool:
        least = self._round.snapshot.queues[victim.queue].record.preemption.min_runtime
        if not least:
            return True
        began = self._round.snapshot.moment(victim.running_since)
        return self._round.is_due(began + least)

    def _is_free(self, unit: Unit) -> bool:
        """Not promised to another group, no eviction of it was refused lately, and budgets let it go."""
        is_busy = any(pod.uid in uids for uids in self._busy for pod in unit.pods)
        return not is_busy and self.disruptions.allow(unit.pods)

    @property
    def _is_any_barred(self) -> bool:
        return bool(self._busy or self._round.snapshot.disruption_budgets)

    @property
    def _busy(self) -> list[Container[Uid]]:
        known = self._round.promised, self._round.snapshot.spared, self.taken
        return [uids for uids in known if uids]

    # ---- what runs

    def _running_in(self, queue: str) -> list[GroupView]:
        """Groups of a queue that run and allow to be evicted."""
        if queue not in self._known:
            groups = self._on_nodes.get(queue, ())
            self._known[queue] = [group for group in groups if self._may_be_victim(group)]
        return self._known[queue]

    @cached_property
    def _on_nodes(self) -> dict[str, list[GroupView]]:
        """Groups with members on nodes, by queue."""
        by_queue: dict[str, list[GroupView]] = {}
        for group in self._round.snapshot.groups.values():
            if group.placed:
                by_queue.setdefault(group.queue, []).append(group)
        return by_queue

    def _may_be_victim(self, group: GroupView) -> bool:
        decision = self._round.decided.get(group.key)
        if decision is None or decision.plan or decision.fault:
            return False
        has_room = runs(group) and bool(group.once(standing))
        return has_room and group.preemptable and not is_drained(self._round, group)

    def _unit_of(self, pod: PodRecord) -> Unit:
        if pod.uid not in self._units_of_others:
            self._units_of_others[pod.uid] = unit_of(pod)
        return self._units_of_others[pod.uid]

    @cached_property
    def _others(self) -> dict[int, list[PodRecord]]:
        """Pods that are not ours, by priority."""
        by_priority: dict[int, list[PodRecord]] = {}
        for pod in self._round.snapshot.others.values():
            if pod.may_be_evicted and not pod.deleting:
                by_priority.setdefault(pod.priority, []).append(pod)
        return by_priority
