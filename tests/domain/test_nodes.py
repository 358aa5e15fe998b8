"""Nodes that suit a shape: by index and from table to table the same as by a comparison with each node."""

import gc
import tracemalloc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Requirement,
    Toleration,
)
from extender.domain.model.records import Uid
from extender.domain.model.selectors import parts_of
from extender.domain.model.shapes import NodeTest, Shape, Shapes
from extender.domain.snapshot.nodes import NodeIndex, NodeRecord, NodeTable
from tests.domain.builders import foreign_pod, node, on_nodes, pod
from tests.domain.world import World, gang, key, single
from tests.property_examples import examples
from tests.rows import each_of

KEYS, VALUES, NAMES = ("disk", "cores", "metadata.name"), ("ssd", "8", "16", "", "9" * 30), ("n0", "n1")

labels_ = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
taints_ = st.lists(
    st.builds(
        Taint, st.sampled_from(["a", "b"]), st.just(""), st.sampled_from(["NoSchedule", "PreferNoSchedule"])
    ),
    max_size=2,
).map(tuple)
nodes_ = st.none() | st.tuples(labels_, taints_)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "strange"])
values_ = st.none() | st.lists(st.sampled_from([*VALUES, *NAMES]), max_size=3)
requirements = st.lists(st.builds(Requirement, st.sampled_from(KEYS), operators, values_), max_size=2)
terms_ = st.lists(
    st.builds(NodeSelectorTerm, st.none() | requirements, st.none() | requirements), min_size=1, max_size=3
)
specs = st.builds(
    PodSpec,
    node_selector=st.none() | labels_,
    affinity=st.none() | terms_.map(lambda terms: Affinity(NodeAffinity(NodeSelector(terms)))),
    tolerations=st.none()
    | st.lists(st.builds(Toleration, st.sampled_from(["a", ""]), st.just("Exists")), max_size=1),
)
parts = st.sampled_from([None, *parts_of([{"disk": "ssd"}, {"cores": "8"}, {}])])


@settings(max_examples=examples(40))
@given(
    st.lists(nodes_, min_size=1, max_size=6),
    st.lists(st.tuples(specs, parts), min_size=1, max_size=4),
    st.lists(st.dictionaries(st.integers(0, 7), nodes_, max_size=3), max_size=4),
    st.data(),
)
def test_the_index_of_nodes_equals_a_check_of_each_node(
    given_: list[Any], wishes: list[Any], changes: list[dict[int, Any]], data: st.DataObject
) -> None:
    shapes = [_shape(*wish) for wish in wishes]
    now = [_record(row, each) for row, each in enumerate(given_)]
    table = NodeTable(now)
    for changed in ({}, *changes):
        now += [None] * (max(changed, default=0) + 1 - len(now))
        for row, each in changed.items():
            now[row] = _record(row, each)
        before, then = table, table.nodes
        table = table.with_changes(now, changed)
        for shape in shapes:
            if data.draw(st.booleans()):  # resources without requests are updated later
                assert table.suitable_rows(shape).tolist() == _one_by_one(shape, now)
                assert before.suitable_rows(shape).tolist() == _one_by_one(shape, then)
        for label in KEYS:
            codes = table.domains(label).tolist()
            assert [code >= 0 for code in codes] == [
                each is not None and label in each.labels for each in now
            ]
            labels = [each.labels[label] for each in now if each is not None and label in each.labels]
            assert len({*zip(labels, filter(_is_code, codes), strict=True)}) == len({*labels})


def _is_code(code: int) -> bool:
    return code >= 0


def _shape(spec: PodSpec, part: Any) -> Shape:
    shape = Shapes().shape_of(spec, "team")
    return shape if part is None else shape.on_part(part)


def _record(row: int, given_: Any) -> NodeRecord | None:
    return None if given_ is None else NodeRecord(f"n{row}", given_[0], given_[1], {})


def _one_by_one(shape: Shape, nodes: Any) -> list[bool]:
    return [each is not None and shape.suits(each.name, each.labels, each.taints) for each in nodes]


def looks_at_nodes(work: Callable[[], object]) -> int:
    """Return the number of comparisons of a node with a shape."""
    with patch.object(NodeTest, "__call__", autospec=True, side_effect=NodeTest.__call__) as test:
        work()
    return test.call_count


def test_a_node_that_changes_costs_each_selector_one_look() -> None:
    """Remember any number of selectors: none is forgotten because there are too many."""
    pods = [pod(f"p{n}", selector={"own": f"{n}"}) for n in range(700)]
    world = World(*(node(f"n{n}") for n in range(40)), pods)
    assert looks_at_nodes(world.settle) == 0
    world.add(node("n0", labels={"own": "7"}))
    assert looks_at_nodes(world.settle) <= 2 * len(pods)
    assert world.plan(single("p7")) == {"p7": "n0"}


def test_a_heartbeat_costs_no_selector_anything() -> None:
    world = World(
        *(node(f"n{n}") for n in range(3)), [pod(f"p{n}", selector={"own": f"{n}"}) for n in range(9)]
    )
    world.settle().add(node("n0", cpu="8"))
    assert looks_at_nodes(world.settle) == 0


def test_a_selector_of_many_names_is_looked_up_not_compared() -> None:
    names = [f"n{n}" for n in range(0, 900, 9)]
    world = World(*(node(f"n{n}") for n in range(40)))
    world.add(pod("p", affinity=on_nodes("kubernetes.io/hostname", "In", *names)))
    assert looks_at_nodes(world.settle) == 0
    assert world.plan(single("p"))["p"] in names


def test_labels_that_no_node_has_are_not_cached() -> None:
    """Pods may name any key."""
    test = Shapes().shape_of(pod("p", affinity=on_nodes("made-up", "Gt", "3")).spec, "team").suits
    index = NodeIndex([])
    assert not index.mask(test).any()
    assert index._numbers == {}


def test_shapes_of_deleted_pods_are_forgotten() -> None:
    world = World(node("n0"), [pod(f"p{n}", selector={"own": f"{n}"}, cpu=f"{n + 1}m") for n in range(20)])
    world.settle()
    assert len(world.ledger.pods.shapes) == 20
    world.delete(*(f"p{n}" for n in range(20))).settle()
    world.add(node("n1")).settle()  # what rounds remember to save work goes with the nodes
    gc.collect()
    assert len(world.ledger.pods.shapes) == 0


def names_in(root: object, prefix: str) -> set[str]:
    """Return all texts with a prefix that can be reached from an object."""
    found, seen, ahead = set[str](), set[int](), [root]
    while ahead:
        each = ahead.pop()
        if isinstance(each, str):
            found |= {each} if each.startswith(prefix) else set()
        elif id(each) not in seen and not isinstance(each, type | ModuleType | FunctionType):
            seen.add(id(each))
            fields = each.__struct_fields__ if isinstance(each, msgspec.Struct) else ()
            ahead += [getattr(each, field) for field in fields]
            ahead += [*gc.get_referents(each), *(each if isinstance(each, dict) else ())]
    return found


@each_of(False, True)
def test_names_of_deleted_nodes_are_forgotten(through_proxy: bool) -> None:
    """Forget the names in pods that have waited since, and were planned there once, too."""
    world = World(node("stays"), gang("waits", 3, cpu="4"), through_proxy=through_proxy)
    for number in range(12):
        name, own = f"gone-{number}", {"own": f"{number}"}
        world.add(node(name, labels=own), gang(f"g{number}", 2, selector=own)).settle()
        if number % 2:
            world.start(f"g{number}")
        elif number % 4:
            world.refuse(f"g{number}-0")
        world.pass_time(2.0)
        world.drop_node(name)
        if number % 2 or number % 3:
            world.delete(f"g{number}-0", f"g{number}-1")
            world.ledger.intake.drop_group(key(f"g{number}"))
    world.add(node("later")).pass_time(400.0)
    gc.collect()
    assert names_in(world.ledger, "gone-") == set()


def test_a_large_affinity_is_stored_once_and_freed() -> None:
    world, values = World(node("n0")), [f"{n:048}" for n in range(300)]
    affinities = [on_nodes("own", "In", f"{n}", *values) for n in range(150)]
    texts = [msgspec.json.encode(pod(f"p{n}", affinity=each)) for n, each in enumerate(affinities)]
    size = sum(map(len, texts))
    world.settle()
    tracemalloc.start()
    try:
        for text in texts:
            world.ledger.pods.set_pod(msgspec.json.decode(text, type=Pod))
        reserved = traced(world.settle)
        for number in range(150):
            world.ledger.pods.drop(Uid(f"uid-p{number}"))
        for number in range(2):  # the last rounds are remembered, and a few shapes
            world.settle().add(foreign_pod(f"s{number}", on="n0", cpu="10m"))
        left = traced(world.settle)
    finally:
        tracemalloc.stop()
    assert size > 150 * 15_000
    assert reserved < 2 * size
    assert left < size / 4


def traced(work: Callable[[], object]) -> int:
    work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
