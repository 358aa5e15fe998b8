"""Members on nodes of a gang that never ran fully and is not being started: they do not stay there."""

from collections.abc import Callable

from extender.api import keys
from extender.api.objects.base import Quantities
from extender.domain.model.reasons import Reason
from tests.domain.builders import group, node, pod, queue
from tests.domain.world import LIMITS, World, gang, key, nodes
from tests.rows import each_of

OBSTACLES: dict[Reason, Callable[[World], object]] = {
    Reason.GROUP_NOT_FOUND: lambda world: world.ledger.intake.drop_group(key("g")),
    Reason.INVALID_SPEC: lambda world: world.add(group("g", 3, "q", min_resources={"cpu": "much"})),
    Reason.QUEUE_NOT_FOUND: lambda world: world.ledger.intake.drop_queue("q"),
    Reason.QUEUE_STOPPED: lambda world: world.add(queue("q", stop_policy="Hold")),
    Reason.HELD: lambda world: world.add(group("g", 3, "q", annotations={keys.HOLD: "true"})),
}


def on_the_way() -> World:
    """Return a world with three bindings in flight to the API server."""
    world = World(nodes("a", cpu="3"), queue("q"), gang("g", 3, queue="q")).settle()
    for name in world.ungate("g-0", "g-1", "g-2").pods:
        assert world.hold(name, "a") is None
    assert len(world.confirm("g").claims_to_post) == 3
    return world


def arrives(world: World, *bound: str) -> World:
    """End all calls, of which only these were made."""
    for name in world.pods:
        world.release(name)
    for name in bound:
        world.bind(name, "a")
    return world.settle()


@each_of(*OBSTACLES)
def test_a_member_bound_late_is_undone_whatever_keeps_the_rest_waiting(reason: Reason) -> None:
    world = on_the_way()
    OBSTACLES[reason](world)
    arrives(world.settle(), "g-0")
    assert (world.reason("g"), world.decision("g").undo) == (reason, ())
    world.pass_time(LIMITS.deadline(3) - 0.1)
    assert (world.reason("g"), world.decision("g").undo) == (reason, ()), "it may still be completed"
    world.pass_time(0.2)
    assert (world.reason("g"), world.decision("g").undo) == (Reason.BACKING_OFF, ("uid-g-0",))
    world.pass_time(LIMITS.backoff_max)
    assert world.decision("g").undo == ("uid-g-0",), "until the eviction succeeds"
    assert world.delete("g-0").settle().decision("g").undo == ()
    assert world.reason("g") is reason


def test_a_finished_member_does_not_hide_members_that_were_bound_late() -> None:
    world = on_the_way()
    world.bind("g-2", "a")
    world.finish("g-2").delete("g-1")
    OBSTACLES[Reason.GROUP_NOT_FOUND](world)
    arrives(world.settle(), "g-0")
    world.pass_time(LIMITS.deadline(3) + 0.1)
    assert "uid-g-0" in world.decision("g").undo


@each_of(*OBSTACLES)
def test_a_gang_that_has_fully_run_is_not_undone(reason: Reason) -> None:
    world = World(nodes("a", cpu="3"), queue("q"), gang("g", 3, queue="q")).start("g")
    world.delete("g-2")
    OBSTACLES[reason](world)
    world.settle()
    world.pass_time(LIMITS.start_deadline + LIMITS.backoff_max)
    assert world.decision("g").undo == ()


def test_members_of_an_unknown_group_are_left_alone() -> None:
    """Its PodGroup was deleted before Muster was started: what it needed is not known."""
    world = World(node("a", cpu="3"), pod("g-0", "g", on="a"), pod("g-1", "g")).settle()
    world.pass_time(LIMITS.start_deadline + LIMITS.backoff_max)
    assert (world.reason("g"), world.decision("g").undo) == (Reason.GROUP_NOT_FOUND, ())


def test_a_podgroup_that_comes_back_in_time_lets_the_rest_start() -> None:
    world = on_the_way()
    OBSTACLES[Reason.GROUP_NOT_FOUND](world)
    arrives(world.settle(), "g-0").add(group("g", 3, "q", uid="another")).settle()
    world.scheduler_takes("g-1", "g-2").run("g-0", "g-1", "g-2").settle()
    world.pass_time(LIMITS.start_deadline)
    assert (world.stood_whole("g"), world.decision("g").undo) == (True, ())


# ---- pods that name their node from the beginning


@each_of(Reason.NO_ROOM, Reason.NEVER_FITS)
def test_members_without_an_admitted_group_do_not_stand_in_pieces_for_long(reason: Reason) -> None:
    """Undo the members after the deadline, as after a crash before the phase was written."""
    requests: Quantities = {"cpu": "10" if reason is Reason.NEVER_FITS else "3"}
    world = World(node("n", cpu="2"), queue("q", capability={"cpu": "9"}))
    world.add(group("g", 3, "q", min_resources=requests), [pod(f"g-{n}", "g", queue="q") for n in (1, 2)])
    world.add(pod("g-0", "g", queue="q", on="n")).settle()
    assert (world.reason("g"), world.decision("g").undo) == (reason, ())
    world.pass_time(LIMITS.deadline(3) + 1.0)
    assert (world.reason("g"), world.decision("g").undo) == (Reason.BACKING_OFF, ("uid-g-0",))
    world.pass_time(60.0)
    assert world.decision("g").undo == ("uid-g-0",), "until the eviction succeeds"
