"""The ledger: what verbs may do with claims, and what a decision made too late may not."""

import pytest

from extender.domain.ledger.claims import ClaimStage
from extender.domain.ledger.groups import Group
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.model.shapes import Shapes
from extender.domain.model.wire_records import group_record, pod_record
from tests.domain.builders import anti_affinity, foreign_pod, group, node, pod
from tests.domain.world import LIMITS, World, gang, key, nodes, single
from tests.rows import each_of


def ready() -> World:
    """Return a world where a gang of two is planned on node a and open; node b is idle."""
    return World(node("a", cpu="2"), node("b"), gang("g", 2)).settle().ungate("g-0", "g-1")


# ---- filter


def test_the_planned_node_is_answered_and_the_answer_is_idempotent() -> None:
    world = ready()
    assert world.answer("g-0") == ["a"]
    assert world.stage("g-0") is ClaimStage.ANSWERED
    before, claim = world.ledger.version, world.claim("g-0")
    assert world.answer("g-0") == ["a"]
    assert (world.ledger.version, world.claim("g-0")) == (before, claim)


def test_another_node_is_answered_where_the_plan_is_not_offered_and_the_claim_moves() -> None:
    world = ready()
    assert world.answer("g-0", ["b"]) == ["b"]
    claim = world.claim("g-0")
    assert claim is not None
    assert (claim.node, claim.stage) == ("b", ClaimStage.ANSWERED)
    assert world.settle().plan("g") == {"g-1": "a"}


@each_of([], ["unheard"])
def test_filter_answers_only_offered_nodes(offered: list[str]) -> None:
    world = ready()
    assert world.answer("g-0", offered) is Reason.NO_ROOM


def test_a_node_that_another_claim_fills_is_not_answered() -> None:
    world = World(node("a", cpu="2"), node("b", cpu="1"), gang("g", 3)).settle().ungate("g-0", "g-1", "g-2")
    plan = world.plan("g")
    (lonely,) = [name for name, node_ in plan.items() if node_ == "b"]
    member = next(name for name in plan if name != lonely)
    assert world.answer(member, ["b"]) is Reason.NO_ROOM, "planned claims count too"


def test_a_node_without_free_capacity_is_not_answered() -> None:
    world = ready().add(foreign_pod("s", on="a", cpu="2"))
    assert world.answer("g-0") == ["b"]


def test_a_member_without_a_plan_is_refused() -> None:
    world = World(node("a", cpu="2"), gang("g", 3, min_member=2)).settle()
    (spare,) = set(world.pods) - set(world.plan("g"))
    assert world.answer(spare) is Reason.BEHIND_OTHERS


@each_of(ClaimStage.POSTED, ClaimStage.BOUND)
def test_a_pod_that_is_posted_or_bound_never_moves(stage: ClaimStage) -> None:
    world = ready()
    for name in ("g-0", "g-1"):
        world.answer(name)
        world.hold(name, "a")
    world.confirm("g")
    if stage is ClaimStage.BOUND:
        world.bind("g-0", "a")
    assert world.answer("g-0", ["b"]) is Reason.NO_ROOM
    assert world.hold("g-0", "b") is Reason.NO_ROOM
    assert world.answer("g-0") == ["a"]
    claim = world.claim("g-0")
    assert claim is not None
    assert (claim.node, claim.stage) == ("a", stage)


def test_a_bound_pod_is_not_held_and_its_capacity_not_released() -> None:
    world = World(node("a"), gang("g", 1)).start("g")
    assert world.hold("g-0", "a") is Reason.NO_ROOM
    world.release("g-0")
    assert world.stage("g-0") is ClaimStage.BOUND


def test_a_pod_on_its_own_gets_every_offered_node_that_fits() -> None:
    world = World(node("a"), node("b", cpu="500m"), node("c"), pod("p")).settle()
    assert world.answer("p", ["c", "b", "a", "unheard"]) == ["c", "a"]
    assert world.answer("p", ["b"]) is Reason.NO_ROOM


# ---- hold, confirm, release


def test_a_bind_call_without_a_claim_is_refused() -> None:
    world = World(node("a"), gang("g", 2, cpu="9")).settle()
    assert world.hold("g-0", "a") is Reason.NEVER_FITS


def test_a_bind_call_for_another_node_needs_free_capacity_there() -> None:
    world = ready()
    world.answer("g-0")
    assert world.hold("g-0", "unheard") is Reason.NO_ROOM
    world.add(foreign_pod("s", on="b", cpu="4"))
    assert world.hold("g-0", "b") is Reason.NO_ROOM
    assert world.stage("g-0") is ClaimStage.ANSWERED


def held() -> World:
    """Return a world with three members, each held on its own node."""
    world = World(nodes("a", "b", "c", "d"), gang("g", 3, cpu="3")).settle()
    for name, node_ in world.plan("g").items():
        world.ungate(name).answer(name)
        assert world.hold(name, node_) is None
    return world


def test_only_members_whose_node_was_taken_are_planned_again_while_the_rest_stays_held() -> None:
    world = held()
    world.add(foreign_pod("s", on=world.plan("g")["g-1"], cpu="2"))
    confirmation = world.confirm("g")
    assert [claim.pod.name for claim in confirmation.lost_claims] == ["g-1"]
    assert confirmation.claims_to_post == (), "without it the group is not whole"
    assert [world.stage(f"g-{n}") for n in range(3)] == [ClaimStage.HELD, None, ClaimStage.HELD]
    assert world.settle().plan("g") == {"g-1": "d"}
    world.scheduler_takes("g-1").settle()
    assert world.verdict("g") is Verdict.RUNNING


def test_missing_resources_of_a_node_that_are_not_requested_do_not_count() -> None:
    """A device vanished under a running pod, and another pod has one that the node never showed."""
    world = World(nodes("a", "b", more={"x.io/gpu": "1"}), gang("g", 2, cpu="3"))
    for name in ("a", "b"):
        devices = {"x.io/gpu": "1", "dra.io/card": "1"}
        world.add(pod(f"uses-{name}", on=name, scheduler="default-scheduler", more=devices))
    world.settle()
    for name, node_ in world.plan("g").items():
        world.ungate(name).answer(name)
        world.hold(name, node_)
    world.add(nodes("a", "b"))
    assert len(world.confirm("g").claims_to_post) == 2


def test_a_vanished_device_blocks_pods_that_request_it() -> None:
    world = World(node("a", more={"x.io/gpu": "1"}), pod("p", more={"x.io/gpu": "1"})).settle()
    world.ungate("p").hold("p", "a")
    world.add(node("a"))
    assert [claim.pod.name for claim in world.confirm(single("p")).lost_claims] == ["p"]


@each_of("gone", "cordoned")
def test_a_held_node_that_went_is_lost(change: str) -> None:
    world = held()
    lost = world.plan("g")["g-2"]
    if change == "gone":
        world.drop_node(lost)
    else:
        world.add(node(lost, cordoned=True))
    assert [claim.pod.name for claim in world.confirm("g").lost_claims] == ["g-2"]


def test_losing_members_above_the_minimum_stops_no_member() -> None:
    world = World(nodes("a", "b"), gang("g", 3, cpu="3")).add(group("g", 3)).settle()
    world.add(node("c")).settle()
    for name, node_ in list(world.plan("g").items()):
        world.ungate(name).answer(name)
        world.hold(name, node_)
    lost = world.plan("g")["g-0"]
    world.add(group("g", 2)).settle().add(foreign_pod("s", on=lost, cpu="2"))
    confirmation = world.confirm("g")
    assert [claim.pod.name for claim in confirmation.lost_claims] == ["g-0"]
    assert sorted(claim.pod.name for claim in confirmation.claims_to_post) == ["g-1", "g-2"]


def without_its_group(world: World) -> World:
    world.ledger.intake.drop_group(key("g"))
    return world


def test_a_podgroup_that_is_deleted_gives_no_pod_precedence() -> None:
    """Three of three are held, and two. What the group needs outlives its PodGroup."""
    for released in ((), ("g-2",)):
        world = held()
        for name in released:
            world.release(name)
        assert without_its_group(world).confirm("g").claims_to_post == ()
        assert world.settle().reason("g") is Reason.GROUP_NOT_FOUND
        assert world.confirm("g").claims_to_post == ()


@each_of(2, 5)
def test_no_pod_is_bound_by_a_decision_on_another_podgroup(needed: int) -> None:
    world = without_its_group(held()).add(group("g", needed, uid="second"))
    assert world.confirm("g").claims_to_post == ()
    assert len(world.settle().confirm("g").claims_to_post) == (3 if needed == 2 else 0)


def test_no_pod_is_bound_before_a_decision_on_the_current_podgroup_spec() -> None:
    world = held()
    world.release("g-2")
    assert world.add(group("g", 2)).confirm("g").claims_to_post == ()
    assert len(world.settle().confirm("g").claims_to_post) == 2


def test_a_running_group_continues_without_its_podgroup_and_no_pod_joins_it() -> None:
    world = World(nodes("a", "b", "c"), gang("g", 3, min_member=2)).start("g")
    world.delete("g-0", "g-2")
    without_its_group(world).settle()
    world.add(pod("g-new", "g"))
    world.pass_time(1000)
    assert (world.verdict("g"), world.reason("g")) == (Verdict.RUNNING, Reason.GROUP_NOT_FOUND)
    assert (world.decision("g").undo, world.answer("g-new")) == ((), Reason.GROUP_NOT_FOUND)


def test_a_start_whose_podgroup_goes_between_two_bindings_is_undone_at_its_deadline() -> None:
    world = held()
    world.confirm("g")
    world.bind("g-0", "a")
    for name in ("g-1", "g-2"):
        world.release(name)
    assert without_its_group(world).settle().verdict("g") is Verdict.STARTING
    assert world.plan("g") == {}
    world.pass_time(1000)
    assert world.reason("g") in (Reason.BACKING_OFF, Reason.GROUP_NOT_FOUND)
    assert world.decision("g").undo == ("uid-g-0",)


def test_after_a_restart_no_pod_joins_members_whose_podgroup_is_gone() -> None:
    """Hold the rest back: the group's minimum is not known any more."""
    bound, waiting = pod("g-0", "g", on="a"), [pod("g-1", "g"), pod("g-2", "g")]
    world = World(nodes("a", "b"), bound, waiting).settle()
    assert (world.plan("g"), world.reason("g")) == ({}, Reason.GROUP_NOT_FOUND)
    assert world.answer("g-1") is Reason.GROUP_NOT_FOUND
    assert world.add(group("g", 3)).settle().plan("g").keys() == {"g-1", "g-2"}


def test_a_podgroup_does_not_bind_members_that_come_after_all_others_went() -> None:
    world = World(nodes("a", "b"), gang("g", 2))
    without_its_group(world).delete("g-0", "g-1")
    world.settle().add(pod("g-0", "g")).settle()
    assert world.ledger.snapshot().groups[key("g")].min_member == 1


def test_confirming_twice_posts_once() -> None:
    world = held()
    assert len(world.confirm("g").claims_to_post) == 3
    assert world.confirm("g").claims_to_post == ()


def test_a_pod_deleted_while_held_frees_its_claim() -> None:
    world = World(node("a", cpu="2"), gang("g", 2), gang("h", 1, created="2026-01-01")).settle()
    world.ungate("g-0").answer("g-0")
    world.hold("g-0", "a")
    world.mark_deleted("g-0")
    assert world.claim("g-0") is None
    world.delete("g-0", "g-1").add(gang("i", 1)).settle()
    assert world.verdict("i") is Verdict.STARTING


def test_no_binding_is_posted_before_the_gang_is_whole_and_an_abandoned_call_is_planned_again() -> None:
    world = ready()
    world.answer("g-0")
    world.hold("g-0", "a")
    assert world.confirm("g").claims_to_post == ()
    world.release("g-0")
    assert world.claim("g-0") is None
    world.settle()
    assert world.stage("g-0") is ClaimStage.PLANNED
    world.scheduler_takes("g-0", "g-1").settle()
    assert world.verdict("g") is Verdict.RUNNING


def test_a_replacement_that_is_answered_and_never_bound_ends_by_time_alone() -> None:
    """The scheduler stopped between its filter and its bind. The next pod gets the capacity."""
    world = World(node("a", cpu="2"), gang("g", 2)).start("g").delete("g-1").add(pod("g-new", "g")).settle()
    assert world.ungate("g-new").answer("g-new") == ["a"]
    world.settle()
    ends = world.now + LIMITS.start_deadline
    assert world.decisions.requeue_at == ends
    world.pass_time(LIMITS.start_deadline - 1)
    assert world.stage("g-new") is ClaimStage.ANSWERED
    world.pass_time(2)
    assert world.stage("g-new") is ClaimStage.PLANNED
    world.scheduler_takes("g-new").settle()
    assert world.stage("g-new") is ClaimStage.BOUND


def test_an_elastic_member_that_is_answered_and_never_bound_frees_its_capacity() -> None:
    world = World(nodes("a", "b", "c", cpu="1"), gang("g", 3, min_member=2)).start("g")
    (late,) = world.plan("g")
    world.ungate(late).answer(late)
    assert world.settle().stage(late) is ClaimStage.ANSWERED
    world.pass_time(LIMITS.start_deadline + 1)
    assert world.stage(late) is not ClaimStage.ANSWERED


def test_a_bind_call_that_comes_in_time_keeps_its_answer() -> None:
    world = World(node("a", cpu="2"), gang("g", 2)).start("g").delete("g-1").add(pod("g-new", "g")).settle()
    world.ungate("g-new").answer("g-new")
    world.settle().pass_time(LIMITS.start_deadline - 1)
    assert world.hold("g-new", "a") is None
    world.settle().pass_time(10)
    assert world.stage("g-new") is ClaimStage.HELD


def test_finished_pods_free_their_capacity() -> None:
    world = World(node("a", cpu="2"), gang("g", 2)).start("g").add(gang("h", 2)).settle()
    assert world.reason("h") is Reason.NO_ROOM
    assert world.finish("g-0", "g-1").settle().verdict("h") is Verdict.STARTING


def test_a_terminating_pod_holds_its_capacity_until_it_is_gone() -> None:
    world = World(node("a", cpu="2"), gang("g", 2)).start("g")
    for name in ("g-0", "g-1"):
        world.mark_deleted(name)
    assert world.add(gang("h", 2)).settle().verdict("h") is Verdict.WAITING
    assert world.delete("g-0", "g-1").settle().verdict("h") is Verdict.STARTING


# ---- publishing


def test_a_stale_plan_moves_no_pinned_claim() -> None:
    world = ready()
    stale = world.decide()
    assert world.answer("g-0", ["b"]) == ["b"]
    world.ledger.publish(stale)
    claim = world.claim("g-0")
    assert claim is not None
    assert (claim.node, claim.stage) == ("b", ClaimStage.ANSWERED)


def test_a_stale_no_frees_no_newer_pin() -> None:
    world = (
        World(nodes("a", cpu="2"), gang("g", 2)).settle().ungate("g-0", "g-1").add(foreign_pod("s", on="a"))
    )
    stale = world.decide()
    assert stale.groups[world.decision("g").key].verdict is Verdict.WAITING
    world.delete("s")
    assert world.answer("g-0") == ["a"]
    world.ledger.publish(stale)
    assert world.stage("g-0") is ClaimStage.ANSWERED
    world.settle().scheduler_takes("g-0", "g-1").settle()
    assert world.verdict("g") is Verdict.RUNNING


def test_a_no_that_knows_of_a_pin_frees_it() -> None:
    world = ready()
    world.answer("g-0")
    world.hold("g-0", "a")
    world.ledger.intake.drop_group(world.decision("g").key)
    world.settle()
    assert world.reason("g") is Reason.GROUP_NOT_FOUND
    assert world.claim("g-0") is world.claim("g-1") is None


def test_decisions_that_say_the_same_are_the_same_objects() -> None:
    world = World(node("a"), gang("g", 2), gang("h", 9)).settle()
    before = world.decisions
    again = world.decide()
    assert all(again.groups[name] is before.groups[name] for name in before.groups)


def test_only_relevant_changes_raise_the_version() -> None:
    world = World(node("a"), gang("g", 1)).settle()
    before = world.ledger.version
    world.add(node("a"), world.pods["g-0"], foreign_pod("pending"), group("g", 1))
    assert world.ledger.version == before


def test_infos_of_unchanged_groups_are_reused() -> None:
    world = World(node("a"), gang("g", 1), gang("h", 1)).settle()
    before = world.ledger.snapshot().groups
    world.finish("g-0")
    after = world.ledger.snapshot().groups
    assert [key for key in before if before[key] is not after[key]] == [world.decision("g").key]


def test_a_view_follows_a_pinned_member_to_another_node_and_stays_as_it_is_for_a_call() -> None:
    world = ready()
    world.answer("g-0")
    before = world.ledger.snapshot().groups[key("g")]
    assert world.hold("g-0", "a") is None
    assert world.ledger.snapshot().groups[key("g")] is before
    assert world.hold("g-0", "b") is None
    view = world.ledger.snapshot().groups[key("g")]
    assert [(member.name, where) for member, where in view.assumed_pods] == [("g-0", "b")]


def test_a_queue_requests_what_its_groups_request_now() -> None:
    world = World(node("a", cpu="2"), gang("g", 3)[:-1]).settle()
    assert world.ledger.snapshot().queues["default"].requested["cpu"] == 2000
    world.add(pod("g-2", group="g"))
    assert world.ledger.snapshot().queues["default"].requested["cpu"] == 3000


def test_planned_members_are_released() -> None:
    world = World(node("a"), gang("g", 2, min_member=1)).settle()
    first = [claim.pod.name for claim in world.ledger.claims_to_release()]
    assert first == list(world.plan("g"))
    world.scheduler_takes(*first).settle()
    assert [claim.pod.name for claim in world.ledger.claims_to_release()] == list(world.plan("g"))


def test_a_pod_that_comes_again_under_its_name_queues_again() -> None:
    world = (
        World(node("a"), pod("p"))
        .start(single("p"))
        .delete("p")
        .add(pod("p", cpu="9", uid="second"))
        .settle()
    )
    assert (world.verdict(single("p")), world.reason(single("p"))) == (Verdict.WAITING, Reason.NEVER_FITS)


def test_a_group_does_not_run_fully_by_pods_that_came_before_its_podgroup() -> None:
    world = World(node("a"), pod("g-0", "g", on="a"), pod("g-1", "g", cpu="9")).settle()
    assert not world.add(group("g", 2)).settle().stood_whole("g")


def test_changed_labels_change_the_pods_that_terms_select() -> None:
    world = World(
        nodes("a"), pod("old", on="a", labels={"app": "x"}), pod("new", affinity=anti_affinity(app="x"))
    ).settle()
    assert world.verdict(single("new")) is Verdict.WAITING
    assert (
        world.add(pod("old", on="a", labels={"app": "y"})).settle().verdict(single("new")) is Verdict.STARTING
    )


@pytest.fixture
def called_twice() -> World:
    """Return a world where a second call holds the claim, with the first binding to the only node in flight.

    The scheduler was restarted in between.
    """
    world = World(node("a", cpu="1"), pod("p", cpu="1")).settle()
    world.answer("p")
    assert world.ledger.assumed_pods.hold(Uid("uid-p"), "a", 1) is None
    assert len(world.confirm(single("p")).claims_to_post) == 1
    assert world.ledger.assumed_pods.hold(Uid("uid-p"), "a", 2) is None
    return world


def test_a_second_call_that_is_cancelled_leaves_the_capacity_of_a_pending_binding(
    called_twice: World,
) -> None:
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), 2)
    assert called_twice.stage("p") is ClaimStage.POSTED
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), 1)
    assert called_twice.stage("p") is None


def test_a_failed_binding_leaves_the_capacity_to_the_newer_call_until_that_ends(called_twice: World) -> None:
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), 1)
    assert called_twice.stage("p") is ClaimStage.HELD
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), 2)
    assert called_twice.stage("p") is None


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_capacity_is_free_when_the_last_of_several_bindings_failed(
    called_twice: World, order: tuple[int, int]
) -> None:
    assert len(called_twice.confirm(single("p")).claims_to_post) == 1
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), order[0])
    assert called_twice.stage("p") is ClaimStage.POSTED
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), order[0])
    assert called_twice.stage("p") is ClaimStage.POSTED, "each ends once"
    called_twice.ledger.assumed_pods.release(Uid("uid-p"), order[1])
    assert called_twice.stage("p") is None


def test_a_claim_does_not_move_while_a_binding_is_pending(called_twice: World) -> None:
    """It may arrive at the node that it named."""
    called_twice.add(node("b", cpu="1"))
    assert called_twice.answer("p", ["b"]) is Reason.NO_ROOM
    assert called_twice.hold("p", "b") is Reason.NO_ROOM
    called_twice.add(node("a", cpu="1", cordoned=True))
    assert len(called_twice.confirm(single("p")).lost_claims) == 1
    assert called_twice.stage("p") is ClaimStage.POSTED, "only the newer call has lost it"


# ---- what was whole between two decisions


@each_of((None, 3), (2, 2))
def test_a_group_runs_fully_once_as_many_have_started_as_it_needs(
    reduced_to: int | None, enough: int
) -> None:
    """A job that starts with fewer pods than its PodGroup says needs no more of them."""
    empty_group = Group(key("g"))
    empty_group.put_record(group_record(group("g", 3)), version=1)
    empty_group.reduced_to = reduced_to
    for number in range(3):
        assert empty_group.has_fully_run is (number >= enough)
        empty_group.record_started(pod_record(pod(f"g-{number}", "g", on="n"), Shapes(), is_ours=True))
    assert empty_group.has_fully_run
