"""Whether our decisions take effect: this replica leads, and the scheduler calls it.

Time in which no plan could take effect is no evidence against the plan.
"""

from math import inf

import msgspec
from msgspec.structs import replace


class Attention(msgspec.Struct, frozen=True):
    """Moments of the ledger's clock, in seconds."""

    leading_since: float | None = -inf
    """Since when this replica leads; None: it does not."""
    asked_since: float = -inf
    """When the scheduler began to ask about pods, after a pause or for the first time."""
    asked_at: float = -inf
    """When it last asked about any pod, or reported on one."""

    def asked(self, now: float, pause: float) -> "Attention":
        """The scheduler asks now; after a silence of more than `pause` seconds, `asked_since` starts
        again."""
        begun = now if now - self.asked_at > pause else self.asked_since
        return replace(self, asked_since=begun, asked_at=now)

    def led(self, now: float, leading: bool) -> "Attention":
        """This replica leads from now on, or no longer."""
        if leading == (self.leading_since is not None):
            return self
        return replace(self, leading_since=now if leading else None)

    def since(self, moment: float) -> float | None:
        """Since when, `moment` at the earliest, the scheduler has asked and we have led; None: not yet."""
        if self.leading_since is None:
            return None
        begun = max(moment, self.leading_since)
        return max(begun, self.asked_since) if self.asked_at >= begun else None
