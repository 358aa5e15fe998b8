"""Made-up traces: gangs for five queues, or jobs from 20 teams in a tree of queues.

A little more work comes than the cluster can do, so there is contention from soon after the beginning to the
end. The teams are five in each of four departments. Sizes and run times of their jobs are heavy-tailed, as
those of real clusters are: most jobs are small and short, and a few hold most of the room. Two of three
owners declare a run time, some of them a wrong one. The same seed makes the same trace.
"""

import random
from typing import NamedTuple

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.sim.virtual.trace import Row

WEIGHTS = {"research": 5, "training": 4, "serving": 3, "reports": 2, "adhoc": 1}
_SHORTEST, _LONGEST = 60, 1800
_LARGEST_PART = 8  # no gang takes more than this part of the cluster


class ClusterSize(NamedTuple):
    """A cluster of nodes that are alike, in whole cpus."""

    nodes: int
    cpus: int

    @property
    def total(self) -> int:
        return self.nodes * self.cpus


def gang_rows(pods: int, room: ClusterSize, seed: int) -> list[Row]:
    """As many pods, in order of arrival."""
    dice, left = random.Random(seed), pods
    rows: list[Row] = []
    while left:
        cpus = dice.choice([count for count in (1, 2, 4) if count <= room.cpus] or [1])
        most = max(1, min(left, room.total // cpus // _LARGEST_PART))
        size = min(dice.choice((1, 2, 4, 8, 16, 32, 64, 128)), most)
        seconds = _SHORTEST * (_LONGEST / _SHORTEST) ** dice.random()  # as many short ones as long ones
        requests = {"cpu": str(cpus), "memory": f"{cpus * dice.choice((1, 2, 3))}Gi"}
        queue = dice.choice(list(WEIGHTS))
        rows.append(Row(0.0, f"gang-{len(rows)}", size, size, float(round(seconds)), requests, queue))
        left -= size
    return _arriving(rows, room, load=1.25, step=1.0, dice=dice)


def _arriving(rows: list[Row], room: ClusterSize, load: float, step: float, dice: random.Random) -> list[Row]:
    """Arriving at multiples of `step` seconds, as fast as makes `load` times the work that `room` can do."""
    work = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in rows)
    span = work / room.total / load
    arrivals = sorted(dice.uniform(0, span) // step * step for _ in rows)
    return [row._replace(arrival=at) for row, at in zip(rows, arrivals, strict=True)]


_DEPARTMENTS = {"research": 4, "products": 3, "platform": 2, "labs": 1}
_TEAMS = {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1}
_SIZE_TAIL, _TIME_TAIL = 1.1, 1.2  # exponents of Pareto distributions
_SHORTEST_JOB, _LONGEST_JOB = 60.0, 14_400.0  # seconds
_STEP = 10.0  # seconds: jobs come and end at multiples of it, which makes the moments few
_DECLARED = (None, None, 1.0, 1.0, 2.0, 0.5)  # times as long as the job runs


def team_queues() -> list[Queue]:
    """Parents first."""
    made = [Queue(Meta(name), QueueSpec(weight)) for name, weight in _DEPARTMENTS.items()]
    for parent in _DEPARTMENTS:
        for team, weight in _TEAMS.items():
            made.append(Queue(Meta(f"{parent}-{team}"), QueueSpec(weight, parent=parent)))
    return made


def job_rows(jobs: int, room: ClusterSize, seed: int) -> list[Row]:
    """As many jobs, in order of arrival."""
    dice = random.Random(seed)
    rows: list[Row] = []
    for number in range(jobs):
        cpus = min(dice.choice((1, 1, 2, 4)), room.cpus)
        most = max(1, room.total // cpus // _LARGEST_PART)
        size = min(int(dice.paretovariate(_SIZE_TAIL)), most)
        seconds = min(_SHORTEST_JOB * dice.paretovariate(_TIME_TAIL), _LONGEST_JOB) // _STEP * _STEP
        wrong = dice.choice(_DECLARED)
        requests = {"cpu": str(cpus), "memory": f"{2 * cpus}Gi"}
        queue = dice.choice([f"{parent}-{team}" for parent in _DEPARTMENTS for team in _TEAMS])
        priority = dice.choice((0, 0, 0, 0, 0, 0, 0, 10, 10, 100))
        declared = None if wrong is None else seconds * wrong
        row = Row(0.0, f"job-{number}", size, size, seconds, requests, queue)
        rows.append(row._replace(priority=priority, declared=declared))
    return _arriving(rows, room, load=1.1, step=_STEP, dice=dice)
