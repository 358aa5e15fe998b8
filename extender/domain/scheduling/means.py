"""What the groups of a round are judged by besides themselves: its means, once all are judged.

Where two rounds took nothing from their means and these are alike, they say the same of the same group, as
long as it is on the same side of what its queue deserves.
"""

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.flavors.flavor_amounts import Amounts
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.queue_shares import Standing
from extender.domain.scheduling.reserving import InForce, Reserving
from extender.domain.scheduling.running_counts import Sums
from extender.domain.snapshot.nodes import AmountRows, Rows


class Means(msgspec.Struct, frozen=True, eq=False):
    """Never changed."""

    room: AmountRows
    """What is left on nodes."""
    shares: Standing
    """What queues deserve, may hold and hold."""
    flavors: Amounts
    """What they hold of their flavors."""
    running: Sums
    """What runs of that on which they have limits."""
    places: int
    """In the window."""
    in_force: InForce
    """The reservations."""

    @classmethod
    def of(cls, budget: Budget, reserving: Reserving) -> "Means":
        return cls(
            budget.planner.capacity.left,
            budget.shares.standing,
            budget.flavors.amounts,
            budget.running.sums,
            budget.window.left,
            reserving.in_force,
        )

    def are_alike(self, other: "Means") -> bool:
        """Whether all is the same but for what queues deserve."""
        return (
            self.places == other.places
            and self.flavors == other.flavors
            and self.running == other.running
            and self.in_force == other.in_force
            and np.array_equal(self.room, other.room)
            and self.shares.is_alike(other.shares)
        )

    def with_room(self, rows: Rows, more: AmountRows) -> "Means":
        """The same with `more` room on some rows."""
        room = self.room.copy()
        room[rows] += more
        return replace(self, room=room)
