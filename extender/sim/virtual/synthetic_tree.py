"""A made-up trace of jobs from 20 teams in a tree of queues: four departments of five teams each.

Sizes and run times are heavy-tailed, as those of real clusters are: most jobs are small and short, and a few
hold most of the room. Two of three owners declare a run time, some of them a wrong one. A little more work
comes than the cluster can do. The same seed makes the same trace.
"""

import random
from collections.abc import Iterator

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.sim.virtual.synthetic import ClusterSize
from extender.sim.virtual.trace import Row

_DEPARTMENTS = {"research": 4, "products": 3, "platform": 2, "labs": 1}
_TEAMS = {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1}
_LOAD = 1.1  # how much more work comes than the cluster can do meanwhile
_CPUS = (1, 1, 2, 4)
_SIZE_TAIL, _TIME_TAIL = 1.1, 1.2  # exponents of Pareto distributions
_SHORTEST, _LONGEST = 60.0, 14_400.0  # seconds
_LARGEST_PART = 8  # no gang takes more than this part of the cluster
_STEP = 10.0  # seconds: jobs come and end at multiples of it, which makes the moments few
_PRIORITIES = (0, 0, 0, 0, 0, 0, 0, 10, 10, 100)
_DECLARED = (None, None, 1.0, 1.0, 2.0, 0.5)  # times as long as the job runs


def queues() -> list[Queue]:
    """Parents first."""
    made = [Queue(Meta(name), QueueSpec(weight)) for name, weight in _DEPARTMENTS.items()]
    for parent in _DEPARTMENTS:
        made += [
            Queue(Meta(f"{parent}-{team}"), QueueSpec(weight, parent=parent))
            for team, weight in _TEAMS.items()
        ]
    return made


def rows(jobs: int, room: ClusterSize, seed: int) -> list[Row]:
    """As many jobs, in order of arrival."""
    dice = random.Random(seed)
    made = [_job(number, room, dice) for number in range(jobs)]
    work = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in made)
    span = work / room.total / _LOAD
    arrivals = sorted(dice.uniform(0, span) // _STEP * _STEP for _ in made)
    return [row._replace(arrival=at) for row, at in zip(made, arrivals, strict=True)]


def _job(number: int, room: ClusterSize, dice: random.Random) -> Row:
    cpus = min(dice.choice(_CPUS), room.cpus)
    most = max(1, room.total // cpus // _LARGEST_PART)
    size = min(int(dice.paretovariate(_SIZE_TAIL)), most)
    seconds = min(_SHORTEST * dice.paretovariate(_TIME_TAIL), _LONGEST) // _STEP * _STEP
    wrong = dice.choice(_DECLARED)
    return Row(
        arrival=0.0,
        group=f"job-{number}",
        members=size,
        min_member=size,
        seconds=seconds,
        requests={"cpu": str(cpus), "memory": f"{2 * cpus}Gi"},
        queue=dice.choice(list(_leaves())),
        priority=dice.choice(_PRIORITIES),
        declared=None if wrong is None else seconds * wrong,
    )


def _leaves() -> Iterator[str]:
    return (f"{parent}-{team}" for parent in _DEPARTMENTS for team in _TEAMS)
