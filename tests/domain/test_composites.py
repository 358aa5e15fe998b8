"""Composites of PodGroups of Kubernetes: their child groups start together, each with its own minimum."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from extender.api.keys import QUEUE
from extender.api.objects.base import Meta
from extender.api.objects.pods import Pod
from extender.api.objects.queues import CompositePodGroup, NativePodGroup, NativePodGroupSpec
from extender.domain.ledger.restore import restore
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Origin
from extender.domain.scheduling.decide import decide
from tests.domain.builders import NAMESPACE, node, pod, queue
from tests.domain.test_dump import is_replayed
from tests.domain.test_sub_groups import racks
from tests.domain.world import World, gang, key
from tests.property_examples import examples
from tests.rows import each_of

RACK, BLOCK = "tier:1", "tier:2"  # as `racks` labels its nodes
BASIC: Mapping[str, Any] = {"basic": {}}


def key_of(composite: str) -> str:
    return f"compositepodgroup/{composite}"


ROOT = key_of("c")


def spec_of(policy: Mapping[str, Any], parent: str, level: str, workload: str, **more: Any) -> Any:
    constraints = {"schedulingConstraints": {"topology": [{"key": level}]}} if level else {}
    named = {"parentCompositePodGroupName": parent} if parent else {}
    reference = {"workloadRef": {"workloadName": workload, "templateName": "t"}}
    spec = {"schedulingPolicy": policy, **constraints, **named, **reference, **more}
    return convert(spec, NativePodGroupSpec)


def meta(name: str, named_queue: str = "") -> Meta:
    return Meta(name, NAMESPACE, uid=f"uid-{name}", annotations={QUEUE: named_queue} if named_queue else None)


def composite(
    name: str = "c",
    least: int | None = 2,
    parent: str = "",
    level: str = "",
    workload: str = "w",
    named_queue: str = "",
    **more: Any,
) -> CompositePodGroup:
    """Return a composite. `least`: minGroupCount of a gang; None: it is basic."""
    policy = BASIC if least is None else {"gang": {"minGroupCount": least}}
    return CompositePodGroup(meta(name, named_queue), spec_of(policy, parent, level, workload, **more))


def pod_group(
    name: str,
    least: int | None = 2,
    pods: int = 2,
    parent: str = "c",
    cpu: str = "1",
    level: str = "",
    workload: str = "w",
    **more: Any,
) -> list[NativePodGroup | Pod]:
    """Return a PodGroup with its pods. `least`: minCount of a gang; None: it is basic."""
    policy = BASIC if least is None else {"gang": {"minCount": least}}
    record = NativePodGroup(meta(name), spec_of(policy, parent, level, workload, **more))
    return [record, *(pod(f"{name}-{n}", name, cpu) for n in range(pods))]


def on_nodes(world: World) -> Counter[str]:
    """Return how many pods of each PodGroup have a node."""
    return Counter(name.rpartition("-")[0] for name, each in world.pods.items() if each.spec.node_name)


def planned(world: World, group: str = ROOT) -> Counter[str]:
    """Return how many pods of each PodGroup start, or run."""
    return on_nodes(world) + Counter(name.rpartition("-")[0] for name in world.plan(group))


@each_of((3, {}), (4, {"a": 2, "b": 2}), (5, {"a": 2, "b": 2}))
def test_all_child_groups_start_or_none(cpu: int, starting: dict[str, int]) -> None:
    world = World(node("n", str(cpu)), composite(), pod_group("a"), pod_group("b")).settle()
    assert planned(world) == starting
    assert world.verdict(ROOT) is (Verdict.STARTING if starting else Verdict.WAITING)
    world.add(node("m", "4")).settle()
    assert planned(world) == {"a": 2, "b": 2}


@each_of("abc", "acb", "bac", "bca", "cab", "cba")
def test_objects_may_come_in_any_order(order: str) -> None:
    objects = {"a": pod_group("a")[:1], "b": pod_group("b"), "c": composite()}
    world = World(node("n", "4"), pod_group("a")[1:]).settle()
    for each in order:
        assert not planned(world, ROOT if ROOT in str(world.decisions.groups) else "a")
        world.add(objects[each]).settle()
    assert planned(world) == {"a": 2, "b": 2}


def test_as_many_child_groups_start_as_are_needed_and_later_ones_start_whole() -> None:
    world = World(node("n", "3"), composite(least=1), pod_group("a", 4, 4), pod_group("b"))
    world.start(ROOT)
    assert planned(world) == {"b": 2}
    for cpu, running in ((2, {"b": 2}), (3, {"a": 4, "b": 2})):
        world.add(node("m", str(cpu))).settle()
        assert planned(world) == running


def test_no_pod_of_a_later_child_group_is_bound_before_its_minimum_is() -> None:
    world = World(node("n", "2"), composite(least=1), pod_group("b")).start(ROOT)
    world.add(node("m", "4"), pod_group("a", 3, 4)).settle()
    for name, bound in (("a-0", 0), ("a-1", 0), ("a-2", 3), ("a-3", 4)):
        world.scheduler_takes(name)
        assert sum(bool(world.pods[f"a-{n}"].spec.node_name) for n in range(4)) == bound


def test_the_child_group_that_fits_starts() -> None:
    """The first one requests a resource that no node has."""
    world = World(node("n", "2"), composite(least=1), pod_group("a")[:1], pod_group("b"))
    world.add([pod(f"a-{n}", "a", more={"example.com/gpu": "1"}) for n in range(2)]).settle()
    assert planned(world) == {"b": 2}


def replicas(level: str = "") -> list[Any]:
    """Return two composites with a leader and two workers each, of which one is enough."""
    parts = [composite(name, parent="c", level=level) for name in "xy"]
    pods = [
        pod_group(f"{name}-{part}", n, n, parent=name) for name in "xy" for part, n in (("l", 1), ("w", 2))
    ]
    return [composite(least=1), *parts, *pods]


def test_each_level_has_its_minimum() -> None:
    world = World(node("n", "2"), replicas()).settle()
    assert not planned(world)
    world.add(node("n", "4")).start(ROOT)
    assert planned(world) == {"x-l": 1, "x-w": 2}
    world.add(node("n", "5")).settle()
    assert not world.plan(ROOT)
    world.add(node("n", "6")).settle()
    assert planned(world) == {"x-l": 1, "x-w": 2, "y-l": 1, "y-w": 2}


def test_child_groups_of_a_basic_composite_start_each_by_itself() -> None:
    world = World(node("n", "3"), composite(least=None), pod_group("a"), pod_group("b")).settle()
    assert world.verdicts("a", "b") == [Verdict.STARTING, Verdict.WAITING]


def test_a_basic_child_group_counts_with_one_pod_and_a_basic_composite_with_one_group() -> None:
    parts = (
        composite("x", None, parent="c"),
        pod_group("a", None, 3, parent="x"),
        pod_group("b", 3, 3, parent="x"),
    )
    world = World(node("n", "3"), composite(), *parts, pod_group("d")).start(ROOT)
    assert planned(world) == {"a": 1, "d": 2}
    world.add(node("n", "4")).settle()
    assert planned(world) == {"a": 2, "d": 2}


@each_of((RACK, {"a": 3, "b": 3}, False), (RACK, {"a": 3, "b": 4}, True), ("", {"a": 2, "b": 2}, True))
def test_all_below_a_composite_share_its_domain(level: str, sizes: dict[str, Any], starts: bool) -> None:
    groups = pod_group("d", cpu="4"), pod_group("e", cpu="4")
    world = World(*racks(**sizes), composite(level=level), *groups).settle()
    assert bool(planned(world)) is starts
    if level:
        assert {node[0] for node in world.plan(ROOT).values()} <= {"b"}


def test_domains_are_nested() -> None:
    """Each replica in a block, and its workers in a rack there: only block u has a rack for two of them."""
    blocks = {"t": {"a": 1, "b": 1, "d": 1}, "u": {"e": 2, "f": 1}}
    parts = [composite("x", parent="c", level=BLOCK), pod_group("x-l", 1, 1, parent="x", cpu="4")]
    workers = pod_group("x-w", parent="x", cpu="4", level=RACK)
    world = World(*racks(blocks), composite(least=1), *parts, workers).settle()
    assert world.plan(ROOT) == {"x-l-0": "f0", "x-w-0": "e0", "x-w-1": "e1"}


def test_a_basic_composite_with_a_domain_starts_its_child_groups_there_one_by_one() -> None:
    parts = composite(least=None, level=RACK), pod_group("d", cpu="4"), pod_group("e", cpu="4")
    world = World(*racks(a=1, b=3), *parts).start(ROOT)
    assert planned(world).total() == 2
    world.add(node("b3", "4", labels={RACK: "b", BLOCK: "x"})).settle()
    assert {each[0] for each in world.plan(ROOT).values()} == {"b"}


@each_of(({"single": {}}, 2), ({"all": {}}, 4))
def test_the_disruption_mode_says_whether_spare_pods_are_evicted(mode: Any, evicted: int) -> None:
    world = World(node("n", cpu="4"), queue("a"), queue("b"))
    world.add(composite(least=1, named_queue="b", disruptionMode=mode), pod_group("d", 2, 4)).start(ROOT)
    world.settle().scheduler_takes(*world.plan(ROOT)).run(*world.pods).settle()
    world.add(gang("x", 2, queue="a")).settle()
    assert len(world.decisions.evictions) == evicted


def deep(levels: int) -> list[Any]:
    """Return a PodGroup below composites c, c1 and so on."""
    names = ["c", *(f"c{n}" for n in range(1, levels))]
    above = [composite(name, 1, parent=parent) for name, parent in zip(names, ["", *names], strict=False)]
    return [*above, *pod_group("a", parent=names[-1])]


@each_of(
    (pod_group("a"), "a", "CompositePodGroup c, the parent of PodGroup a, does not exist"),
    (
        [composite(parent="x"), *pod_group("a")],
        ROOT,
        "CompositePodGroup x, the parent of CompositePodGroup c, does not exist",
    ),
    ([composite(parent="c"), *pod_group("a")], ROOT, "CompositePodGroup c is below itself"),
    (
        [composite(parent="x"), composite("x", parent="c"), *pod_group("a")],
        key_of("x"),
        "CompositePodGroup x is below itself",
    ),
    (deep(4), ROOT, "its groups are nested deeper than 4 levels, that of PodGroups included"),
    (deep(1_200), key_of("c1197"), "its groups are nested deeper than 4 levels, that of PodGroups included"),
    ([composite(), *pod_group("a", -1)], ROOT, "spec.minMember is -1; it must be 0 or more"),
    (
        [composite(), *pod_group("a"), *pod_group("b", workload="v")],
        ROOT,
        "its groups belong to different Workloads: v and w",
    ),
    (
        [
            composite(least=1),
            *(each for n in range(1_000) for each in pod_group(f"a{n}", pods=0)),
            *pod_group("a"),
        ],
        ROOT,
        "its tree has more than 1,000 groups",
    ),
)
def test_an_invalid_tree_is_held_back_with_the_reason_on_its_top(
    objects: list[Any], group: str, fault: str
) -> None:
    world = World(node("n", "8"), objects, gang("other", 2))
    world.cycles = 20  # in each, a portion of the groups moves
    world.settle()
    assert (world.reason(group), world.detail(group)) == (Reason.INVALID_SPEC, fault)
    assert world.verdict("other") is Verdict.STARTING
    assert all(name.startswith("other") for name in planned(world, group))


def test_a_tree_of_three_composites_starts() -> None:
    assert planned(World(node("n", "2"), deep(3)).settle()) == {"a": 2}


@each_of(
    (composite(least=3), "4 of 4 members exist, missing 1 child groups of CompositePodGroup c"),
    (pod_group("b", 3, 2), "4 of 5 members exist, missing 1 of PodGroup b"),
)
def test_a_composite_waits_for_missing_child_groups_and_pods(change: Any, detail: str) -> None:
    world = World(node("n", "8"), composite(), pod_group("a"), pod_group("b"), change).settle()
    assert (world.reason(ROOT), world.detail(ROOT)) == (Reason.NOT_ENOUGH_MEMBERS, detail)


def test_lost_pods_are_replaced_one_by_one() -> None:
    world = World(node("n", "4"), composite(), pod_group("a"), pod_group("b")).start(ROOT)
    world.delete("a-0").settle().add(pod("a-9", "a")).settle()
    assert world.plan(ROOT).keys() == {"a-9"}


def test_the_rest_runs_on_without_its_composite_and_other_pods_wait() -> None:
    world = World(node("n", "5"), composite(), pod_group("a"), pod_group("b")).start(ROOT)
    world.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/c"), Origin.COMPOSITE)
    world.settle().add(pod("a-9", "a")).settle()
    assert world.verdict(ROOT) is Verdict.RUNNING
    assert (world.reason("a"), world.detail("a")) == (
        Reason.INVALID_SPEC,
        "CompositePodGroup c, the parent of PodGroup a, does not exist",
    )


def test_a_pod_group_that_leaves_its_composite_starts_by_itself() -> None:
    world = World(node("n", "2"), composite(), pod_group("a"), pod_group("b")).settle()
    assert not planned(world)
    free, *_ = pod_group("a", parent="")
    world.add(free).settle()
    assert world.plan("a").keys() == {"a-0", "a-1"}


def test_running_pods_count_after_a_restart() -> None:
    world = World(node("n", "4"), composite(), pod_group("a"), pod_group("b")).start(ROOT)
    again = World(*world.nodes.values(), *world.pods.values()).settle()
    again.add(composite(), pod_group("a")[:1], pod_group("b")[:1]).settle()
    assert again.verdict(ROOT) is Verdict.RUNNING
    assert again.delete("a-0").settle().add(pod("a-9", "a")).settle().plan(ROOT).keys() == {"a-9"}


def test_a_dump_and_a_restored_ledger_have_the_tree() -> None:
    world = World(*racks(a=2, b=4), replicas(level=RACK))
    decisions = decide(world.ledger.snapshot())
    assert decisions.groups[key(ROOT)].plan
    assert is_replayed(decisions)
    again = World()
    restore(again.ledger, world.ledger.snapshot())
    again.settle()
    assert again.decision(ROOT).plan.keys() == decisions.groups[key(ROOT)].plan.keys()


def test_a_pod_group_and_a_volcano_group_may_have_the_name_of_a_composite() -> None:
    world = World(node("n", "6"), composite(), pod_group("c"), pod_group("b"), gang("d", 2))
    world.add(composite("d", 1)).settle()
    assert planned(world) == {"b": 2, "c": 2}
    assert world.plan("d").keys() == {"d-0", "d-1"}


# A tree is its minimum, and its children or the number of pods of a PodGroup.
_GROUPS = st.tuples(st.integers(1, 3), st.integers(0, 4))
_LEVEL = st.tuples(st.integers(1, 3), st.lists(_GROUPS, min_size=1, max_size=3))
TREES = st.tuples(st.integers(1, 3), st.lists(_LEVEL | _GROUPS, min_size=1, max_size=3))


def objects_of(tree: Any, name: str = "c", parent: str = "") -> list[Any]:
    least, below = tree
    if isinstance(below, int):
        return pod_group(name, least, below, parent=parent)
    children = [objects_of(child, f"{name}{n}", name) for n, child in enumerate(below)]
    return [composite(name, least, parent), *(each for child in children for each in child)]


def is_whole(tree: Any, running: Mapping[str, int], name: str = "c") -> bool:
    """Return whether a tree has its minimum, and so has each group in it of which any pod runs."""
    least, below = tree
    if isinstance(below, int):
        return bool(running.get(name, 0) >= least)
    parts = {f"{name}{n}": child for n, child in enumerate(below)}
    begun = {part for part in parts if any(each.startswith(part) for each in running)}
    return len(begun) >= least and all(is_whole(parts[part], running, part) for part in begun)


@settings(max_examples=examples(300), deadline=None)
@given(TREES, st.integers(1, 12), st.integers(1, 20), st.randoms())
def test_no_group_at_any_level_runs_in_part(tree: Any, cpu: int, portion: int, random: Any) -> None:
    objects = objects_of(tree)
    random.shuffle(objects)
    world = World(node("n", str(cpu)), objects)
    world.ledger.intake.composites.portion_size, world.cycles = portion, 100
    world.settle()
    for size in (cpu, cpu + 3, cpu + 6):
        world.add(node("n", str(size))).settle()
        for name in random.sample(plan := sorted(world.plan(ROOT)), len(plan)):
            world.scheduler_takes(name)
            running = on_nodes(world)
            assert not running or is_whole(tree, running)
        world.settle()
    assert world.verdict(ROOT) is not Verdict.STARTING
