"""A group that has started keeps its queue: ceilings cannot be walked around by sending it elsewhere."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.queues import LocalQueue, LocalQueueSpec
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.world import World, gang, key
from tests.property_examples import examples
from tests.rows import each_of

QUEUES = [queue("a", capability={"cpu": "2"}), queue("b", capability={"cpu": "1"})]
BASE = [node("n", cpu="20"), *QUEUES]


def door(to: str) -> LocalQueue:
    return LocalQueue(Meta(name="door", namespace=NAMESPACE, uid="uid-door"), LocalQueueSpec(to))


def held(world: World) -> dict[str, int]:
    """Return the millicores that each queue holds."""
    return {name: world.queue(name).allocated.get("cpu", 0) for name in ("a", "b")}


def annotated(world: World, name: str, **annotations: str | None) -> None:
    """Set these annotations on a pod, or remove them (None)."""
    before = world.pods[name]
    keys_ = {"group": keys.GROUP_ANNOTATION, "queue": keys.QUEUE}
    notes: dict[str, str | None] = dict(before.metadata.annotations or {})
    notes |= {keys_[which]: value for which, value in annotations.items()}
    meta = replace(before.metadata, annotations={k: v for k, v in notes.items() if v is not None})
    world.add(replace(before, metadata=meta))


def sent(world: World) -> None:
    world.add(group("g", 2, "b"))


def made_again(world: World) -> None:
    world.ledger.intake.drop_group(key("g"))
    world.settle().add(group("g", 2, "b", uid="another"))


def through_the_door(world: World) -> None:
    new_group = group("g", 2)
    world.add(
        door("b"), replace(new_group, metadata=replace(new_group.metadata, labels={keys.LOCAL_QUEUE: "door"}))
    )


def renamed(world: World) -> None:
    world.add(group("other", 1, "b"))
    for name in ("g-0", "g-1"):
        annotated(world, name, group="other")


def disowned(world: World) -> None:
    """Update the pods to name no group any more, but a queue."""
    for name in ("g-0", "g-1"):
        annotated(world, name, group=None, queue="b")


MOVES = [sent, made_again, through_the_door, renamed, disowned]


@each_of(*MOVES)
def test_a_running_group_counts_in_the_queue_where_it_started(move: Callable[[World], None]) -> None:
    world = World(BASE, gang("g", 2, queue="a")).start("g")
    move(world)
    world.add(gang("next", 1, queue="a"), gang("small", 1, queue="b")).settle()
    assert held(world) == {"a": 2000, "b": 0}
    assert (world.reason("next"), world.verdict("small")) == (Reason.QUEUE_CEILING, Verdict.STARTING)


@each_of(*MOVES[:3])  # the API server refuses that a pod with a note changes its group
def test_a_restarted_muster_counts_a_moved_group_in_its_first_queue(move: Callable[[World], None]) -> None:
    world = World(BASE, gang("g", 2, queue="a")).start("g")
    pods = list(world.pods.values())
    later = World(pods, limits=world.ledger.limits)
    move(later)
    assert held(later.add(*BASE).settle()) == {"a": 2000, "b": 0}


@each_of((True, "a"), (False, "b"))
def test_a_record_counts_only_where_the_policy_protects_it(records_trusted: bool, counts_in: str) -> None:
    recorded = pod("g-0", "g", on="n", annotations={keys.QUEUE_UID: "uid-a/uid-g-0"})
    world = World(BASE, group("g", 1, "b"), recorded, records_trusted=records_trusted).settle()
    assert world.decision("g").queue == counts_in


@each_of("uid-a/uid-of-another", "uid-a", "uid-gone/uid-g-0", "")
def test_a_record_of_another_pod_or_of_a_missing_queue_does_not_count(recorded: str) -> None:
    flagged = pod("g-0", "g", on="n", annotations={keys.QUEUE_UID: recorded})
    assert World(BASE, group("g", 1, "b"), flagged).settle().decision("g").queue == "b"


def test_a_pending_or_restarting_group_goes_to_the_queue_that_it_names() -> None:
    world = World(BASE, gang("g", 2, queue="b")).settle()
    assert (world.decision("g").queue, world.reason("g")) == ("b", Reason.NEVER_FITS)
    world.add(group("g", 2, "a")).start("g").add(group("g", 2, "b")).settle()
    assert world.decision("g").queue == "a"
    world.finish("g-0", "g-1").settle()
    assert held(world) == {"a": 0, "b": 0}
    assert world.decision("g").queue == "b"


def test_a_start_that_is_under_way_stays_in_the_queue_that_granted_it() -> None:
    world = World(BASE, gang("g", 2, queue="a")).settle().add(group("g", 2, "b"))
    assert world.settle().decision("g").queue == "a"
    assert world.ledger.groups.queue_uid(key("g")) == "uid-a"


def remade(world: World, name: str, queue: str) -> None:
    world.ledger.intake.drop_group(key(name))
    world.add(group(name, 1, queue, uid=f"{queue}-{name}"))


STEPS: dict[str, Callable[[World, str], Any]] = {
    "sent to a": lambda world, name: world.add(group(name, 1, "a")),
    "sent to b": lambda world, name: world.add(group(name, 1, "b")),
    "made again in a": lambda world, name: remade(world, name, "a"),
    "made again in b": lambda world, name: remade(world, name, "b"),
    "taken": lambda world, name: world.scheduler_takes(*world.plan(name)).run(*world.plan(name)),
    "renamed": lambda world, name: annotated(world, f"{name}-0", group="x"),
}


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from("xyz")), max_size=12))
def test_no_way_of_moving_groups_passes_a_ceiling(steps: list[tuple[str, str]]) -> None:
    """Three groups of 1 cpu, sent to and fro between ceilings of 2 and of 1: as many start as both allow."""
    world = World(BASE, *(gang(name, 1, queue="a") for name in "xyz"))
    for step, name in steps:
        world.settle()
        if step != "renamed" or world.pods[f"{name}-0"].spec.node_name:
            STEPS[step](world, name)
    now = held(world.settle())
    running = [each for each in world.pods.values() if each.spec.node_name]
    assert now["a"] <= 2000
    assert now["b"] <= 1000
    assert sum(now.values()) >= 1000 * len(running)
    if not any(step == "renamed" for step, _ in steps):
        objects = [group(name, 1, "b") for name in "xyz"]
        assert held(World(BASE, objects, running).settle()) == {
            name: sum(1000 for each in running if f"uid-{name}/" in str(each.metadata.annotations))
            for name in ("a", "b")
        }
