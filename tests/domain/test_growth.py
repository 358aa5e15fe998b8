"""Groups whose minMember is raised after they ran fully.

Only members that the group lost are replaced ahead of other groups, and no standing member is undone.
"""

from typing import Any

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.wire_records import whole_condition
from tests.domain.builders import foreign_pod, group, node, pod, queue
from tests.domain.world import World, gang, names
from tests.rows import each_of

OPEN_QUEUE, CAPPED_QUEUE = queue("q"), queue("q", capability={"cpu": "4"})


def standing(ran: int, members: int, *others: Any, q: Any = OPEN_QUEUE, **options: Any) -> World:
    """Return a world where group g of queue q ran fully with `ran` members; `members` more wait."""
    world = World(node("n", cpu="8"), q, *others, gang("g", ran, queue="q"), **options).start("g")
    assert world.stood_whole("g")
    return world.add([pod(f"g-{n}", "g") for n in range(ran, ran + members)])


def raised(world: World, needed: int) -> World:
    world.add(group("g", needed, "q")).settle()
    assert (world.verdict("g"), world.decision("g").undo) == (Verdict.RUNNING, ())
    return world


def test_growth_waits_for_capacity_that_another_queue_has_a_claim_on() -> None:
    """Both queues deserve 4 of 8 cpus: q holds its 4, and r's gang of 4 lacks the one of another pod."""
    world = standing(4, 4, queue("r"), foreign_pod("s", on="n"))
    world.add(gang("claimant", 4, queue="r"))
    assert raised(world, 8).plan("g") == {}
    assert world.decision("claimant").claims_capacity
    assert world.reason("g") is Reason.QUEUE_SHARE


def test_growth_stops_at_the_ceiling_and_says_so() -> None:
    world = raised(standing(1, 7, q=CAPPED_QUEUE), 8)
    assert len(world.plan("g")) == 3
    assert world.reason("g") is Reason.QUEUE_CEILING


def test_growth_comes_after_gangs_that_wait() -> None:
    """The gang was created later, but it waits to start: it goes first."""
    world = standing(1, 7).add(gang("gang", 6, queue="q", created="2026-02-01"))
    assert len(raised(world, 8).plan("gang")) == 6
    assert len(world.plan("g")) == 1


@each_of(8, 2**31 - 1)
def test_growth_waits_while_the_queue_accepts_no_pods(minMember: int) -> None:
    world = standing(1, 7)
    world.ledger.intake.drop_queue("q")
    assert world.add(group("g", minMember, "q")).settle().plan("g") == {}
    assert (world.verdict("g"), world.reason("g")) == (Verdict.RUNNING, Reason.QUEUE_NOT_FOUND)


def test_members_that_are_lost_are_replaced_first_and_the_rest_is_growth() -> None:
    """The group ran fully with 3 and lost two; once those are replaced, only a gang of 5 fits."""
    world = standing(3, 5).add(gang("gang", 5, queue="q"))
    world.delete("g-0", "g-1")
    raised(world, 6)
    assert [len(world.plan(name)) for name in ("g", "gang")] == [2, 5]
    assert world.start("g").reason("g") is Reason.NO_ROOM


def test_a_lost_member_that_its_queue_may_not_hold_any_more_waits_for_the_ceiling() -> None:
    world = standing(3, 0).add(queue("q", capability={"cpu": "2"}))
    world.delete("g-0").add(pod("g-3", "g")).settle()
    assert (world.plan("g"), world.reason("g")) == ({}, Reason.QUEUE_CEILING)
    assert world.figures("g") == ["2", "1", "2"]


def test_a_grown_group_that_runs_fully_again_gets_its_lost_members_replaced() -> None:
    world = raised(standing(1, 3), 4).start("g").add(gang("gang", 5, queue="q", created="2026-02-01"))
    world.settle().delete(*names("g", 3)).add([pod(f"h-{n}", "g") for n in range(3)]).settle()
    assert len(world.plan("g")) == 3


def test_a_smaller_minmember_that_is_raised_again_is_growth_as_well() -> None:
    world = raised(standing(4, 0), 1).delete("g-1", "g-2", "g-3").settle()
    world.add([pod(f"h-{n}", "g") for n in range(3)], gang("gang", 7, queue="q"), group("g", 4, "q")).settle()
    assert len(world.plan("gang")) == 7
    assert world.plan("g") == {}


def test_new_roles_are_growth() -> None:
    world = World(node("n", cpu="8"), OPEN_QUEUE, gang("g", 2, queue="q")).start("g")
    world.add(gang("gang", 5, queue="q"), pod("d-0", "g", role="d"), pod("d-1", "g", role="d"))
    world.add(group("g", 2, "q", roles={"d": 2})).settle()
    assert len(world.plan("gang")) == 5
    assert len(world.plan("g")) == 1


def test_a_lost_driver_is_replaced_although_a_worker_is_there_in_its_place() -> None:
    world = World(node("n", cpu="4"), OPEN_QUEUE, group("g", 2, "q", roles={"d": 1}))
    world.add(pod("d-0", "g", role="d"), pod("w-0", "g"), pod("w-1", "g")).start("g")
    world.delete("d-0").add(pod("d-1", "g", role="d"), gang("gang", 2, queue="q")).settle()
    assert world.plan("g") == {"d-1": "n"}


@each_of((1, 0), (3, 2))
def test_the_size_of_the_last_full_run_outlives_a_restart(recorded: int, replaced: int) -> None:
    plain = group("g", 6, "q", phase="Running")
    conditions = [whole_condition("uid-g", recorded)]
    flagged = replace(plain, status=replace(plain.status, conditions=conditions))
    world = World(node("n", cpu="6"), OPEN_QUEUE, flagged, pod("g-0", "g", on="n"))
    world.add([pod(f"g-{n}", "g") for n in range(1, 6)], gang("gang", 5, queue="q")).settle()
    assert len(world.plan("g")) == replaced
    assert (world.verdict("gang") is Verdict.STARTING) == (replaced == 0)
