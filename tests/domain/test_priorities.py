"""The priority of a group: its class counts only as far as its pods were admitted with it."""

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import PriorityClass
from tests.domain.builders import group, pod
from tests.domain.world import World, gang, key, nodes, single
from tests.rows import each_of

SYSTEM = PriorityClass(Meta(name="system-node-critical"), 2_000_001_000)
HIGH = PriorityClass(Meta(name="high"), 100)
LOW = PriorityClass(Meta(name="low"), -5)
DEFAULT_CLASS = PriorityClass(Meta(name="usual"), 3, global_default=True)


def for_groups(priority: PriorityClass) -> PriorityClass:
    flagged = Meta(name=priority.metadata.name, annotations={keys.FOR_POD_GROUPS: "true"})
    return PriorityClass(flagged, priority.value, priority.global_default)


def priority(world: World, name: str = "g") -> int:
    return world.ledger.snapshot().groups[key(name)].priority


@each_of(
    ("", [], 0),
    ("", [0, 7], 7),
    ("high", [], 0),
    ("high", [0], 0),
    ("high", [0, 100], 100),
    ("high", [2_000_001_000], 100),
    ("low", [0], -5),
    ("low", [-10], -10),
    ("absent", [], 0),
    ("absent", [7], 0),
    ("system-node-critical", [], 0),
    ("system-node-critical", [0], 0),
    ("system-node-critical", [100], 100),
    ("system-node-critical", [2_000_001_000], 2_000_001_000),
)
def test_a_class_counts_as_far_as_the_pods_have_it(named: str, pods: list[int], counts: int) -> None:
    members = [pod(f"g-{n}", "g", priority=each) for n, each in enumerate(pods)]
    assert priority(World(SYSTEM, HIGH, LOW, group("g", 1, priority_class=named), members)) == counts


@each_of(("high", [], 100), ("high", [0], 100), ("system-node-critical", [0], 0))
def test_an_administrator_may_open_a_class_to_groups(named: str, pods: list[int], counts: int) -> None:
    members = [pod(f"g-{n}", "g", priority=each) for n, each in enumerate(pods)]
    classes = [for_groups(SYSTEM), for_groups(HIGH)]
    assert priority(World(classes, group("g", 1, priority_class=named), members)) == counts


def test_a_group_without_a_class_has_the_priority_of_its_first_pods() -> None:
    world = World(HIGH, group("g", 1, priority_class="high"))
    assert priority(world) == 0
    assert priority(world.add(pod("g-0", "g", priority=100))) == 100


def test_a_class_that_loses_globaldefault_is_the_default_no_more() -> None:
    world = World(DEFAULT_CLASS, group("g", 1))
    assert priority(world) == 3
    assert priority(world.add(PriorityClass(Meta(name="usual"), 3))) == 0
    assert priority(world.add(DEFAULT_CLASS)) == 3
    world.ledger.intake.drop_priority_class("usual")
    assert priority(world) == 0


def test_the_lower_of_two_default_classes_counts() -> None:
    world = World(DEFAULT_CLASS, PriorityClass(Meta(name="lower"), 1, global_default=True), group("g", 1))
    assert priority(world) == 1


def test_a_class_that_says_nothing_new_costs_no_decision() -> None:
    world = World(DEFAULT_CLASS, group("g", 1)).settle()
    before = world.ledger.version
    world.add(DEFAULT_CLASS)
    world.ledger.intake.drop_priority_class("none")
    assert world.ledger.version == before


def test_a_group_with_a_system_class_overtakes_no_group() -> None:
    world = World(
        nodes("a", cpu="1"),
        SYSTEM,
        gang("first", 1, created="2026-01-01"),
        gang("second", 1, priority_class="system-node-critical", created="2026-01-02"),
    ).settle()
    assert world.plan("first")
    assert not world.plan("second")


def test_pods_on_their_own_have_their_own() -> None:
    world = World(HIGH, DEFAULT_CLASS, pod("p", priority=100))
    assert world.ledger.snapshot().groups[key(single("p"))].priority == 100
