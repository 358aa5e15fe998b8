"""Gangs of two roles whose pods keep others away from nodes or zones, in queues with and without flavors.

A plan keeps every rule, a group waits only if no way is left, and never fits if the empty cluster has none.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.model.reasons import Reason, Verdict
from tests.domain import builders
from tests.domain.world import World
from tests.oracle.test_terms import Host, Kind, Place, is_allowed, kinds
from tests.property_examples import examples

FLAVORS = (builders.flavor("a"), builders.flavor("b"))


class Gang(NamedTuple):
    """One driver and some workers, of which it does not need those to `spare`."""

    name: str
    driver: Kind
    worker: Kind
    workers: int
    spare: int

    def objects(self) -> list[Any]:
        name, roles = self.name, {"d": 1, "w": self.workers}
        kinds = {"d0": self.driver} | {f"w{n}": self.worker for n in range(self.workers + self.spare)}
        pods = [builders.pod(f"{name}-{kind}", name, role=kind[0], **kinds[kind].as_pod) for kind in kinds]
        created = f"2026-01-01T00:00:0{name[-1]}Z"
        return [builders.group(name, self.workers + 1, "q", roles=roles, created=created), *pods]


class Cluster(NamedTuple):
    hosts: Sequence[Host]
    flavors: Mapping[str, str]  # by host; without any, the queue has none
    standing: Sequence[Place]  # pods of others
    gangs: Sequence[Gang]

    def world(self) -> World:
        world = World(builders.queue("q", flavors=FLAVORS if self.flavors else (), preemption=None))
        for name, cpus, zone in self.hosts:
            labels = builders.on_flavor(self.flavors.get(name, ""))
            world.add(builders.node(name, str(cpus), zone=zone, labels=labels))
        for n, (kind, host) in enumerate(self.standing):
            world.add(builders.foreign_pod(f"s{n}", on=host.name, **kind.as_pod))
        return world.add(*(gang.objects() for gang in self.gangs))

    def is_of_one_flavor(self, hosts: Sequence[Host]) -> bool:
        found = {self.flavors.get(host.name, "any") for host in hosts}
        return len(found) == 1 and "" not in found

    def has_way(self, gang: Gang, standing: Sequence[Place]) -> bool:
        crowds = list(combinations_with_replacement(self.hosts, gang.workers))
        return any(
            is_allowed(standing, [(gang.driver, host), *((gang.worker, member) for member in crowd)])
            for host, crowd in product(self.hosts, crowds)
            if self.is_of_one_flavor([host]) and self.is_of_one_flavor(crowd)
        )

    def untrue(self, world: World) -> Iterator[str]:
        """Yield the statements that are not true of the decisions."""
        placed, by_name = list(self.standing), {host.name: host for host in self.hosts}
        for gang in self.gangs:
            plan = world.plan(gang.name)
            drivers, workers = (
                [by_name[node] for pod, node in plan.items() if pod.startswith(f"{gang.name}-{role}")]
                for role in "dw"
            )
            if plan and (len(drivers) != 1 or len(workers) < gang.workers):
                yield f"{gang.name} starts whole: {plan}"
            if plan and not (self.is_of_one_flavor(drivers) and self.is_of_one_flavor(workers)):
                yield f"each role of {gang.name} has one flavor: {plan}"
            coming = [
                *((gang.driver, driver) for driver in drivers),
                *((gang.worker, worker) for worker in workers),
            ]
            if plan and not is_allowed(placed, coming):
                yield f"the members of {gang.name} may be there: {plan}"
            placed += coming
        for gang in self.gangs:
            if world.verdict(gang.name) is not Verdict.STARTING:
                yield from self._untrue_reason(world, gang, placed)

    def _untrue_reason(self, world: World, gang: Gang, placed: Sequence[Place]) -> Iterator[str]:
        reason = world.reason(gang.name)
        said = f"{gang.name} waits for {reason} ({world.detail(gang.name)})"
        if self.has_way(gang, placed):
            yield f"{said}, and there is none for it"
        if (reason is Reason.NEVER_FITS) == self.has_way(gang, ()):
            yield f"{said}, which depends on the empty cluster alone"


some_kinds = kinds().map(lambda kind: kind._replace(together=""))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    hosts = [Host(f"n{n}", cpus, draw(st.sampled_from(("", "x", "x", "y")))) for n, cpus in enumerate(sizes)]
    flavors = {host.name: draw(st.sampled_from(("a", "b", "a", "b", ""))) for host in hosts}
    standing: list[Place] = []
    for _ in range(draw(st.integers(0, 2))):
        place = draw(some_kinds), draw(st.sampled_from(hosts))
        standing += [place] if is_allowed(standing, [place]) else []
    gangs = [
        Gang(f"g{n}", draw(some_kinds), draw(some_kinds), draw(st.integers(1, 3)), draw(st.integers(0, 1)))
        for n in range(draw(st.integers(1, 3)))
    ]
    return Cluster(hosts, flavors if draw(st.booleans()) else {}, standing, gangs)


@settings(max_examples=examples(150))
@given(clusters())
def test_gangs_of_two_roles_start_if_any_placement_exists(cluster: Cluster) -> None:
    assert not list(cluster.untrue(cluster.world().settle())), "these sentences are not true"
