"""What decide() sees: a frozen picture of the ledger at one version and one moment.

Views of groups that did not change are the same objects as in the snapshot before.
"""

from collections.abc import Mapping, Set

import msgspec

from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import HostPort, Shape, Term
from extender.domain.model.term_index import TermIndex
from extender.domain.queues.orphans import Orphan
from extender.domain.queues.queue_view import QueueView
from extender.domain.snapshot.attention import Attention
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.limits import Limits
from extender.domain.snapshot.nodes import AmountRows, NodeTable


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """What stands where, besides amounts, by node."""

    ports: Mapping[str, Mapping[HostPort, int]] = {}  # host ports that are taken
    selected: Mapping[Term, Mapping[str, int]] = {}  # for each term in use: how many pods it selects
    carried: Mapping[Term, Mapping[str, int]] = {}  # for each term in use: how many pods repel others by it
    terms: TermIndex = TermIndex()  # all terms in use, by whom they may select; never changed


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """Nothing in it changes any more."""

    version: int
    """The ledger's: it moves on with all that may change a decision, but for time."""
    now: float
    """The ledger's clock, in seconds."""
    limits: Limits
    dimensions: tuple[str, ...]
    """The resources that the columns of `room` and `allocatable` are."""
    nodes: NodeTable
    """The rows of both."""
    room: AmountRows
    """What all pinned claims leave; planned ones are not taken off."""
    allocatable: AmountRows
    """What nodes offer."""
    occupancy: Occupancy
    refused: Mapping[Shape, frozenset[int]]
    """Rows where the scheduler refuses a shape."""
    queues: Mapping[str, QueueView]
    groups: Mapping[GroupKey, GroupView]
    expires_at: float | None = None
    """When the first of what the ledger holds for a while only ends: a refusal, or an answer that no
    bind call followed."""
    orphans: tuple[Orphan, ...] = ()
    """Groups whose queue is gone for good."""
    touched: Set[GroupKey] = frozenset()
    """Groups of which anything changed since decisions were last published."""
    attention: Attention = Attention()
    """Whether we lead and the scheduler asks."""
