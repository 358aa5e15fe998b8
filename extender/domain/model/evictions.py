"""Evictions of pods: causes, victims and claimants, and the disruption budgets that limit evictions."""

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
    """PodDisruptionBudget: the number of selected pods that may be evicted now."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed_evictions: int  # evictions that the Eviction API admits now, minus terminating pods

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))


_MAX_BUDGETS, _MAX_VALUES = 16, 256  # limit of budgets compared with one pod, and of values in a selector
_NO_SELECTOR = LabelSelector()
_MAX_GRACE_SECONDS = 240.0  # seconds, less than the five minutes for which reclaimed capacity is reserved
BudgetsByNamespace = Mapping[str, tuple[DisruptionBudget, ...]]


def disruption_budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """Return the record of a budget.

    If the status belongs to an older spec, the budget allows no eviction, as in the Eviction API.
    """
    meta, status = budget.metadata, budget.status
    is_current = status.observed_generation >= meta.generation
    allowed_evictions = max(status.disruptions_allowed, 0) if is_current else 0
    return DisruptionBudget(meta.namespace, meta.name, budget.spec.selector, allowed_evictions)


class BudgetsOfNamespace:
    """Disruption budgets of a namespace, by a label that they select.

    A tenant may have thousands of budgets and pods. If too many or too large budgets would have to be
    compared with a pod, two budgets are returned for this pod: the Eviction API refuses to evict a pod that
    two budgets cover.
    """

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_label: defaultdict[tuple[str, str], list[DisruptionBudget]] = defaultdict(list)
        self._unlabelled_budgets: list[DisruptionBudget] = []  # budgets that may cover any pod
        self._excess_budgets: tuple[DisruptionBudget, ...] = ()
        for budget in budgets:
            selector = budget.selector or _NO_SELECTOR
            pairs = sorted((selector.match_labels or {}).items())
            value_count = sum(len(each.values or ()) + 1 for each in selector.match_expressions or ())
            if len(pairs) + value_count > _MAX_VALUES:
                self._excess_budgets = budget, budget
            elif pairs:
                rarest = min(pairs, key=lambda pair: len(self._by_label.get(pair, ())))
                self._by_label[rarest].append(budget)
            elif budget.selector is not None:
                self._unlabelled_budgets.append(budget)

    def budgets_for(self, labels: Labels) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that cover a pod with these labels."""
        pairs = sorted(labels.items() & self._by_label.keys())
        candidates = [*self._unlabelled_budgets, *chain.from_iterable(self._by_label[pair] for pair in pairs)]
        if self._excess_budgets or len(candidates) > _MAX_BUDGETS:
            return self._excess_budgets or (candidates[0], candidates[1])
        return tuple(budget for budget in candidates if selects(budget.selector, labels))


class Protection(NamedTuple):
    """Protection of a queue's borrowing pods from reclaim."""

    protections: frozenset[str] = frozenset({keys.BUDGETS})  # default for queues without a setting
    max_grace: float = _MAX_GRACE_SECONDS

    @property
    def honours_budgets(self) -> bool:
        """Return whether disruption budgets protect pods."""
        return keys.BUDGETS in self.protections

    @property
    def honours_preemptable(self) -> bool:
        """Return whether pods and PodGroups can declare that they are not preemptable."""
        return keys.PREEMPTABLE_WORD in self.protections


class EvictionCause(StrEnum):
    """Cause of an eviction."""

    UNDO = "Undo"  # the start of the pod's group failed finally
    RECLAIM = "Reclaim"  # its queue holds more than its deserved share, and another queue less
    PREEMPT = "Preempt"  # a group of higher priority in the same queue needs the capacity
    BORROW = "Borrow"  # a group of higher priority in another queue borrows the capacity
    UNMANAGED = "PreemptUnmanaged"  # the pod belongs to another scheduler, and has a lower priority
    CONSOLIDATE = "Consolidate"  # the pod fits elsewhere, and leaves a group capacity in one piece
    DRAIN = "Drain"  # the stopPolicy of its queue is HoldAndDrain
    RESTART = "Restart"  # its group restarts elsewhere: its domain lacks capacity for lost members


LOSS_CAUSES = (EvictionCause.RECLAIM, EvictionCause.BORROW)  # one queue takes capacity from another


class ReclaimVictim(msgspec.Struct, frozen=True, gc=False):
    """Pod whose capacity is reclaimed."""

    uid: Uid
    namespace: str
    name: str
    group: GroupKey  # empty if the pod belongs to another scheduler
    queue: str  # the queue of that group
    cause: EvictionCause
    lost: float = 0.0  # lost work by the eviction, in seconds of the whole group


class Reclaim(msgspec.Struct, frozen=True):
    """Reclaim of capacity for a group.

    A reclaim is in force until the group starts, until the group no longer needs it, or until the deadline.
    The restart of a running group is a reclaim, too: the group's own members are the victims.
    """

    victims: tuple[ReclaimVictim, ...]  # pods to evict; empty if pods that already terminate are enough
    plan: Mapping[Uid, str]  # planned nodes of the group's missing members
    since: float  # time of the decision, on the ledger's clock
    until: float  # deadline, on the ledger's clock
    detail: str  # the queues, amounts and deadline, for users
    homes: Mapping[Uid, str] = {}  # nodes that are reserved for the replacements of moved victims

    @property
    def is_restart(self) -> bool:
        """Return whether the reclaim is the restart of a running group."""
        return any(victim.cause is EvictionCause.RESTART for victim in self.victims)


class Move(msgspec.Struct, frozen=True):
    """Move of a group: its members are evicted only so that they run elsewhere.

    Times are seconds on the ledger's clock.
    """

    claimant: GroupKey  # group that gets the capacity
    at: float  # time of the decision
    until: float  # end of the reservation for the replacements
    again_at: float  # earliest time of the group's next move
    homes: tuple[tuple[PodRecord, str], ...]  # moved members, with the nodes of their replacements
    stayed: int  # number of other members that had nodes at that time


class Eviction(msgspec.Struct, frozen=True):
    """Eviction that has to be carried out now."""

    victim: ReclaimVictim
    why: str  # the group that gets the capacity and the rule, for users
    is_slow: bool = False  # whether the pod is already being deleted, but takes too long


class PastEviction(msgspec.Struct, frozen=True, gc=False):
    """Last eviction of a group's members, for users.

    Attributes:
        at: The time in seconds on the ledger's clock.
    """

    cause: EvictionCause
    why: str
    at: float
