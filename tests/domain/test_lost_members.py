"""A gang that fully ran keeps the place of a lost member for a while, until its controller makes another."""

from collections.abc import Callable

from msgspec.structs import replace

from extender.api import keys
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.phases import Phase
from tests.domain.builders import group, node, pod, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.test_phases import running
from tests.domain.world import World, gang, key
from tests.rows import each_of


def with_a_waiting_group(world: World) -> World:
    """Add a group that waits for freed capacity."""
    return world.add(gang("h", 1)).settle()


def is_reserved(world: World) -> bool:
    return world.settle().verdict("h") is Verdict.WAITING


@each_of(World.delete, lambda world, name: world.finish(name, phase="Failed"))
def test_another_member_takes_over_the_place(lose: Callable[[World, str], World]) -> None:
    world = with_a_waiting_group(running(3))
    assert is_reserved(lose(world, "g-1"))
    world.add(pod("g-3", "g"))
    assert is_reserved(world)
    assert world.plan("g") == {"g-3": "n"}
    assert world.decision("g").life.phase is Phase.RUNNING


@each_of((1, 30), (2, 60), (3, 120), (6, 900))
def test_the_place_is_reserved_for_longer_than_the_back_off_of_the_controller(
    failures: int, seconds: float
) -> None:
    world = running(2)
    for n in range(1, failures):
        world.finish(f"g-{n}", phase="Failed").add(pod(f"g-{n + 1}", "g")).settle()
        world.scheduler_takes(f"g-{n + 1}")
        world.run(f"g-{n + 1}").settle()
    with_a_waiting_group(world).finish(f"g-{failures}", phase="Failed")
    world.pass_time(seconds - 1)
    assert is_reserved(world)
    world.pass_time(1.1)
    assert not is_reserved(world)
    assert world.verdict("g") is Verdict.RUNNING, "the rest keeps its capacity"


def test_a_replacement_for_a_lost_node_has_precedence_on_other_nodes() -> None:
    world = running(2).add(node("m", cpu="1", cordoned=True))
    with_a_waiting_group(world).add(node("n", cpu="2", cordoned=True)).delete("g-0")
    world.add(node("m", cpu="1"))
    assert is_reserved(world)
    world.add(pod("g-2", "g")).settle()
    assert world.plan("g") == {"g-2": "m"}


def hold(world: World) -> World:
    held = group("g", 2)
    return world.add(replace(held, metadata=replace(held.metadata, annotations={keys.HOLD: "true"})))


@each_of(
    lambda world: world.finish("g-0"),  # succeeded
    lambda world: world.delete("g-0", "g-1"),  # all are gone
    lambda world: hold(world).delete("g-0"),  # held
    lambda world: hold(world.delete("g-0")),  # held later
)
def test_nothing_is_reserved_for_members_that_are_not_replaced(end: Callable[[World], object]) -> None:
    world = with_a_waiting_group(running(2))
    end(world)
    assert not is_reserved(world)


def test_a_member_that_can_be_spared_keeps_no_place() -> None:
    world = with_a_waiting_group(running(2, min_member=1)).delete("g-0")
    assert not is_reserved(world)


def test_pods_evicted_for_others_have_no_reserved_place() -> None:
    world = running(4).add(queue("other"), gang("h", 2, queue="other")).settle()
    assert len(world.decisions.evictions) == 4
    world.delete("g-0").settle()
    assert world.claim_count() == 3
    world.delete("g-1", "g-2", "g-3").settle()
    assert world.verdict("h") is Verdict.STARTING


def test_a_reserved_replacement_does_not_protect_borrowed_capacity_from_reclaim() -> None:
    world = running(4).delete("g-0").settle()
    assert world.claim_count() == 4
    world.add(queue("other"), gang("h", 2, queue="other")).settle()
    assert {eviction.victim.group for eviction in world.decisions.evictions.values()} == {key("g")}
    world.delete("g-1", "g-2", "g-3").settle()
    assert world.verdict("h") is Verdict.STARTING


def test_a_job_that_keeps_places_by_itself_takes_over() -> None:
    """Its record was gone for a while: nothing is left of what was kept for the gang."""
    world = JobWorld(node("n", cpu="2")).submit(job("train", 2, completions=4)).run_whole("train")
    world.ledger.intake.drop_job(key(podgroup_name("train")))
    world.settle().delete(world.pods_of("train")[0]).settle()
    assert [claim for claim in world.ledger.claims if claim.pod.reserved_for]
    world.submit(world.jobs["train"]).settle()
    world.pass_time(31)
    assert not [claim for claim in world.ledger.claims if claim.pod.reserved_for]


def test_a_larger_pod_does_not_take_over_the_place() -> None:
    """Refuse the larger pod, which would pass the ceiling of its queue."""
    world = World(queue("q", capability={"cpu": "2"}), node("n", cpu="8"), gang("g", 2, queue="q")).settle()
    world.scheduler_takes("g-0", "g-1").run("g-0", "g-1").settle()
    world.delete("g-0").settle()
    world.add(pod("g-2", "g", cpu="6")).settle()
    assert (world.plan("g"), world.reason("g")) == ({}, Reason.QUEUE_CEILING)
