"""What decide() sees: a frozen copy of the ledger at one version and one moment.

Views of groups that did not change are the same objects as in the previous snapshot.
"""

from collections.abc import Mapping, Set
from datetime import datetime

import msgspec

from extender.domain.model.disruption_budgets import BudgetsByNamespace
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.run_history import RunHistory
from extender.domain.model.shapes import HostPort, Shape, Term
from extender.domain.model.term_index import TermIndex
from extender.domain.queues.orphans import Orphan
from extender.domain.queues.queue_view import QueueView
from extender.domain.snapshot.attention import Attention
from extender.domain.snapshot.freed import Freed
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.limits import Limits
from extender.domain.snapshot.nodes import AmountRows, NodeTable


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """What is in use on nodes besides amounts: host ports, and pods that (anti-)affinity terms concern."""

    ports: Mapping[str, Mapping[HostPort, int]] = {}
    """By node: how many pods use a host port."""
    selected: Mapping[Term, Mapping[str, int]] = {}
    """For each term in use, by node: how many pods it selects."""
    carried: Mapping[Term, Mapping[str, int]] = {}
    """For each term in use, by node: how many pods have it as an anti-affinity term."""
    terms: TermIndex = TermIndex()
    """All terms in use, by the labels that they select; never changed."""

    def is_alike(self, other: "Occupancy") -> bool:
        return (
            self.terms is other.terms
            and self.ports == other.ports
            and self.selected == other.selected
            and self.carried == other.carried
        )


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """Nothing in it changes any more."""

    version: int
    """The ledger's version, which grows with every change, except of time, that may change a decision."""
    now: float
    """The ledger's clock, in seconds."""
    epoch: float
    """What is to be added to the ledger's clock for the seconds since 1970."""
    limits: Limits
    """The limits that policy works with."""
    dimensions: tuple[str, ...]
    """The names of the resources in the columns of `room` and `allocatable`."""
    nodes: NodeTable
    """The nodes in the rows of both."""
    room: AmountRows
    """What all pinned claims leave free; planned claims are not subtracted."""
    allocatable: AmountRows
    """What nodes offer."""
    occupancy: Occupancy
    """What pinned claims use besides amounts."""
    refused: Mapping[Shape, frozenset[int]]
    """Rows where the scheduler refuses a shape."""
    queues: Mapping[str, QueueView]
    """All queues of the API, `default`, and those that groups name, by name."""
    groups: Mapping[GroupKey, GroupView]
    """All groups."""
    expires_at: float | None = None
    """When the next entry expires that the ledger holds only for a while: a refusal, or an answer that no
    bind call followed."""
    orphans: tuple[Orphan, ...] = ()
    """Groups whose queue is gone for good."""
    touched: Set[GroupKey] = frozenset()
    """Groups of which anything changed since decisions were last published."""
    history: RunHistory = RunHistory()
    """How long groups ran that have ended."""
    others: Mapping[Uid, PodRecord] = {}
    """Pods on nodes that are not ours."""
    spared: Mapping[Uid, float] = {}
    """Pods whose eviction was refused: until when they are no victims."""
    disruption_budgets: BudgetsByNamespace = {}
    """The PodDisruptionBudgets, by namespace; the same object as long as none changes."""
    attention: Attention = Attention()
    """Whether this replica leads and the scheduler asks."""
    freed: Freed = Freed()
    """When something last became free."""
    changed_at: float = 0.0
    """When the version last grew."""

    def moment(self, timestamp: str) -> float:
        """When, on the ledger's clock, an object's timestamp was; now where it cannot be read, or lies in the
        future."""
        try:
            return min(datetime.fromisoformat(timestamp).timestamp() - self.epoch, self.now)
        except ValueError:
            return self.now
