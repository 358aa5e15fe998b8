"""The phases of a group, its counts, and how it ends."""

from typing import Any

from extender.api.objects.queues import PodGroup
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.snapshot.phases import Life, Phase
from tests.domain.builders import group, node, pod, queue
from tests.domain.world import World, gang, names
from tests.rows import each_of


def running(count: int, min_member: int | None = None, **more: Any) -> World:
    """Return a world with a gang that ran fully, on a node without capacity for other groups."""
    members = names("g", count)
    world = World(node("n", cpu=str(count)), gang("g", count, min_member, **more)).start("g")
    world.scheduler_takes(*world.plan("g"))
    return world.run(*members).settle()


def life(world: World) -> Life:
    return world.decision("g").life


def phase(world: World) -> Phase:
    return world.settle().decision("g").life.phase


def test_a_whole_life() -> None:
    world = World(node("n", cpu="1"), gang("g", 2))
    assert phase(world) is Phase.PENDING
    world.add(node("n", cpu="2"))
    assert phase(world) is Phase.INQUEUE
    world.scheduler_takes("g-0", "g-1")
    assert phase(world) is Phase.RUNNING
    assert life(world.run("g-0").settle()) == Life(Phase.RUNNING, running=1)
    assert life(world.run("g-1").settle()) == Life(Phase.RUNNING, running=2)
    assert life(world.finish("g-0").settle()) == Life(Phase.RUNNING, running=1, succeeded=1)
    assert life(world.finish("g-1").settle()) == Life(Phase.COMPLETED, 0, 2, 0, Outcome.COMPLETED)
    assert world.verdict("g") is Verdict.ENDED
    assert world.detail("g") == "2 members succeeded, 0 failed"


# ---- ends


@each_of(
    (2, 2, 0, Outcome.COMPLETED),
    (2, 1, 1, Outcome.FAILED),
    (2, 0, 2, Outcome.FAILED),
    (1, 1, 1, Outcome.COMPLETED),
    (1, 0, 2, Outcome.FAILED),
    (0, 1, 1, Outcome.COMPLETED),
    (0, 0, 2, Outcome.FAILED),
)
def test_a_group_ends_well_when_enough_members_succeeded(
    needed: int, succeed: int, fail: int, outcome: Outcome
) -> None:
    world = running(2, needed)
    world.finish(*list(names("g", 2))[:succeed])
    world.finish(*list(names("g", 2))[succeed:], phase="Failed").settle()
    assert life(world) == Life(Phase.COMPLETED, 0, succeed, fail, outcome)
    assert world.verdict("g") is Verdict.ENDED


def test_enough_means_enough_of_each_role() -> None:
    roles = {"head": 1}
    members = [pod("g-0", "g", role="head"), pod("g-1", "g"), pod("g-2", "g")]
    world = World(node("n"), group("g", 2, roles=roles), members).start("g")
    world.scheduler_takes(*world.plan("g")).run("g-0", "g-1", "g-2").finish("g-1", "g-2")
    world.finish("g-0", phase="Failed").settle()
    assert life(world).outcome is Outcome.FAILED


def test_a_group_whose_failed_members_are_replaced_continues() -> None:
    world = running(2).finish("g-0", "g-1", phase="Failed")
    world.add(pod("g-2", "g"), pod("g-3", "g"))
    assert phase(world) is Phase.INQUEUE
    assert life(world) == Life(Phase.INQUEUE, failed=2)


def test_members_above_the_minimum_do_not_delay_the_end_of_a_group() -> None:
    world = running(2).add(node("n", cpu="0"))
    world.finish("g-0", "g-1").add(pod("g-2", "g"))
    assert phase(world) is Phase.COMPLETED
    world.add(node("n", cpu="4"))
    assert phase(world) is Phase.RUNNING
    assert world.plan("g") == {"g-2": "n"}


def test_an_ended_group_that_gets_new_members_starts_again() -> None:
    world = running(2).finish("g-0", "g-1", phase="Failed").settle()
    assert world.verdict("g") is Verdict.ENDED
    world.delete("g-0", "g-1").add(pod("g-2", "g"), pod("g-3", "g"))
    assert phase(world) is Phase.INQUEUE


# ---- losses


def test_a_group_that_lost_a_member_is_unknown_until_a_replacement_has_capacity() -> None:
    world = running(2).delete("g-0")
    assert phase(world) is Phase.UNKNOWN
    world.add(pod("g-2", "g", cpu="2"))
    assert phase(world) is Phase.UNKNOWN
    assert world.reason("g") is Reason.NO_ROOM
    world.delete("g-2").add(pod("g-3", "g"))
    assert phase(world) is Phase.RUNNING
    assert world.plan("g") == {"g-3": "n"}


def test_terminating_members_still_count() -> None:
    world = running(2)
    world.mark_deleted("g-0")
    assert phase(world) is Phase.RUNNING
    world.mark_deleted("g-1")
    assert phase(world) is Phase.RUNNING


def test_a_member_that_failed_and_is_not_replaced_has_had_its_run() -> None:
    world = running(2).finish("g-0", phase="Failed")
    assert phase(world) is Phase.RUNNING
    assert life(world).failed == 1


# ---- groups that need no members


@each_of((3, 0), (3, 2))
def test_a_group_that_lacks_nothing_but_members_is_inqueue(min_member: int, there: int) -> None:
    """Some operators create no pods for a Pending group."""
    world = World(node("n"), group("g", min_member), *(pod(name, "g") for name in names("g", there)))
    assert phase(world) is Phase.INQUEUE
    assert world.reason("g") is Reason.NOT_ENOUGH_MEMBERS


def test_a_group_without_members_is_pending() -> None:
    world = World(node("n"), group("g", 0))
    assert phase(world) is Phase.PENDING
    assert (world.verdict("g"), world.reason("g")) == (Verdict.WAITING, Reason.NOT_ENOUGH_MEMBERS)


def test_a_group_that_was_pending_stays_so_while_members_are_missing() -> None:
    world = World(node("n"), group("g", 3, phase="Pending"), *(pod(name, "g") for name in names("g", 2)))
    assert phase(world) is Phase.PENDING


def test_a_group_that_may_not_start_is_pending_however_many_members_it_lacks() -> None:
    world = World(queue("q", status_state="Closed"), group("g", 3, "q"))
    assert phase(world) is Phase.PENDING
    assert world.reason("g") is Reason.QUEUE_NOT_OPEN


def test_a_group_that_needs_no_members_starts_and_runs_with_its_first_member() -> None:
    world = World(node("n", cpu="0"), gang("g", 2, min_member=0))
    assert (phase(world), world.reason("g")) == (Phase.PENDING, Reason.NO_ROOM)
    world.add(node("n", cpu="1"))
    assert (phase(world), world.verdict("g"), world.reason("g")) == (
        Phase.INQUEUE,
        Verdict.STARTING,
        Reason.NO_ROOM,
    )
    assert len(world.plan("g")) == 1
    world.scheduler_takes(*world.plan("g"))
    assert phase(world) is Phase.RUNNING


# ---- queues that go


def recorded(uid: str) -> PodGroup:
    return group("g", 2, "q", phase="Running", stood_whole=True, queue_uid=uid)


def accepted_by(world: World) -> str:
    return world.ledger.snapshot().groups[world.decision("g").key].history.accepted_by


@each_of("", "uid-of-another")
def test_a_queue_keeps_groups_that_no_other_queue_accepted(uid: str) -> None:
    others = queue("other", uid="uid-of-another")
    world = World(node("n"), queue("q"), others, recorded(uid)).settle()
    assert accepted_by(world) == "uid-q"


def test_a_group_of_a_queue_that_is_gone_is_aborted() -> None:
    world = World(node("n"), queue("q"), recorded("uid-of-one-that-is-gone")).settle()
    assert life(world).outcome is Outcome.ABORTED
    assert accepted_by(world) == ""


def test_while_its_members_run_it_is_not() -> None:
    members = [pod(f"g-{n}", "g", on="n") for n in range(2)]
    world = World(node("n"), queue("q"), recorded("uid-q"), members).settle()
    world.ledger.intake.drop_queue("q")
    assert (phase(world), life(world).outcome) == (Phase.RUNNING, None)


@each_of(("", "uid-q"), ("Closed", ""))
def test_the_queue_that_takes_a_group_in_is_open_and_known_by_its_uid(state: str, uid: str) -> None:
    world = World(node("n"), queue("q", spec_state=state), gang("g", 2, queue="q")).settle()
    assert accepted_by(world) == uid


def beyond(cpu: str) -> World:
    """Return a world with a group whose minResources exceed its queue, while it has no members yet."""
    asking = group("g", 2, "q", min_resources={"cpu": cpu, "requests.cpu": "99"})
    return World(node("a", cpu="8"), queue("q", capability={"cpu": "4"}), asking).settle()


def test_a_group_above_the_capability_of_its_queue_stays_pending() -> None:
    """Volcano's rule for enqueueing: operators do not create members that could never start."""
    assert beyond("4").decision("g").life.phase is Phase.INQUEUE, "it lacks only members"
    world = beyond("5")
    assert world.decision("g").life.phase is Phase.PENDING
    assert world.reason("g") is Reason.NEVER_FITS
    assert world.detail("g") == "spec.minResources is above the capability of queue q: cpu: 5 > 4"
    world.add(pod("g-0", "g"), pod("g-1", "g")).settle()
    assert world.decision("g").life.phase is Phase.PENDING
    world.add(queue("q", capability={"cpu": "5"})).settle()
    assert world.plan("g")


def test_a_member_that_is_being_deleted_does_not_count_as_running() -> None:
    world = running(3)
    world.mark_deleted("g-0")
    assert (life(world.settle()).running, life(world).succeeded, life(world).failed) == (2, 0, 0)
