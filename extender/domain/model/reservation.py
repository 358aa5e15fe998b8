"""A reservation: the nodes that are kept for a group which has waited too long, and since when."""

from collections.abc import Mapping

import msgspec

from extender.domain.model.records import Uid
from extender.domain.model.resources import Resources


class Reservation(msgspec.Struct, frozen=True):
    """Moments on the ledger's clock, in seconds."""

    since: float
    """When it was made."""
    nodes: Mapping[Uid, str]
    """For each missing member the node that is kept for it."""
    asks: Resources = {}
    """What these members ask for together."""
    starts_at: float | None = None
    """When all of them are expected to be free; None: nobody knows how long what runs there still runs."""
    passable_until: float | None = None
    """Groups that end by then may start in front of it. Once told it is never put off, so that run times
    which lie cannot put off the start again and again; None: no group may."""
    stays_until: float = 0.0
    """Until then no other nodes are looked for, unless these have become impossible: on nodes where groups
    have just started that do not say the truth, the start would look earlier, again and again."""
    expected: str = ""
    """`starts_at` as a timestamp, for people; empty if it is not known."""
    lent_until: str = ""
    """A timestamp, for people, while others may use the nodes, since their start is not known or has not come
    as promised; empty while they are kept."""

    @property
    def node_names(self) -> list[str]:
        return sorted(set(self.nodes.values()))

    @property
    def text(self) -> str:
        """When and where the group is expected to start, for people."""
        names = self.node_names
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        moment = f"about {self.expected}" if self.expected else "once they are free"
        lent = f"; until {self.lent_until} others may use them" if self.lent_until else ""
        return f"nodes {', '.join(names[:_MOST_NAMES])}{more} are reserved; it is to start {moment}{lent}"


_MOST_NAMES = 4  # of nodes in one sentence
