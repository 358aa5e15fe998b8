"""Gangs in domains against brute force, on small random clusters of three levels."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.nodes import Topologies
from tests.domain.builders import HOSTNAME, node, pod
from tests.domain.topology_oracle import Level, Member, choices, fewest_domains, is_placeable
from tests.domain.world import LIMITS, World, gang

BLOCK, RACK = "example.com/block", "example.com/rack"
MAX_CHOICES = 100  # of domains for all sets, so that brute force ends

clusters = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("01"), st.integers(1, 5)), max_size=9)
requests = st.integers(1, 3)


@st.composite
def roles(draw: st.DrawFn, name: str) -> tuple[list[int], dict[str, str]]:
    """Return the requests of the members of a role, and the annotations of its template."""
    size = st.just(draw(requests)) if draw(st.booleans()) else requests
    annotations = {
        keys.REQUIRED_TOPOLOGY: draw(st.sampled_from(("", RACK, BLOCK))),
        keys.SLICE_TOPOLOGY: draw(st.sampled_from(("", RACK, HOSTNAME))),
        keys.SLICE_SIZE: draw(st.sampled_from("123")),
    }
    return draw(st.lists(size, min_size=1, max_size=3)), annotations


class Cluster:
    def __init__(self, nodes: Sequence[tuple[str, str, int]]) -> None:
        self.world = World()
        self.world.ledger.claims.capacity.set_topologies(Topologies([(BLOCK, RACK, HOSTNAME)]))
        self.free: dict[str, int] = {}
        self.levels: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for number, (block, rack, cpu) in enumerate(nodes):
            name = f"n{number}"
            self.free[name] = cpu
            for level, domain in ((BLOCK, block), (RACK, block + rack), (HOSTNAME, name)):
                self.levels[level][name] = domain
            self.world.add(node(name, str(cpu), labels={BLOCK: block, RACK: rack}))


@given(clusters, st.sampled_from(("", BLOCK, RACK)), st.tuples(roles("a"), roles("b")))
def test_a_gang_is_placed_where_brute_force_places_it(
    nodes: list[tuple[str, str, int]], of_group: str, of_roles: Sequence[tuple[list[int], dict[str, str]]]
) -> None:
    cluster, members, pods = Cluster(nodes), list[Member](), list[Any]()
    levels: dict[str, Level] = {}
    for role, (sizes, annotations) in zip("ab", of_roles, strict=True):
        for number, cpu in enumerate(sizes):
            part = number // int(annotations[keys.SLICE_SIZE])
            asked = {
                "group": of_group,
                role: annotations[keys.REQUIRED_TOPOLOGY],
                f"{role}{part}": annotations[keys.SLICE_TOPOLOGY],
            }
            levels |= {name: cluster.levels[level] for name, level in asked.items() if level}
            members.append(Member(cpu, tuple(name for name, level in asked.items() if level)))
            pods.append(pod(f"{role}-{number}", "g", str(cpu), role, annotations=annotations))
    assume(len(list(choices(members, levels))) <= MAX_CHOICES)
    record = gang("g", 0, min_member=len(pods), notes={keys.REQUIRED_TOPOLOGY: of_group})
    world = cluster.world.add(record, pods).settle()
    assert (world.verdict("g") is Verdict.STARTING) == is_placeable(members, cluster.free, levels)
    assert_together(members, [pod.metadata.name for pod in pods], world.plan("g"), levels)


def assert_together(
    members: Sequence[Member], names: Sequence[str], plan: Mapping[str, str], levels: Mapping[str, Level]
) -> None:
    """Check that the members of each set that have a node share a domain."""
    domains: defaultdict[str, set[str | None]] = defaultdict(set)
    for member, name in zip(members, names, strict=True):
        if name in plan:
            for pod_set in member.sets:
                domains[pod_set].add(levels[pod_set].get(plan[name]))
    assert all(len(found) == 1 and None not in found for found in domains.values())


@given(clusters, st.integers(1, 7), requests)
def test_a_gang_of_equal_members_prefers_the_fewest_racks(
    nodes: list[tuple[str, str, int]], size: int, cpu: int
) -> None:
    cluster = Cluster(nodes)
    annotations = {keys.PREFERRED_TOPOLOGY: RACK}
    world = cluster.world.add(gang("g", size, cpu=str(cpu), annotations=annotations)).settle()
    racks = {cluster.levels[RACK][name] for name in world.plan("g").values()}
    in_block = {name: cluster.levels[BLOCK][name] for name in cluster.free}
    members, block = [Member(cpu)] * size, {in_block[name] for name in world.plan("g").values()}
    if world.plan("g"):
        is_in_one_block = fewest_domains(members, cluster.free, cluster.levels[BLOCK]) == 1
        assert (len(block) == 1) == is_in_one_block
    if len(block) == 1:
        free = {name: n for name, n in cluster.free.items() if in_block[name] in block}
    else:
        free = cluster.free
    assert (fewest_domains(members, free, cluster.levels[RACK]) or 0) == len(racks)


def test_two_racks_are_filled_evenly_by_whole_slices() -> None:
    """Racks of 9 and 7 nodes take two of four slices each, in the order of indices."""
    nodes = [("x", "0", 1)] * 9 + [("x", "1", 1)] * 7
    annotations = {keys.PREFERRED_TOPOLOGY: RACK, keys.SLICE_TOPOLOGY: RACK, keys.SLICE_SIZE: "3"}
    cluster = Cluster(nodes)
    world = cluster.world.add(gang("g", 12, cpu="1", annotations=annotations)).settle()
    racks = [cluster.levels[RACK][world.plan("g")[f"g-{n}"]] for n in range(12)]
    assert racks in (["x0"] * 6 + ["x1"] * 6, ["x1"] * 6 + ["x0"] * 6)


def test_neighbors_by_index_are_in_one_rack() -> None:
    """The nodes with the least free capacity alternate between the racks."""
    nodes = [("x", str(number % 2), 1 + number) for number in range(6)]
    cluster = Cluster(nodes)
    annotations = {keys.REQUIRED_TOPOLOGY: BLOCK}
    index = "batch.kubernetes.io/job-completion-index"
    labels = [{index: str(number)} for number in range(6)]
    members = [pod(f"g-{n}abcd", "g", annotations=annotations, labels=labels[n]) for n in range(6)]
    taken = [pod(f"x{number}", on=f"n{number}", cpu=str(number)) for number in range(1, 6)]
    world = cluster.world.add(taken, gang("g", 0, min_member=6), members).settle()
    racks = [cluster.levels[RACK][world.plan("g")[member.metadata.name]] for member in members]
    assert racks in (["x0"] * 3 + ["x1"] * 3, ["x1"] * 3 + ["x0"] * 3)


def _mixed_slices(number: int, *free: int) -> World:
    """Return racks with some free cpu, and a gang with slices of two pods that request 1 and 2 cpu."""
    annotations = {keys.SLICE_TOPOLOGY: RACK, keys.SLICE_SIZE: "2"}
    members = [pod(f"g-{n}", "g", str(1 + n % 2), annotations=annotations) for n in range(2 * number)]
    racks = [
        node(f"n{n}", str(cpu), labels={RACK: str(n)}, more={"pods": "9999"}) for n, cpu in enumerate(free)
    ]
    return World(*racks, *members, gang("g", 0, min_member=2 * number), limits=replace(LIMITS, window=9999))


def test_a_domain_that_holds_no_slice_costs_one_try_and_not_one_for_each() -> None:
    """The first rack has capacity for either pod of a slice, but not for both."""
    world = _mixed_slices(250, 2, 1000).settle()
    assert world.verdict("g") is Verdict.STARTING
    assert {*world.plan("g").values()} == {"n1"}


def test_a_gang_of_too_many_different_slices_is_too_complex_and_delays_no_other() -> None:
    world = _mixed_slices(1100, 4000).add(gang("other", 2, cpu="1")).settle()
    assert world.reason("g") is Reason.TOO_COMPLEX
    assert world.verdict("other") is Verdict.STARTING
