"""Reserved capacity: starting groups leave the reserved nodes free by their time.

A group that would not waits (Reserved), and no other group does.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import Reservation
from tests.domain import builders
from tests.domain.world import World, gang, key, timestamp
from tests.oracle.placement import FreeCapacity, Node, Pod, fit, free_capacity
from tests.property_examples import examples


class Busy:
    """A cluster of one queue in which some run, and the first of those that wait has a reservation."""

    def __init__(self, cpus: list[int]) -> None:
        self.hosts = [Node(f"n{n}", (("cpu", each),)) for n, each in enumerate(cpus)]
        nodes = (builders.node(f"n{n}", cpu=str(each)) for n, each in enumerate(cpus))
        self.world = World(*nodes, builders.queue("default", reserve_after="1s", preemption=None))
        self.came = 0
        self.jobs: dict[str, tuple[int, int, int]] = {}  # members, cpus of each, run time in seconds
        self.ends: dict[str, float] = {}  # of those that run

    def comes(self, members: int, cpus: int, run_time: int) -> None:
        name, now = f"g{self.came}", self.world.now + self.came / 100
        self.jobs[name], self.came = (members, cpus, run_time), self.came + 1
        more: dict[str, Any] = {"cpu": str(cpus), "created": timestamp(now), "run_time": f"{run_time}s"}
        self.world.add(gang(name, members, **more))

    def all_start(self) -> None:
        self.world.settle()
        while starting := [job for job in self.jobs if self.world.verdict(job) is Verdict.STARTING]:
            self.world.start(starting[0])
            self.ends[starting[0]] = self.world.now + self.jobs[starting[0]][2]

    def pods(self, name: str) -> list[Pod]:
        members, cpus, _ = self.jobs[name]
        return [Pod((("cpu", cpus),))] * members

    def standing(self, after: float, decisions: Decisions, before: str = "") -> list[tuple[Pod, str]]:
        """Return the pods on nodes at a time.

        Counted are running pods, and those that start now when it is the turn of `before`; empty: all
        of them.
        """
        found = list[tuple[Pod, str]]()
        started = list(takewhile(lambda job: job != before, self.jobs))
        for name in self.ends | dict.fromkeys(started, self.world.now):
            plan = decisions.groups[key(name)].plan
            placed = (
                pod.spec.node_name for each, pod in self.world.pods.items() if each.startswith(f"{name}-")
            )
            if self.ends.get(name, self.world.now + self.jobs[name][2]) > after:
                found += zip(self.pods(name), [*plan.values()] or filter(None, placed), strict=False)
        return found


def untrue(busy: Busy, holder: str, reserved: Reservation, decisions: Decisions) -> Iterator[str]:
    now, instant, passable = busy.world.now, reserved.starts_at, reserved.passable_until
    assert instant is not None
    assert passable is not None
    needed = [(pod, node) for pod, node in zip(busy.pods(holder), reserved.nodes.values(), strict=True)]
    for name in ("", *busy.jobs):
        capacity = free_capacity(busy.hosts, busy.standing(now, decisions, name))
        then = free_capacity(busy.hosts, [*busy.standing(instant, decisions, name), *needed])
        if any(then[host]["cpu"] < 0 for host in busy.hosts if host.name in reserved.node_names):
            yield f"{holder} finds its nodes free at {instant}"
        spare: FreeCapacity = {
            host: {"cpu": min(capacity[host]["cpu"], max(then[host]["cpu"], 0))} for host in busy.hosts
        }
        if name in ("", holder) or (decision := decisions.groups[key(name)]).verdict is not Verdict.WAITING:
            continue
        passes = now + busy.jobs[name][2] <= passable
        if fit(busy.pods(name), capacity if passes else spare):
            yield f"{name} starts, and waits for {decision.reason} ({decision.detail})"
        elif (decision.reason is Reason.RESERVED) != fit(busy.pods(name), capacity):
            yield f"{name} waits for {decision.reason} ({decision.detail})"


@st.composite
def busy_clusters(draw: st.DrawFn) -> Busy:
    busy = Busy(draw(st.lists(st.integers(2, 4), min_size=2, max_size=3)))
    small = st.tuples(st.just(1), st.integers(1, 2), st.sampled_from((600, 1200, 1800, 2400)))
    large = st.tuples(st.integers(1, 2), st.integers(2, 4), st.sampled_from((600, 2400)))
    for each in draw(st.lists(small, min_size=2, max_size=5)):
        busy.comes(*each)
        busy.all_start()
    busy.comes(*draw(large))
    busy.all_start()
    busy.world.pass_time(2.0)
    running = draw(st.lists(st.sampled_from(sorted(busy.ends)), min_size=1, max_size=2, unique=True))
    for name in running:
        busy.world.finish(*(f"{name}-{n}" for n in range(busy.jobs[name][0])))
        del busy.jobs[name], busy.ends[name]
    for each in draw(st.lists(small, min_size=1, max_size=3)):
        busy.comes(*each)
    return busy


@settings(max_examples=examples(40))
@given(busy_clusters())
def test_no_more_capacity_is_reserved_than_needed(busy: Busy) -> None:
    before, decisions = busy.world.decisions.groups, busy.world.decide()
    for holder in [name for name in before if before[name].reservation]:
        now = decisions.groups[holder]
        if now.verdict is Verdict.WAITING:
            assert now.reservation is not None
            assert not list(untrue(busy, holder.partition("/")[2], now.reservation, decisions))
