"""A made-up trace: gangs for five queues, a little more work than the cluster can do while they keep coming.

So there is contention from soon after the beginning to the end. The same seed makes the same trace.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from extender.sim.virtual.trace import Row

WEIGHTS = {"research": 5, "training": 4, "serving": 3, "reports": 2, "adhoc": 1}
_LOAD = 1.25  # how much more work comes than the cluster can do meanwhile
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_CPUS = (1, 2, 4)
_GIB_PER_CPU = (1, 2, 3)
_SHORTEST, _LONGEST = 60, 1800
_LARGEST_PART = 8  # no gang takes more than this part of the cluster


class ClusterSize(NamedTuple):
    """A cluster of nodes that are alike, in whole cpus."""

    nodes: int
    cpus: int

    @property
    def total(self) -> int:
        return self.nodes * self.cpus


def rows(pods: int, room: ClusterSize, seed: int) -> list[Row]:
    """As many pods, in order of arrival."""
    dice = random.Random(seed)
    gangs = list(_gangs(pods, room, dice))
    work = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in gangs)
    span = work / room.total / _LOAD
    arrivals = sorted(float(int(dice.uniform(0, span))) for _ in gangs)
    return [row._replace(arrival=at) for row, at in zip(gangs, arrivals, strict=True)]


def _gangs(pods: int, room: ClusterSize, dice: random.Random) -> Iterator[Row]:
    left, number = pods, 0
    while left:
        cpus = dice.choice([each for each in _CPUS if each <= room.cpus] or [1])
        most = max(1, min(left, room.total // cpus // _LARGEST_PART))
        size = min(dice.choice(_SIZES), most)
        yield _gang(f"gang-{number}", size, cpus, dice)
        left, number = left - size, number + 1


def _gang(name: str, size: int, cpus: int, dice: random.Random) -> Row:
    seconds = _SHORTEST * (_LONGEST / _SHORTEST) ** dice.random()  # as many short ones as long ones
    memory = cpus * dice.choice(_GIB_PER_CPU)
    return Row(
        arrival=0.0,
        group=name,
        members=size,
        min_member=size,
        seconds=float(round(seconds)),
        requests={"cpu": str(cpus), "memory": f"{memory}Gi"},
        queue=dice.choice(list(WEIGHTS)),
    )
