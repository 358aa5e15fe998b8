"""Evictions: the pods to evict, why, and for whom; and how many disruption budgets allow."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

import msgspec

from extender.api import keys
from extender.api.objects.cluster import PodDisruptionBudget
from extender.api.objects.pods import LabelSelector
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.selectors import Labels, selects


class DisruptionBudget(msgspec.Struct, frozen=True):
    """PodDisruptionBudget: how many of the selected pods may be evicted now."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int  # evictions that the Eviction API admits now, less terminating pods

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))


_MOST_TRIED, _MOST_VALUES = 16, 256  # budgets for the labels of one pod; values in a selector
_NOTHING = LabelSelector()
_MAX_GRACE = 240.0  # seconds: less than the five minutes for which reclaimed capacity is reserved
BudgetsByNamespace = Mapping[str, tuple[DisruptionBudget, ...]]


def disruption_budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """Return a budget. With a status of an older spec it allows nothing, as in the Eviction API."""
    meta, status = budget.metadata, budget.status
    is_current = status.observed_generation >= meta.generation
    allowed = max(status.disruptions_allowed, 0) if is_current else 0
    return DisruptionBudget(meta.namespace, meta.name, budget.spec.selector, allowed)


class BudgetsOfNamespace:
    """Disruption budgets of a namespace, by a label that they select.

    A tenant may have thousands of budgets and pods. Where too many or too large budgets would have to be
    compared, a pod counts as covered by two: the Eviction API refuses to evict such pods.
    """

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_label: defaultdict[tuple[str, str], list[DisruptionBudget]] = defaultdict(list)
        self._others: list[DisruptionBudget] = []  # budgets that may cover any pod
        self._too_many: tuple[DisruptionBudget, ...] = ()
        for budget in budgets:
            selector = budget.selector or _NOTHING
            pairs = sorted((selector.match_labels or {}).items())
            values = sum(len(each.values or ()) + 1 for each in selector.match_expressions or ())
            if len(pairs) + values > _MOST_VALUES:
                self._too_many = budget, budget
            elif pairs:
                rarest = min(pairs, key=lambda pair: len(self._by_label.get(pair, ())))
                self._by_label[rarest].append(budget)
            elif budget.selector is not None:
                self._others.append(budget)

    def covering(self, labels: Labels) -> tuple[DisruptionBudget, ...]:
        pairs = sorted(labels.items() & self._by_label.keys())
        tried = [*self._others, *chain.from_iterable(self._by_label[pair] for pair in pairs)]
        if self._too_many or len(tried) > _MOST_TRIED:
            return self._too_many or (tried[0], tried[1])
        return tuple(each for each in tried if selects(each.selector, labels))


class Protection(NamedTuple):
    """Protection of a queue's borrowing pods from reclaim."""

    honour: frozenset[str] = frozenset({keys.BUDGETS})  # default without a setting in the queue or above it
    max_grace: float = _MAX_GRACE

    @property
    def honours_budgets(self) -> bool:
        """Return whether disruption budgets protect it."""
        return keys.BUDGETS in self.honour

    @property
    def honours_preemptable(self) -> bool:
        """Return whether pods and PodGroups protect themselves."""
        return keys.PREEMPTABLE_WORD in self.honour


class EvictionCause(StrEnum):
    UNDO = "Undo"  # the start of its group failed finally
    RECLAIM = "Reclaim"  # its queue holds more than it deserves, and another queue less
    PREEMPT = "Preempt"  # a group of higher priority in the same queue needs the capacity
    BORROW = "Borrow"  # a group of higher priority in another queue borrows the capacity
    UNMANAGED = "PreemptUnmanaged"  # a pod of another scheduler, of lower priority than the group
    CONSOLIDATE = "Consolidate"  # it fits elsewhere, so that a group gets capacity in one piece
    DRAIN = "Drain"  # the stopPolicy of its queue is HoldAndDrain
    RESTART = "Restart"  # its domain lacks capacity for lost members, and another has it for the whole group


FROM_OTHERS = (EvictionCause.RECLAIM, EvictionCause.BORROW)  # a queue reclaims from another one


class ReclaimVictim(msgspec.Struct, frozen=True, gc=False):
    """Pod whose capacity is reclaimed."""

    uid: Uid
    namespace: str
    name: str
    group: GroupKey  # empty: the pod is not Muster's
    queue: str  # of that group
    cause: EvictionCause
    lost: float = 0.0  # lost work of the eviction, in seconds of the whole group


class Reclaim(msgspec.Struct, frozen=True):
    """Reclaim for a group, in force until the group starts or no longer needs it, or until its deadline.

    The restart of a running group is a reclaim, too: its own members move.
    """

    victims: tuple[ReclaimVictim, ...]  # victims; empty: terminating pods are enough
    plan: Mapping[Uid, str]  # the nodes on which the group's missing members will stand
    since: float  # when it was decided, on the ledger's clock
    until: float  # when it is given up
    detail: str  # the queues, amounts and deadline, for users
    homes: Mapping[Uid, str] = {}  # of victims that move: nodes reserved for their replacements

    @property
    def is_restart(self) -> bool:
        return any(victim.cause is EvictionCause.RESTART for victim in self.victims)


class Move(msgspec.Struct, frozen=True):
    """Move of a group: its members are evicted only to run elsewhere.

    Timestamps are seconds on the ledger's clock.
    """

    claimant: GroupKey  # the group that gets the capacity
    at: float  # when it was decided
    until: float  # end of the reservation for their replacements
    again_at: float  # when it may move again
    homes: tuple[tuple[PodRecord, str], ...]  # members, and the nodes of their replacements
    stayed: int  # number of other members with nodes at that time


class Eviction(msgspec.Struct, frozen=True):
    """Pod that is to be evicted now."""

    victim: ReclaimVictim
    why: str  # the claimant and the rule, for users
    is_slow: bool = False  # it is being deleted already, but takes too long


class PastEviction(msgspec.Struct, frozen=True, gc=False):
    """Last eviction of a group's members, for users. `at`: seconds on the ledger's clock."""

    cause: EvictionCause
    why: str
    at: float
