"""Pods that cannot end on a node that is away count for no queue."""

from extender.api.objects.cluster import Taint
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import node, pod, queue
from tests.domain.world import World, gang
from tests.rows import each_of

UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoExecute")
GRACE = 30.0


def stuck() -> World:
    """Return a gang that fills its queue, with two members stuck on an unreachable node."""
    world = World(queue("q", capability={"cpu": "4"}), node("a", cpu="2"), node("b", cpu="2"))
    world.add(gang("g", 4, queue="q")).start("g")
    world.scheduler_takes(*world.plan("g")).run(*(f"g-{n}" for n in range(4))).settle()
    world.add(node("a", cpu="2", taints=[UNREACHABLE]), node("spare"))
    for name in on_a(world):
        world.mark_deleted(name, GRACE)
    return world


def on_a(world: World) -> list[str]:
    return [name for name in world.pods if (claim := world.claim(name)) and claim.node == "a"]


def others_come(world: World) -> World:
    return world.add(*(pod(f"r{n}", "g", queue="q") for n in range(2))).settle()


def test_their_replacements_start_below_the_ceiling_of_their_queue() -> None:
    world = others_come(stuck())
    assert world.reason("g") is Reason.QUEUE_CEILING
    assert world.plan("g") == {}
    world.pass_time(GRACE + 6)
    assert world.plan("g") == {"r0": "spare", "r1": "spare"}


@each_of((True, 4000), (False, 2000))
def test_stuck_pods_count_again_once_their_node_is_back(back: bool, cpu: int) -> None:
    world = stuck()
    world.pass_time(GRACE)
    assert world.settle().queue("q").allocated["cpu"] == 4000
    world.pass_time(6)
    assert world.settle().queue("q").allocated["cpu"] == 2000
    world.add(node("a", cpu="2")) if back else world.ledger.intake.drop_node("a")
    assert world.settle().queue("q").allocated["cpu"] == cpu


def test_little_is_remembered_of_pods_that_ended_long_before_their_grace() -> None:
    world = World(node("a", cpu="500", pods="1000", taints=[UNREACHABLE]))
    for n in range(300):
        world.add(pod(f"p{n}", on="a"))
        world.mark_deleted(f"p{n}", grace=1e9)
        world.delete(f"p{n}")
    assert len(world.ledger._stuck_pods._ends) < 100


def test_terminating_pods_on_a_reachable_node_count_until_they_have_ended() -> None:
    world = stuck().add(node("a", cpu="2")).settle()
    world.pass_time(3600)
    assert others_come(world).reason("g") is Reason.QUEUE_CEILING


def test_deleted_stuck_pods_are_forgotten() -> None:
    world = stuck()
    world.pass_time(GRACE + 6)
    world.delete(*on_a(world)).settle()
    assert not world.ledger._stuck_pods.uids
    assert others_come(world).verdict("g") is Verdict.RUNNING


@each_of(-3600.0, 86400.0)
def test_steps_of_the_clock_do_not_change_when_they_count_no_more(step: float) -> None:
    world = others_come(stuck())
    world.wall_steps += step
    world.pass_time(GRACE)
    assert world.settle().reason("g") is Reason.QUEUE_CEILING
    world.pass_time(6)
    assert world.plan("g") == {"r0": "spare", "r1": "spare"}
