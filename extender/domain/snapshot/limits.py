"""The numbers that policy works with."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The numbers that policy works with. Times in seconds, sizes in pods."""

    window: int = 1000
    start_deadline: float = 120.0
    start_deadline_base: float = 60.0
    start_deadline_per_member: float = 0.1
    refusal_grace: float = 2.0
    arrival_grace: float = 15.0
    arrival_grace_per_pod: float = 0.05
    stall_grace: float = 10.0
    whole_grace: float = 30.0
    asking_pause: float = 10.0
    room_kept: float = 600.0
    refusal_memory: float = 60.0
    backoff: float = 5.0
    backoff_max: float = 300.0

    def deadline(self, members: int) -> float:
        """How long a start of that many members may take: longer for more, up to the bind deadline."""
        return min(self.start_deadline, self.start_deadline_base + members * self.start_deadline_per_member)

    def retry_after(self, failures: int) -> float:
        return min(self.backoff_max, self.backoff * 2.0 ** min(failures, 32))
