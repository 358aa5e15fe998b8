"""State of a queue and its effect on groups, and the queue that a pod belongs to."""

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace, PriorityClass
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.tree import in_tree_order
from tests.domain.builders import NAMESPACE, group, pod, queue
from tests.domain.world import World, gang, key, nodes, single
from tests.rows import each_of

RUNS, WAITS = Verdict.STARTING, Verdict.WAITING


def test_decisions_report_the_state_of_a_queue() -> None:
    world = World(nodes("a"), queue("q", spec_state="Closed")).settle()
    assert world.queue("q").state == "Closed"
    assert world.add(gang("g", 1, queue="q")).settle().queue("q").state == "Closing"


def test_a_group_that_comes_after_its_queue_closed_waits() -> None:
    world = World(nodes("a"), queue("q", spec_state="Closed"), gang("g", 1, queue="q")).settle()
    assert (world.verdict("g"), world.reason("g")) == (WAITS, Reason.QUEUE_NOT_OPEN)
    assert "Closing" in world.detail("g")
    assert world.add(queue("q", spec_state="Open")).settle().verdict("g") is RUNS


@each_of(True, False)
def test_a_group_from_before_its_queue_was_closed_is_scheduled(settled: bool) -> None:
    world = World(nodes("a"), queue("q"), gang("g", 6, queue="q"))
    if settled:
        world.settle()
    world.add(queue("q", spec_state="Closed")).settle()
    assert world.queue("q").state == "Closing"
    assert world.add(nodes("b")).settle().verdict("g") is RUNS


def test_a_group_that_moves_to_a_closed_queue_comes_too_late() -> None:
    """It was in time for the queue that it left, and is so again when it comes back."""
    world = World(
        nodes("a"), queue("q"), queue("shut", spec_state="Closed"), gang("g", 6, queue="q")
    ).settle()
    world.add(queue("q", spec_state="Closed"), group("g", 6, queue="shut")).settle()
    assert world.reason("g") is Reason.QUEUE_NOT_OPEN
    assert world.add(group("g", 6, queue="q"), nodes("b")).settle().verdict("g") is RUNS


def test_a_closing_queue_keeps_its_deserved_share() -> None:
    world = World(
        nodes("a"), queue("q"), queue("r"), gang("g", 4, queue="q"), gang("h", 4, queue="r")
    ).settle()
    before = world.queue("q").deserved
    assert before["cpu"] == 2000
    assert world.add(queue("q", spec_state="Closed")).settle().queue("q").deserved == before


def test_a_pod_that_came_before_its_podgroup_gives_the_group_no_right_to_a_closed_queue() -> None:
    world = World(nodes("a"), queue("q", spec_state="Closed"), pod("g-0", "g")).settle()
    assert world.reason("g") is Reason.GROUP_NOT_FOUND
    assert world.add(group("g", 1, queue="q")).settle().reason("g") is Reason.QUEUE_NOT_OPEN


@each_of(
    (group("g", 1, "q", queue_uid="uid-q"), True),
    (group("g", 1, "q", queue_uid="uid-r"), False),
    (group("g", 1, "q", admitted=True), True),
    (group("g", 1, "q", stood_whole=True), True),
    (group("g", 1, "q", phase="Inqueue"), False),
    (group("g", 1, "q", phase="Running", last_reason="Running"), False),
    (group("g", 1, "q", phase="Pending", last_reason=Reason.NO_ROOM), False),
)
def test_after_a_restart_only_a_record_proves_that_a_group_came_in_time(
    record: object, came_in_time: bool
) -> None:
    """Users may write its phase and the reason, and records that no admission policy protects."""
    queues = [queue("q", spec_state="Closed"), queue("r")]
    for trusted in (True, False):
        world = World(nodes("a"), queues, record, pod("g-0", "g"), records_trusted=trusted).settle()
        assert (world.verdict("g") is RUNS) is (came_in_time and trusted)
        assert world.reason("g") is (None if came_in_time and trusted else Reason.QUEUE_NOT_OPEN)


def test_a_new_podgroup_of_the_same_name_is_another_group() -> None:
    world = World(nodes("a"), queue("q"), gang("g", 5, queue="q")).settle()
    world.add(queue("q", spec_state="Closed"), group("g", 5, "q", uid="another")).settle()
    assert world.reason("g") is Reason.QUEUE_NOT_OPEN


# ---- which queue


def test_the_default_queue_is_assumed() -> None:
    world = World(nodes("a"), gang("g", 1)).settle()
    assert world.verdict("g") is RUNS
    assert world.queue(keys.DEFAULT_QUEUE).state == "Open"


def test_a_default_queue_created_by_a_user_counts() -> None:
    world = World(nodes("a"), queue(keys.DEFAULT_QUEUE, spec_state="Closed"), gang("g", 1)).settle()
    assert world.reason("g") is Reason.QUEUE_NOT_OPEN


def namespace(queue_name: str) -> Namespace:
    return Namespace(Meta(name=NAMESPACE, annotations={keys.QUEUE: queue_name}))


def test_a_namespace_names_the_queue_of_groups_that_name_none() -> None:
    world = World(nodes("a"), [queue(name) for name in "pqr"], namespace("p"))
    world.add(gang("g", 1), gang("d", 1, queue="default"), gang("h", 1, queue="q"), pod("s"))
    world.add(pod("t", queue="r")).settle()
    queues = {name: world.decision(name).queue for name in ("g", "d", "h", single("s"), single("t"))}
    assert queues == {"g": "p", "d": "p", "h": "q", single("s"): "p", single("t"): "r"}


def test_a_podgroup_decides_over_its_pods() -> None:
    world = World(nodes("a"), queue("p"), queue("q"), group("g", 1, "p"), pod("g-0", "g", queue="q")).settle()
    assert world.decision("g").queue == "p"


def test_a_queue_that_goes_leaves_its_groups_waiting() -> None:
    world = World(nodes("a"), queue("q"), gang("g", 5, queue="q")).settle()
    world.ledger.intake.drop_queue("q")
    assert world.settle().reason("g") is Reason.QUEUE_NOT_FOUND


def test_a_pod_of_another_scheduler_is_not_ours() -> None:
    world = World(nodes("a"), pod("p", scheduler=keys.DEFAULT_SCHEDULER)).settle()
    assert not world.decisions.groups


# ---- order inside a queue


def test_a_priority_class_below_the_default_one_counts_for_groups_that_name_it() -> None:
    low = PriorityClass(Meta(name="low"), -5)
    world = World(nodes("a", cpu="1"), PriorityClass(Meta(name="base"), 3, global_default=True), low)
    world.add(
        gang("low", 1, priority_class="low", priority=3), gang("plain", 1, priority=3, created="2026-01-09")
    )
    assert world.settle().verdict("plain") is RUNS
    assert world.verdict("low") is WAITS


def test_pods_on_their_own_go_by_their_own_priority() -> None:
    world = World(nodes("a", cpu="1"), pod("a", priority=1), pod("b", priority=2)).settle()
    assert [world.verdict(single(name)) for name in "ab"] == [WAITS, RUNS]


def test_an_unparsable_queue_says_so() -> None:
    broken = queue("q", capability={"cpu": "four"})
    world = World(nodes("a"), broken, gang("g", 1, queue="q"), gang("h", 1)).settle()
    assert world.reason("g") is Reason.INVALID_SPEC
    assert "'four'" in world.detail("g")
    assert world.verdict("h") is RUNS
    assert (
        world.add(replace(broken, spec=replace(broken.spec, capability={"cpu": "4"}))).settle().verdict("g")
        is RUNS
    )


@each_of(
    ({}, []),
    ({"b": "", "a": "", "c": "a"}, [("a", 0), ("c", 1), ("b", 0)]),
    ({"a": "nowhere"}, [("a", 0)]),
    ({"a": "b", "b": "a", "c": ""}, [("c", 0)]),
)
def test_queues_come_below_their_parents(parents: dict[str, str], order: list[tuple[str, int]]) -> None:
    assert list(in_tree_order(parents)) == order


def test_a_cycle_evaluates_only_changed_queues_and_their_ancestors() -> None:
    world = World(nodes("n"), queue("p"), queue("a", parent="p"), queue("b", parent="p"), queue("c"))
    world.add(gang("one", 1, queue="b"), gang("two", 1, queue="c")).settle()
    views, before = world.ledger.snapshot().queues, world.decisions.queues
    world.add(gang("new", 1, queue="a")).settle()
    seen, now = world.ledger.snapshot().queues, world.decisions.queues
    assert [name for name in seen if seen[name] is not views[name]] == ["a"]
    assert {name for name in now if now[name].requested != before[name].requested} == {"a", "p"}
    assert {name for name in now if now[name].counts != before[name].counts} == {"a", "p"}
    assert now["b"] is before["b"]


def test_the_groups_of_a_queue_are_found_without_looking_at_all() -> None:
    """Find groups wherever they are sent, before they have been through_proxy there and after."""
    world = World(*map(queue, "abc"), *(gang(name, 1, queue="a") for name in "gh"))  # no capacity: both wait
    registry = world.ledger.registry

    def found() -> dict[str, set[str]]:
        return {name: {each.partition("/")[2] for each in registry._groups_of({name})} for name in "abc"}

    for settle in (lambda: None, world.settle):
        settle()
        assert found() == {"a": {"g", "h"}, "b": set(), "c": set()}
    world.add(group("g", 1, queue="b"))
    for settle in (lambda: None, world.settle):
        settle()
        assert found() == {"a": {"h"}, "b": {"g"}, "c": set()}
    world.add(queue("b", weight=7))
    assert found()["b"] == {"g"}
    world.ledger.intake.drop_group(key("g"))
    world.delete("g-0").settle()
    assert found() == {"a": {"h"}, "b": set(), "c": set()}
    assert "b" not in registry._groups_by_queue
