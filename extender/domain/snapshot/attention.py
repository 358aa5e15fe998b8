"""Whether our decisions take effect: we lead, and the scheduler asks us.

Time in which no plan could take effect is no evidence about the plan.
"""

from math import inf

import msgspec
from msgspec.structs import replace


class Attention(msgspec.Struct, frozen=True):
    """Moments of the ledger's clock, in seconds."""

    leading_since: float | None = -inf
    """Since when we are the leader; None: we are not."""
    asked_since: float = -inf
    """When the scheduler began to ask for pods, after a pause or for the first time."""
    asked_at: float = -inf
    """When it last asked for any pod, or said something about one."""

    def asked(self, now: float, pause: float) -> "Attention":
        """The scheduler asks; after more than `pause` seconds without it begins anew."""
        begun = now if now - self.asked_at > pause else self.asked_since
        return replace(self, asked_since=begun, asked_at=now)

    def led(self, now: float, leading: bool) -> "Attention":
        """We lead from now on, or no more."""
        if leading == (self.leading_since is not None):
            return self
        return replace(self, leading_since=now if leading else None)

    def since(self, moment: float) -> float | None:
        """From when on, `moment` at the earliest, the scheduler asks and we lead; None: not yet."""
        if self.leading_since is None:
            return None
        begun = max(moment, self.leading_since)
        return max(begun, self.asked_since) if self.asked_at >= begun else None
