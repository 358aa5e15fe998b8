"""Where a group is in its life, as it is told: Volcano's phases, and numbers of members."""

from enum import StrEnum

import msgspec

from extender.domain.model.reasons import Outcome


class Phase(StrEnum):
    PENDING = "Pending"  # it waits
    INQUEUE = "Inqueue"  # its members may come, or it was admitted and starts
    RUNNING = "Running"  # what it needs is on nodes, or has been
    UNKNOWN = "Unknown"  # a part of it runs, and the rest has no place
    COMPLETED = "Completed"  # it has ended, well or not


class Life(msgspec.Struct, frozen=True):
    """`outcome` is None while the group goes on. `in_queue`: its queue counts it."""

    phase: Phase = Phase.PENDING
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    outcome: Outcome | None = None
    in_queue: bool = True
