"""Pods with host ports, or required (anti-)affinity within a node or zone.

A gang starts if any of all ways to send its members to nodes keeps every rule, and only then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, permutations
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.objects.pods import Affinity
from extender.domain.model.reasons import Verdict
from tests.domain import builders
from tests.domain.builders import HOSTNAME, ZONE
from tests.domain.world import World, gang
from tests.property_examples import examples

_APP, _PORT = "app", 8080


class Host(NamedTuple):
    name: str
    cpus: int
    zone: str  # empty: it is in none

    def domain(self, key: str) -> str:
        return self.name if key == HOSTNAME else self.zone


class Kind(NamedTuple):
    app: str
    cpus: int
    apart: str = ""  # the key of domains in which no pod of the app `whose` may be next to it
    together: str = ""  # of those in which one has to be
    whose: str = ""
    has_port: bool = False

    @property
    def as_pod(self) -> dict[str, Any]:
        selected = {_APP: self.whose}
        terms = builders.anti_affinity(self.apart, **selected) if self.apart else Affinity()
        near = builders.co_location(self.together, **selected).pod_affinity if self.together else None
        return {
            "cpu": str(self.cpus),
            "labels": {_APP: self.app},
            "affinity": Affinity(pod_affinity=near, pod_anti_affinity=terms.pod_anti_affinity),
            "host_port": _PORT if self.has_port else 0,
        }


Place = tuple[Kind, Host]


def is_allowed(standing: Sequence[Place], coming: Sequence[Place]) -> bool:
    """Return whether pods of one kind may go to their nodes, all of them."""
    candidates, (kind, _) = [*standing, *coming], coming[0]
    used = Counter[Host]()
    for each, host in candidates:
        used[host] += each.cpus
    if any(used[host] > host.cpus for _, host in coming):
        return False
    new = range(len(standing), len(candidates))
    pairs = permutations(range(len(candidates)), 2)
    if any(_clash(candidates[one], candidates[other]) for one, other in pairs if one in new or other in new):
        return False
    if not kind.together:
        return True
    theirs = {host.domain(kind.together) for pod, host in standing if pod.app == kind.whose} - {""}
    domains = {host.domain(kind.together) for _, host in coming}
    is_first = kind.app == kind.whose and not any(pod.app == kind.whose for pod, _ in standing)
    return domains <= theirs or (is_first and len(domains) == 1 and "" not in domains)


def _clash(one: Place, other: Place) -> bool:
    """Return whether the first pod keeps the other one away, or both have the same port."""
    (kind, here), (other_kind, there) = one, other
    if kind.has_port and other_kind.has_port and here == there:
        return True
    domain = here.domain(kind.apart) if kind.apart and other_kind.app == kind.whose else ""
    return domain != "" and domain == there.domain(kind.apart)


def ways(hosts: Iterable[Host], kind: Kind, members: int) -> Iterator[list[Place]]:
    return ([(kind, host) for host in way] for way in combinations_with_replacement(hosts, members))


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    keys = st.sampled_from(("", "", HOSTNAME, ZONE))
    apps = st.sampled_from("ab")
    cpus, has_port = draw(st.sampled_from((1, 1, 2))), draw(st.integers(0, 3)) == 3
    return Kind(draw(apps), cpus, draw(keys), draw(keys), draw(apps), has_port)


@settings(max_examples=examples(100))
@given(st.data())
def test_a_gang_starts_if_affinity_allows_its_members_next_to_all_pods(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    zones = st.sampled_from(("", "x", "x", "y"))
    hosts = [Host(f"n{n}", cpus, data.draw(zones)) for n, cpus in enumerate(sizes)]
    world = World(*(builders.node(host.name, cpu=str(host.cpus), zone=host.zone) for host in hosts))
    standing: list[Place] = []
    for n in range(data.draw(st.integers(0, 3))):
        place = data.draw(kinds()), data.draw(st.sampled_from(hosts))
        if sum(kind.cpus for kind, host in [*standing, place] if host == place[1]) <= place[1].cpus:
            standing.append(place)
            world.add(builders.foreign_pod(f"s{n}", on=place[1].name, **place[0].as_pod))
    kind, members = data.draw(kinds()), data.draw(st.integers(1, 4))
    world.add(gang("g", members, **kind.as_pod)).settle()
    has_way = any(is_allowed(standing, way) for way in ways(hosts, kind, members))
    assert (world.verdict("g") is Verdict.STARTING) == has_way
    if has_way:
        by_name = {host.name: host for host in hosts}
        assert is_allowed(standing, [(kind, by_name[node]) for node in world.plan("g").values()])


def test_members_in_one_zone_on_separate_nodes_get_a_zone_with_enough_nodes() -> None:
    kind = Kind("a", 1, apart=HOSTNAME, together=ZONE, whose="a")
    zones = {"n": "x", "m": "y", "k": "y"}
    world = World(*(builders.node(name, zone=zone) for name, zone in zones.items()))
    assert sorted(world.add(gang("g", 2, **kind.as_pod)).settle().plan("g").values()) == ["k", "m"]
