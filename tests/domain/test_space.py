"""Placing: best fit, constraints between pods, and undoing without a trace."""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.objects.pods import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Term
from extender.domain.placement.planner import Planner
from extender.domain.snapshot.wholeness import Missing
from tests.domain.builders import HOSTNAME, ZONE, anti_affinity, co_location, foreign_pod, node, pod, queue
from tests.domain.world import World, gang, nodes
from tests.rows import each_of


def planner_of(world: World) -> Planner:
    return Planner.from_snapshot(world.ledger.snapshot())


def record(world: World, name: str) -> PodRecord:
    found = world.ledger.pods.get(world.pods[name].metadata.uid)  # type: ignore[arg-type]
    assert found is not None
    return found


def placed(world: World, *names: str) -> dict[str, str] | None:
    plan = planner_of(world).place([record(world, name) for name in names])
    return None if plan is None else {name: plan[record(world, name).uid] for name in names}


def test_large_pods_come_first_and_the_tightest_node_is_taken() -> None:
    world = World(node("large", cpu="8"), node("small", cpu="2"), node("tiny", cpu="1"), pod("p", cpu="2"))
    assert placed(world, "p") == {"p": "small"}
    world = World(node("a", cpu="3"), node("b", cpu="2"), pod("s", cpu="2"), pod("l", cpu="3"))
    assert placed(world, "s", "l") == {"s": "b", "l": "a"}


def test_members_are_not_placed_if_some_request_a_vanished_resource() -> None:
    lost = [pod(name, "g", cpu="2", more={"x.io/gpu": "1"}) for name in "bc"]
    world = World(node("n", cpu="8"), pod("a", "g", cpu="1"), lost)
    assert placed(world, "a", "b", "c") is None


def test_pods_with_few_nodes_are_placed_before_large_pods() -> None:
    world = World(
        node("a", labels={"disk": "ssd"}), node("b"), pod("picky", cpu="1", selector={"disk": "ssd"})
    )
    world.add(pod("large", cpu="4"))
    assert placed(world, "large", "picky") == {"large": "b", "picky": "a"}


@each_of(
    ({"a": "4", "b": "4", "c": "4"}, "1", {"a": 2, "b": 1, "c": 1}),
    ({"a": "8", "b": "4", "c": "1"}, "1", {"a": 4}),
    ({"a": "2", "b": "2", "c": "2"}, "2", {"a": 1, "b": 1, "c": 1}),
    ({"a": "1", "b": "9"}, "1", {"b": 4}),
)
def test_pods_are_spread_each_to_the_emptiest_node(
    cpus: dict[str, str], cpu: str, expected: dict[str, int]
) -> None:
    size = sum(expected.values())
    world = World(*(node(name, cpu=cpus[name], memory="1Ti") for name in cpus), gang("g", size, cpu=cpu))
    pods = [record(world, f"g-{n}") for n in range(size)]
    assert Counter((planner_of(world).place(pods, is_spread=True) or {}).values()) == expected


def test_a_gang_that_fits_only_packed_is_packed() -> None:
    """Spread, the two small ones would leave no node for the large one."""
    world = World(nodes("a", "b", cpu="4"), pod("l", cpu="4"), gang("g", 2, cpu="2"))
    small, large = [record(world, f"g-{n}") for n in range(2)], record(world, "l")
    assert len(set((planner_of(world).place(small, is_spread=True) or {}).values())) == 2
    assert planner_of(world).place([*small, large], is_spread=True) == planner_of(world).place(
        [*small, large]
    )


@each_of(("", 1, ["a", "b"]), ("Pack", 1, ["a"]), ("Spread", 2, ["b"]))
def test_a_queue_says_whether_its_pods_are_packed_or_spread(
    placement: str, nodes_: int, answer: list[str]
) -> None:
    """Apply the placement to single pods, too, which the scheduler would put anywhere."""
    queues = queue("q", placement=placement), queue("other")
    world = World(nodes("a", "b", cpu="8"), *queues, pod("old", on="a", cpu="2", queue="other"))
    world.add(pod("p", queue="q", cpu="500m")).settle()
    assert world.answer("p") == answer
    world.delete("p").add(gang("g", 4, queue="q")).settle()
    assert len(set(world.plan("g").values())) == nodes_


def test_the_number_of_pods_is_a_capacity_too() -> None:
    world = World(node("a", cpu="64", pods="2"), gang("g", 3))
    assert placed(world, "g-0", "g-1") == {"g-0": "a", "g-1": "a"}
    assert placed(world, "g-0", "g-1", "g-2") is None


def test_anti_affinity_by_host() -> None:
    world = World(nodes("a", "b"), gang("g", 3, labels={"app": "x"}, affinity=anti_affinity(app="x")))
    assert placed(world, "g-0", "g-1", "g-2") is None
    two = placed(world, "g-0", "g-1")
    assert two is not None
    assert sorted(two.values()) == ["a", "b"]


def test_anti_affinity_by_zone() -> None:
    zones = [node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b")]
    world = World(zones, gang("g", 2, labels={"app": "x"}, affinity=anti_affinity(ZONE, app="x"))).settle()
    assert {name[0] for name in world.plan("g").values()} == {"a", "b"}


@each_of(True, False)
def test_anti_affinity_holds_both_ways(ours_is_guarded: bool) -> None:
    """A bound pod that our pod must avoid, and a bound pod of ours that must avoid such pods."""
    guard: dict[str, Any] = {"labels": {"app": "x"}}
    guarded: dict[str, Any] = {"affinity": anti_affinity(app="x")}
    first, second = (guard, guarded) if ours_is_guarded else (guarded, guard)
    world = World(nodes("a", "b"), pod("old", on="a", **first), pod("new", **second))
    assert placed(world, "new") == {"new": "b"}


@each_of(*product([True, False], [HOSTNAME, ZONE]))
def test_anti_affinity_of_pods_that_are_not_ours_keeps_ours_away(comes_first: bool, topology: str) -> None:
    zones = [node("a1", zone="a"), node("a2", zone="a"), node("b1", cpu="64", zone="b")]
    guard = foreign_pod("guard", on="a1", affinity=anti_affinity(topology, app="x"))
    new = pod("new", labels={"app": "x"})
    world = World(zones, *((guard, new) if comes_first else (new, guard)))
    assert placed(world, "new") == {"new": "a2" if topology == HOSTNAME else "b1"}
    world.add(
        foreign_pod("more", on="b1", affinity=anti_affinity(topology, app="x")),
        foreign_pod("full", on="a2", cpu="4"),
    )
    assert placed(world, "new") is None
    assert placed(world.add(pod("other", labels={"app": "y"})), "other") == {"other": "a1"}
    assert placed(world.delete("guard"), "new") == {"new": "a1"}
    world.add(guard).finish("guard")
    assert placed(world, "new") == {"new": "a1"}


def test_anti_affinity_by_labels_of_namespaces_is_left_to_the_scheduler() -> None:
    term = PodAffinityTerm(
        HOSTNAME, LabelSelector({"app": "x"}), namespace_selector=LabelSelector({"team": "t"})
    )
    guard = foreign_pod("guard", on="a", affinity=Affinity(pod_anti_affinity=PodAffinity([term])))
    assert placed(World(node("a"), guard, pod("new", labels={"app": "x"})), "new") == {"new": "a"}
    anywhere = PodAffinityTerm(HOSTNAME, LabelSelector({"app": "x"}), namespace_selector=LabelSelector())
    guard = foreign_pod("guard", on="a", affinity=Affinity(pod_anti_affinity=PodAffinity([anywhere])))
    assert placed(World(node("a"), guard, pod("new", labels={"app": "x"})), "new") is None


def test_anti_affinity_looks_into_its_own_namespace_only() -> None:
    world = World(node("a"), pod("new", affinity=anti_affinity(app="x")))
    other = foreign_pod("old", on="a", labels={"app": "x"})
    world.add(replace(other, metadata=replace(other.metadata, namespace="elsewhere")))
    assert placed(world, "new") == {"new": "a"}


def test_two_roles_that_keep_each_other_out_of_a_zone_get_a_zone_each() -> None:
    """On the tightest nodes each would take the zone that the other one needs."""
    sizes = {"x": ["2"] * 4, "y": ["3"] * 12 + ["1"] * 4}
    world = World(
        *(node(f"{zone}{n}", size, zone=zone) for zone in sizes for n, size in enumerate(sizes[zone]))
    )
    away: dict[str, Any] = {"labels": {"app": "store"}, "affinity": anti_affinity(ZONE, app="worker")}
    stores = {f"s{n}": pod(f"s{n}", cpu="1", **away) for n in range(4)}
    workers = {f"w{n}": pod(f"w{n}", cpu="2", labels={"app": "worker"}) for n in range(12)}
    plan = placed(world.add([*stores.values(), *workers.values()]), *stores, *workers)
    assert plan is not None
    assert ({plan[each][0] for each in stores}, {plan[worker][0] for worker in workers}) == ({"x"}, {"y"})


def test_affinity_depends_on_the_pods_of_each_domain() -> None:
    zones = [node("a", zone="a"), node("b", zone="b"), node("bare")]
    world = World(zones, pod("old", on="b", labels={"app": "db"}), pod("new", affinity=co_location(app="db")))
    assert placed(world, "new") == {"new": "b"}
    assert placed(World(zones, pod("new", affinity=co_location(app="db"))), "new") is None


def test_a_gang_bound_to_one_zone_or_host_takes_one_with_capacity_for_all_members() -> None:
    zones = [node("a", cpu="2", zone="a"), node("b1", cpu="3", zone="b"), node("b2", cpu="3", zone="b")]
    world = World(zones, gang("g", 5, labels={"app": "x"}, affinity=co_location(app="x"))).settle()
    assert set(world.plan("g").values()) == {"b1", "b2"}
    world = World(node("a", cpu="1"), node("b"))
    world.add(gang("g", 3, labels={"app": "x"}, affinity=co_location(HOSTNAME, app="x"))).settle()
    assert set(world.plan("g").values()) == {"b"}


def test_a_term_of_some_leaves_the_others_to_be_placed_in_one_go() -> None:
    world = World(nodes("a", "b"), gang("picky", 2, labels={"app": "x"}, affinity=anti_affinity(app="x")))
    world.add(gang("plain", 3), gang("seen", 1, labels={"app": "x"})).settle()
    affinity = planner_of(world).affinity
    minded = [affinity.is_counted(record(world, name)) for name in ("picky-0", "seen-0", "plain-0")]
    assert minded == [True, True, False]


def test_a_pending_pod_with_terms_does_not_slow_down_the_placement_of_others() -> None:
    """Terms matter to others once someone who has them stands somewhere, to those that they select."""
    world = World(
        nodes("a", "b"), pod("wide", affinity=anti_affinity(app="x")), gang("g", 3, labels={"app": "x"})
    )
    members = [record(world, f"g-{n}") for n in range(3)]
    assert not planner_of(world).affinity.dependent_uids(members)
    assert planner_of(world).affinity.dependent_uids([*members, record(world, "wide")]) == {
        *(member.uid for member in members),
        record(world, "wide").uid,
    }
    world.bind("wide", "a")
    assert len(planner_of(world).affinity.dependent_uids(members)) == 3
    assert placed(world, "g-0", "g-1", "g-2") == {"g-0": "b", "g-1": "b", "g-2": "b"}


def test_a_host_port_is_taken_once_on_a_node() -> None:
    world = World(nodes("a", "b"), gang("g", 2, host_port=80)).settle()
    assert sorted(world.plan("g").values()) == ["a", "b"]
    world.start("g").add(gang("h", 1, host_port=81), gang("i", 1, host_port=80)).settle()
    assert [world.verdict("h"), world.verdict("i")] == [Verdict.STARTING, Verdict.WAITING]
    world.delete("g-0").settle()
    assert world.verdict("i") is Verdict.WAITING, "its place is kept for the next member"
    world.pass_time(31)
    assert world.verdict("i") is Verdict.STARTING


def test_a_guard_and_the_guarded_in_one_gang_fit_when_empty() -> None:
    world = World(nodes("a", "b"), pod("guard", "g", cpu="2", affinity=anti_affinity(app="x")))
    world.add([pod(f"w{n}", "g", labels={"app": "x"}) for n in range(3)])
    world.add(gang("g", 0, min_member=4), foreign_pod("s", on="a", cpu="4")).settle()
    assert world.reason("g") is Reason.NO_ROOM
    assert world.delete("s").settle().verdict("g") is Verdict.STARTING


# ---- properties

sizes = st.sampled_from(["250m", "1", "2", "3"])
constraints: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"host_port": 80},
        {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")},
        {"labels": {"app": "x"}},
        {"labels": {"app": "x"}, "affinity": co_location(app="x")},
        {"selector": {"disk": "ssd"}},
    ]
)


@st.composite
def crowded(draw: st.DrawFn) -> World:
    world = World()
    for n in range(draw(st.integers(1, 5))):
        labels = {"disk": "ssd"} if draw(st.booleans()) else {}
        zone = draw(st.sampled_from(["", "a", "b"]))
        cpu = draw(st.sampled_from(["1", "2", "4"]))
        world.add(node(f"n{n}", cpu=cpu, zone=zone, labels=labels, pods=draw(st.sampled_from(["2", "110"]))))
    for n in range(draw(st.integers(0, 4))):
        world.add(pod(f"old{n}", on=f"n{n % len(world.nodes)}", cpu="250m", **draw(constraints)))
    for n in range(draw(st.integers(1, 8))):
        world.add(pod(f"new{n}", cpu=draw(sizes), **draw(constraints)))
    return world


def state(planner: Planner, pods: list[PodRecord]) -> list[object]:
    """Return the free capacity, and the nodes that each pod could go to."""
    affinity = planner.affinity
    where = [(affinity.is_interdependent(pod), affinity.rows_for(pod).tolist()) for pod in pods]
    return [planner.capacity.free.tolist(), *where]


@given(crowded(), st.booleans(), st.booleans())
def test_an_undone_plan_leaves_no_trace(world: World, is_partial: bool, spread: bool) -> None:
    pods = [record(world, name) for name in world.pods if name.startswith("new")]
    candidates = [record(world, name) for name in world.pods]
    planner = planner_of(world)
    before = state(planner, candidates)
    plan = planner.place(pods, is_partial, spread)
    if plan is not None:
        assert len(plan) == len(pods) or is_partial
        planner.unplace(pods, plan)
    assert state(planner, candidates) == before
    could = planner.could_place(Missing(tuple(pods)))
    assert state(planner, candidates) == before
    assert could == (planner.place(pods) is not None)


@given(crowded(), st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=12))
def test_cached_counts_equal_a_new_count(world: World, turns: list[tuple[int, bool]]) -> None:
    pods = [record(world, name) for name in world.pods if name.startswith("new")]
    planner, plans = planner_of(world), dict[int, dict[Uid, str] | None]()
    for turn, looks in turns:
        one = pods[turn % len(pods) :][:1]
        if plan := plans.pop(turn % len(pods), None):
            planner.unplace(one, plan)
        else:
            plans[turn % len(pods)] = planner.place(one)
        fresh = planner.capacity.clone()
        if looks:
            for shape in {each.shape for each in pods[:3]}:
                counts = fresh.counts(shape).tolist()
                assert planner.capacity.counts(shape).tolist() == counts
                assert planner.capacity.total(shape) == sum(counts)


def test_a_large_gang_that_fills_node_after_node_is_counted_on_all_of_them() -> None:
    nodes = [node(f"n{number}", cpu="40") for number in range(4)]
    world = World(nodes, [pod(f"new-{number}", "g") for number in range(120)], pod("other", "h", cpu="2"))
    planner, other = planner_of(world), record(world, "other").shape
    assert planner.capacity.total(other) == sum(planner.capacity.counts(other)) == 80
    assert planner.place([record(world, f"new-{number}") for number in range(120)]) is not None
    assert planner.capacity.total(other) == sum(planner.capacity.counts(other)) == 20


selectors = st.sampled_from([{"app": "x"}, {"app": "y"}, {"tier": "1"}, {"app": "x", "tier": "1"}])
required = st.lists(
    st.builds(PodAffinityTerm, st.sampled_from([HOSTNAME, ZONE]), st.builds(LabelSelector, selectors)),
    max_size=3,
)
counted = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.booleans()), max_size=12)


TWO_TERMS = [PodAffinityTerm(HOSTNAME, LabelSelector({"app": "x"}))] * 2


@given(st.lists(st.tuples(selectors, required, required), min_size=8, max_size=8), counted)
@example([({"app": "x"}, [], TWO_TERMS)] + 7 * [({"app": "x"}, [], [])], [(0, 0, False)])
def test_a_pod_may_go_where_a_comparison_with_each_other_lets_it(
    kinds: list[tuple[dict[str, str], list[PodAffinityTerm], list[PodAffinityTerm]]],
    changes: list[tuple[int, int, bool]],
) -> None:
    """Compare after counting, undoing and removing pods, and in a copy, too."""
    world = World(*(node(f"n{n}", zone="ab"[n // 2]) for n in range(3)), node("n3"))
    for n, (labels, near, far) in enumerate(kinds):
        terms = Affinity(pod_affinity=PodAffinity(near), pod_anti_affinity=PodAffinity(far))
        on = f"n{n % 4}" if n < 4 else ""
        world.add(pod(f"p{n}", on=on, cpu="1m", labels=labels, affinity=terms))
    records = [record(world, f"p{n}") for n in range(8)]
    affinity = planner_of(world).affinity
    points = [(n, n) for n in range(4)]
    for number, row, copies in changes:
        if (number, row) in points:
            points.remove((number, row))
            affinity.add(records[number], f"n{row}", -1)
        else:
            points.append((number, row))
            affinity.add(records[number], f"n{row}", 1)
        affinity = affinity.clone(planner_of(world).capacity.counts) if copies else affinity
        looked = records[(number + row) % 8]
        others = [(records[each], f"n{of_row}") for each, of_row in points]
        admitted = affinity.rows_for(looked)[[planner_of(world).nodes.row_of[f"n{n}"] for n in range(4)]]
        assert admitted.tolist() == [may_go(world, looked, f"n{n}", others) for n in range(4)]


def may_go(world: World, pod_: PodRecord, name: str, others: list[tuple[PodRecord, str]]) -> bool:
    def labels_of(each: str) -> dict[str, str]:
        return world.nodes[each].metadata.labels or {}

    def share(term: Term, other: str) -> bool:
        values = [labels_of(each).get(term.topology_key) for each in (name, other)]
        return values[0] is not None and values[0] == values[1]

    def far(of: PodRecord, other: PodRecord, where: str) -> bool:
        terms = of.shape.constraints.anti_affinity
        return not any(term.matches(other.namespace, other.labels) and share(term, where) for term in terms)

    def near(term: Term) -> bool:
        found = [where for other, where in others if term.matches(other.namespace, other.labels)]
        if not found and term.matches(pod_.namespace, pod_.labels):
            return term.topology_key in labels_of(name)
        return any(share(term, where) for where in found)

    return all(map(near, pod_.shape.constraints.affinity)) and all(
        far(pod_, other, where) and far(other, pod_, where) for other, where in others
    )


@given(crowded(), st.booleans())
def test_placed_pods_fit_and_keep_apart(world: World, spread: bool) -> None:
    pods = [record(world, name) for name in world.pods if name.startswith("new")]
    assert (
        spread
        or planner_of(world).place(pods) is None
        or planner_of(world).place(pods, is_spread=True) is not None
    )
    planner = planner_of(world)
    plan = planner.place(pods, is_partial=True, is_spread=spread) or {}
    assert (planner.capacity.free >= np.minimum(planner_of(world).capacity.free, 0)).all()
    on = {name: [each for each in pods if plan.get(each.uid) == name] for name in world.nodes}
    for name, there in on.items():
        guards = [each for each in there if each.shape.constraints.anti_affinity]
        old = [record(world, each) for each in world.pods if world.pods[each].spec.node_name == name]
        flagged = [each for each in [*there, *old] if each.labels.get("app") == "x"]
        assert not guards or len(flagged) == 1
        assert sum(bool(each.shape.constraints.ports) for each in there) <= 1
        assert all(world.nodes[name].metadata.labels.get("disk") == "ssd"  # type: ignore[union-attr]
                   for each in there if each.shape.constraints.node_labels)  # fmt: skip


@given(crowded())
def test_placement_by_name_agrees_with_planning(world: World) -> None:
    """A pod may be placed by name where the plan put the first pod, and never without capacity."""
    first = record(world, "new0")
    plan = planner_of(world).place([first])
    for name in world.nodes:
        took = planner_of(world).allocate_on_node(first, name)
        assert not (took and plan is None)
        assert took or plan is None or plan[first.uid] != name
    assert not planner_of(world).allocate_on_node(first, "unheard")
