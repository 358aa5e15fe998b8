"""The limits that policy works with."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The limits that policy works with. Times in seconds, sizes in pods."""

    oversell: float = 1.0
    """So many times the capability of a queue may be admitted, at least 1, where the queue does not say."""
    window: int = 1000
    """How many members may be on their way through the scheduler at once."""
    start_deadline: float = 120.0
    """The longest time that a start may take, and that a bind call may be held."""
    start_deadline_base: float = 60.0
    """How long any start may take, however few members it has."""
    start_deadline_per_member: float = 0.1
    """How much longer a start may take for each member."""
    refusal_grace: float = 2.0
    """How long a planned node is kept after a refusal, since the scheduler's view may lag behind Muster's."""
    arrival_grace: float = 15.0
    """How long the scheduler may leave a planned node unused without refusing it."""
    arrival_grace_per_pod: float = 0.05
    """How much longer for each pod that it still has to schedule for Muster."""
    stall_grace: float = 10.0
    """How long a start with held members may lack a plan for the others."""
    whole_grace: float = 30.0
    """How long members must be on their nodes without failing before the group counts as having stood
    whole."""
    asking_pause: float = 10.0
    """A scheduler that asks for nothing this long may be gone; once it asks again, graces count from then."""
    room_kept: float = 600.0
    """How long room is kept for a group within its share that lacks some, before it is lent for as long."""
    reclaim_deadline: float = 300.0
    """How long victims may take to leave before a reclaim is given up."""
    reclaim_memory: float = 3600.0
    """How long a group that gave room back is not a victim of the same group again."""
    spared: float = 60.0
    """How long a pod whose eviction was refused is no victim."""
    reclaims: int = 8
    """For how many groups room may be taken back at the same time."""
    reservations: int = 8
    """How many groups that have waited too long may have nodes reserved at the same time."""
    drain: int = 100
    """How many pods of a queue that is drained may be on their way out at once."""
    expected_pods: int = 50_000
    """For how many pods that are not made yet the jobs of one namespace may wait."""
    start_timeouts: int = 3
    """How often in a row a job may fail to get going in time before it is held."""
    refusal_memory: float = 60.0
    """How long a node's refusal of a shape is remembered."""
    backoff: float = 5.0
    """The pause after the first failed start; it doubles with each further one."""
    backoff_max: float = 300.0
    """The longest such pause."""

    def deadline(self, members: int) -> float:
        """How long a start of that many members may take: longer for more, up to the bind deadline."""
        return min(self.start_deadline, self.start_deadline_base + members * self.start_deadline_per_member)

    def retry_after(self, failures: int) -> float:
        return min(self.backoff_max, self.backoff * 2.0 ** min(failures, 32))
