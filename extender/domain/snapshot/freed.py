"""When room, a share or places in the window last became free, and which group they had belonged to.

A group that backs off in a queue of strict priority is tried again once others free something. What its own
failed start gives back is no reason to.
"""

from math import inf

import msgspec

from extender.domain.model.records import GroupKey

OF_OTHERS = GroupKey("")  # pods that are not ours, nodes, queues


class Freed(msgspec.Struct, frozen=True):
    """Moments of the ledger's clock, in seconds."""

    at: float = -inf
    """When something last became free."""
    by: GroupKey = OF_OTHERS
    """The group that it had belonged to."""
    before: float = -inf
    """When something last became free that had not belonged to that group."""

    def noted(self, now: float, by: GroupKey) -> "Freed":
        return Freed(now, by, self.before if by == self.by else self.at)

    def for_group(self, group: GroupKey) -> float:
        """When something last became free that had not belonged to `group`."""
        return self.before if group == self.by else self.at
