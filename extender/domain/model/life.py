"""What is reported of a group's life: Volcano's phases, and numbers of members."""

from enum import StrEnum

import msgspec

from extender.domain.model.reasons import Outcome


class Phase(StrEnum):
    PENDING = "Pending"  # it waits
    INQUEUE = "Inqueue"  # its members may be created, or it was admitted and is starting
    RUNNING = "Running"  # the members that it needs are on nodes, or have been
    UNKNOWN = "Unknown"  # some members run, and the rest have no node
    COMPLETED = "Completed"  # it has ended, successfully or not


class Life(msgspec.Struct, frozen=True, gc=False):
    phase: Phase = Phase.PENDING
    running: int = 0  # members in pod phase Running that are not being deleted
    succeeded: int = 0  # members in pod phase Succeeded
    failed: int = 0  # members in pod phase Failed
    outcome: Outcome | None = None  # how it ended; None while it has not
    in_queue: bool = True  # whether its queue counts it
    local_queue: str = ""  # the LocalQueue that counts it, too: namespace/name; empty: none does
