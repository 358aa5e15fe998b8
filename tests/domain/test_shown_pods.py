"""Pods shown to a scheduler that reads through Muster, and the time at which they are shown."""

from itertools import product
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Condition
from extender.domain.ledger.claims import ClaimStage
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.releases import MAX_NOMINATED_PODS, Bypasses
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Reason, Verdict, refusal
from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import AS_STORED, Appearance
from tests.domain.builders import SCHEDULER, foreign_pod, node, pod, queue
from tests.domain.job_world import JobWorld, job, pod_of
from tests.domain.world import LIMITS, World, gang, nodes
from tests.rows import each_of

MESSAGE = "0/2 nodes are available: 2 Insufficient magic."


def through_proxy(*objects: Any) -> World:
    return World(*objects, through_proxy=True).settle()


def test_without_the_view_nothing_is_shown() -> None:
    world = World(node("a"), gang("g", 2, gated=False)).settle()
    assert world.shown() == {}
    assert world.shows() == {}


def test_a_gang_that_may_start_appears_at_once_with_its_nodes() -> None:
    world = through_proxy(nodes("a", "b", cpu="1"), gang("g", 2, gated=False))
    plan = world.plan("g") or {name: claim.node for name in world.pods if (claim := world.claim(name))}
    assert world.shows() == {name: Appearance(where) for name, where in plan.items()}
    assert len(plan) == 2
    assert [world.stage(name) for name in plan] == [ClaimStage.ANSWERED, ClaimStage.ANSWERED]


def test_a_pending_pod_is_hidden() -> None:
    assert through_proxy(node("a", cpu="1"), gang("g", 2, gated=False)).shows() == {}


def test_a_shown_pod_keeps_its_node_whatever_is_decided_later() -> None:
    world = through_proxy(node("a", cpu="1"), gang("g", 1, gated=False, min_member=1))
    world.add(node("b", cpu="1")).settle()
    world.pass_time(30)
    assert list(world.shown()) == ["g-0"]
    assert [claim.node for name in world.pods if (claim := world.claim(name))] == ["a"]


def test_a_pod_with_our_gate_appears_and_may_be_bound_once_the_gate_is_off() -> None:
    world = through_proxy(node("a"), gang("g", 2))
    assert world.shown() == {}
    assert world.stage("g-0") is ClaimStage.PLANNED
    assert world.hold("g-0", "a") is Reason.NOT_READY
    world.ungate("g-0", "g-1").settle()
    assert set(world.shown()) == {"g-0", "g-1"}
    assert world.hold("g-0", "a") is None


def test_a_pod_with_a_gate_of_others_never_appears() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False, foreign_gate="example.com/wait"))
    assert world.shown() == {}


def test_the_number_of_nominated_pods_on_a_node_is_limited() -> None:
    many = 3 * MAX_NOMINATED_PODS
    world = through_proxy(node("a", cpu="100"), gang("g", many, gated=False))
    assert len(world.shown()) == MAX_NOMINATED_PODS
    first = list(world.shown())
    for name in first:
        assert world.hold(name, "a") is None
    world.settle()
    assert len(world.shown()) == 2 * MAX_NOMINATED_PODS
    assert set(world.shows()) > set(first)


def test_a_bound_or_deleted_pod_is_not_hidden_again() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.shows()
    world.bind("g-0", "a")
    world.delete("g-1").settle()
    assert world.shows() == {}
    assert world.shown() == {}


def test_a_gang_that_may_start_no_more_disappears_before_its_bind_calls_fail() -> None:
    world = through_proxy(nodes("a", "b", cpu="1"), gang("g", 2, gated=False))
    world.shows()
    world.hold("g-0", world.claim("g-0").node)  # type: ignore[union-attr]
    world.delete("g-1")
    world.ledger.publish(world.decide())
    while world.verdict("g") is Verdict.STARTING:
        world.advance(5)
        world.ledger.publish(world.decide())
    assert world.stage("g-0") is ClaimStage.HELD
    assert world.shows() == {"g-0": None}


def test_a_refused_pod_disappears_and_comes_back_with_another_node() -> None:
    world = through_proxy(nodes("a", "b", cpu="2"), gang("g", 2, gated=False, cpu="2"))
    before = world.shown()["g-0"].node
    world.add(node("c", cpu="2")).settle()
    world.shows()
    assert world.report("g-0", MESSAGE)
    world.settle()
    assert world.shows() == {"g-0": None}
    world.pass_time(0.6)
    assert world.settle().shows() == {"g-0": Appearance(has_marker=True)}, (
        "it may not have known of the capacity"
    )
    world.report("g-0", MESSAGE)
    assert world.settle().shows() == {"g-0": None}, "nor of the new node"
    world.pass_time(LIMITS.refusal_grace + 0.1)
    assert world.shows() == {"g-1": None}, "a start that is refused has failed"
    world.pass_time(LIMITS.backoff + 0.1)
    claim = world.claim("g-0")
    assert claim is not None
    assert claim.node != before
    assert world.shows() == {"g-0": Appearance(has_marker=True), "g-1": Appearance("c")}, (
        "it may find another"
    )


def test_a_pod_refused_for_one_that_has_left_comes_back_when_the_scheduler_hears_of_that() -> None:
    """Muster knew before: the scheduler's watch may be behind."""
    world = through_proxy(
        node("a", cpu="2"), foreign_pod("left", on="a", cpu="2"), gang("g", 1, gated=False, cpu="2")
    )
    world.delete("left").settle()
    _refuse_twice(world)
    world.ledger.shown_pods.record_departure("b")
    world.pass_time(0.6)
    assert world.settle().shown() == {}
    world.ledger.shown_pods.record_departure("a")
    world.pass_time(0.6)
    assert "g-0" in world.settle().shown()


def test_a_node_given_up_for_a_pod_that_has_left_is_planned_again_when_the_scheduler_hears_of_that() -> None:
    world = through_proxy(node("a", cpu="2"), gang("g", 1, gated=False, cpu="2", min_member=1))
    _refuse_twice(world)
    world.pass_time(30)
    assert (world.verdict("g"), world.shown()) == (Verdict.WAITING, {})
    world.ledger.shown_pods.record_departure("a")
    assert "g-0" in world.settle().shown()


def _refuse_twice(world: World, words: str = MESSAGE) -> None:
    """Refuse the pod twice; after the first time it is shown again soon."""
    world.report("g-0", words)
    world.settle().pass_time(0.6)
    assert "g-0" in world.settle().shown()
    world.report("g-0", words)
    assert "g-0" not in world.settle().shown()


# What stands where the scheduler assumes pods whose bindings Muster is about to refuse.
OUTDATED_MESSAGE = (
    "0/6 nodes are available: 1 muster: NoRoom: the suitable nodes lack room, 5 Insufficient cpu."
)


@each_of(
    *product(
        [
            OUTDATED_MESSAGE,
            "0/6 nodes are available: 6 Insufficient cpu.",
            "0/6 nodes are available: 1 node(s) had untolerated taint {a: b}, 5 Insufficient cpu.",
            "0/6 nodes are available: 6 Too many pods. preemption: 0/6 nodes are available: 6 no victims.",
        ],
        [1, 2],
    )
)
def test_a_refusal_although_capacity_is_free_passes_in_seconds(words: str, members: int) -> None:
    world = through_proxy(nodes("a", "b", cpu="2"), gang("g", members, gated=False, cpu="2"))
    _refuse_twice(world, words)
    world.pass_time(0.6)
    assert "g-0" in world.settle().shown()
    assert world.verdict("g") is Verdict.STARTING


def test_a_pod_refused_for_one_that_took_its_node_and_may_not_bind_there_is_shown_again() -> None:
    """The scheduler asks for neither, and counts the capacity as free again after the refusal."""
    groups = [gang(name, 1, gated=False, cpu="2", min_member=1) for name in ("g", "other")]
    world = through_proxy(nodes("a", "b", cpu="2"), *groups)
    planned = [claim.node for name in ("other-0", "g-0") if (claim := world.claim(name))]
    assert world.hold("other-0", planned[1]) is Reason.NO_ROOM
    assert world.answer("g-0", planned[:1]) is Reason.NO_ROOM
    _refuse_twice(world, OUTDATED_MESSAGE.replace("5", "1"))
    world.pass_time(0.6)
    assert "g-0" in world.settle().shown()


def test_a_refusal_for_other_reasons_lasts() -> None:
    for words in (OUTDATED_MESSAGE.replace("cpu", "magic"), OUTDATED_MESSAGE.replace("5", "4 crooked, 1")):
        world = through_proxy(node("a", cpu="2"), gang("g", 1, gated=False, cpu="2", min_member=1))
        _refuse_twice(world, words)
        world.pass_time(30)
        assert (world.reason("g"), world.shown()) == (Reason.REFUSED_BY_SCHEDULER, {})


def test_a_refusal_for_capacity_of_another_nominated_pod_is_retried_ever_more_rarely() -> None:
    """The scheduler reserves capacity for a foreign pod that Muster does not know."""
    world = through_proxy(node("a", cpu="2"), gang("g", 1, gated=False, cpu="2", min_member=1))
    begun, calls = world.now, []
    while world.now < begun + 600:
        if "g-0" in world.shown():
            calls.append(world.now - begun)
            world.report("g-0", OUTDATED_MESSAGE)
            world.settle()
        world.pass_time(1.0)
    assert len([at for at in calls if at < 10]) <= 6
    assert len([at for at in calls if at > 300]) <= 2
    assert len(calls) >= 9, "it is still tried"


def test_a_pod_is_shown_again_after_the_scheduler_reported_the_end_of_its_attempt() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.shows()
    world.hold("g-0", "a")
    world.release("g-0")  # its call failed
    world.settle()
    assert world.shows() == {"g-0": None}
    world.advance(1)
    assert "g-0" not in world.settle().shown()
    world.report("g-0")
    assert world.settle().shown()["g-0"] == Appearance("a")


def test_a_pod_is_shown_again_without_a_report_after_a_while() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.hold("g-0", "a")
    world.release("g-0")
    world.settle()
    assert "g-0" not in world.shown()
    world.pass_time(6)
    assert "g-0" in world.settle().shown()


def test_a_restarted_scheduler_has_no_old_attempts() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.hold("g-0", "a")
    world.release("g-0")
    world.ledger.shown_pods.record_fresh_start()
    assert "g-0" in world.settle().shown()


def test_the_report_of_a_refused_binding_is_not_a_refusal_of_the_node() -> None:
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.hold("g-0", "a")
    world.release("g-0")
    world.settle().report("g-0", refusal(Reason.NO_ROOM))
    world.settle()
    assert world.shown()["g-0"] == Appearance("a")


def test_after_an_error_it_is_shown_again_at_once_and_then_the_start_has_failed() -> None:
    """The first call after a restart of Muster meets a connection that has died."""
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    world.shows()
    world.report("g-0")
    assert world.settle().shown_changes() == [("g-0", None), ("g-0", Appearance(has_marker=True))]
    world.report("g-0")
    assert world.settle().shows() == {"g-0": None}
    world.pass_time(LIMITS.refusal_grace + 0.1)
    assert world.shown() == {}


def test_a_group_of_one_that_loses_its_place_to_others_is_shown_again() -> None:
    """They take it between filter and bind; the only node that is left is not refused for that."""
    world = through_proxy(node("a"), pod("p", gated=False))
    for _ in range(4):
        world.report("p")
        for _ in range(4):  # ever later
            world.settle().pass_time(1.0)
        assert world.shown() == {"p": Appearance(has_marker=True)}
    world.report("p")
    assert world.settle().shown() == {}


def test_a_group_of_one_is_left_to_the_scheduler_s_scoring() -> None:
    world = through_proxy(nodes("a", "b"), pod("p", gated=False))
    assert world.shown() == {"p": AS_STORED}
    assert world.hold("p", "b") is None


@each_of(("Pack", "a"), ("Spread", "b"))
def test_the_placement_of_a_queue_holds_for_groups_of_one(placement: str, where: str) -> None:
    """Apply the placement next to gangs whose claims the scheduler does not know, too."""
    objects = nodes("a", "b"), queue("q", placement=placement)
    world = through_proxy(*objects, foreign_pod("there", "a"), pod("p", gated=False, queue="q"))
    assert world.shown() == {"p": Appearance(where)}


def test_a_single_pod_is_filtered_by_muster_while_a_gang_has_hidden_claims() -> None:
    world = through_proxy(nodes("a", "b"), gang("g", 2, gated=False), pod("p", gated=False))
    assert world.shown()["p"] == Appearance(has_marker=True)


def test_a_pod_is_filtered_by_muster_after_a_refusal_and_not_shown_in_a_loop() -> None:
    world = through_proxy(nodes("a", "b"), pod("p", gated=False))
    world.report("p", refusal(Reason.NO_ROOM))
    assert world.settle().shown() == {"p": Appearance(has_marker=True)}
    world.report("p", refusal(Reason.NO_ROOM))
    assert world.settle().shown() == {}
    world.pass_time(LIMITS.refusal_grace + LIMITS.backoff + 0.1)
    assert world.shown() == {"p": Appearance(has_marker=True)}


def test_pods_that_are_left_to_another_scheduler_disappear() -> None:
    world = through_proxy(nodes("a", "b"), gang("g", 2, gated=False))
    world.shows()
    world.ledger.pods.set_unmanaged(frozenset({SCHEDULER}))
    assert world.settle().shows() == {"g-0": None, "g-1": None}
    assert world.ledger.shown_pods.appearance_of(Uid("uid-g-0")) is None


def test_a_pod_that_is_not_ours_appears_as_it_is() -> None:
    shared = "default-scheduler"
    ledger = Ledger(Ownership(frozenset({shared})), on_shown=lambda: None)
    assert ledger.shown_pods.appearance_of(Uid("uid-s")) is None
    ledger.pods.set_pod(pod("s", gated=False, scheduler=shared))
    assert ledger.shown_pods.appearance_of(Uid("uid-s")) == AS_STORED
    assert ledger.shown_pods.take_changes() == [("uid-s", AS_STORED)]


def test_a_replica_that_loses_the_lead_answers_only_bind_calls() -> None:
    world = through_proxy(nodes("a", "b"), gang("g", 2, gated=False))
    world.shows()
    world.hold("g-0", world.claim("g-0").node)  # type: ignore[union-attr]
    world.ledger.shown_pods.take_all_back()
    assert world.shows() == {"g-1": None}
    assert world.stage("g-0") is ClaimStage.HELD


def test_a_report_about_a_pod_that_is_not_ours_is_passed_on() -> None:
    world = World(node("a"), pod("other", scheduler="default-scheduler", gated=False), through_proxy=True)
    assert not world.report("other", MESSAGE)


def test_a_condition_written_by_others_ends_nothing() -> None:
    """The scheduler's own patches do not reach the API."""
    world = through_proxy(node("a"), gang("g", 2, gated=False))
    before = world.pods["g-0"]
    condition = Condition("PodScheduled", "False", "Unschedulable", refusal(Reason.NO_ROOM))
    world.add(replace(before, status=replace(before.status, conditions=[condition]))).settle()
    assert set(world.shown()) == {"g-0", "g-1"}


def test_memory_ends_with_the_pods() -> None:
    world = through_proxy(node("a"), gang("g", 3, gated=False), pod("p", gated=False))
    world.report("p", refusal(Reason.NO_ROOM))
    world.settle()
    world.delete(*list(world.pods)).settle()
    world.shows()
    reserved = vars(world.ledger.shown_pods._releases)
    assert {
        name: reserved[name] for name in reserved if isinstance(reserved[name], dict | set) and reserved[name]
    } == {}


# ---- a scheduler that reads its pods elsewhere


def test_calls_about_pods_that_were_not_shown_are_counted() -> None:
    world = through_proxy(node("a", cpu="1"))
    world.add(gang("g", 2, gated=False)).settle()
    assert world.ledger.shown_pods.bypasses() == Bypasses()
    world.answer("g-0")
    world.advance(3)
    world.hold("g-1", "a")
    world.advance(5)
    assert world.ledger.shown_pods.bypasses() == Bypasses(2, 5.0)


def test_calls_about_pods_that_were_shown_once_are_not() -> None:
    """The scheduler may not know yet that a pod was withdrawn."""
    world = through_proxy(nodes("a", "b", cpu="1"))
    world.add(gang("g", 2, gated=False)).settle()
    world.answer("g-0")
    world.delete("g-1").settle()
    while world.shown():
        world.pass_time(5)
    world.answer("g-0")
    world.hold("g-0", "a")
    assert world.ledger.shown_pods.bypasses().calls == 0


def test_calls_about_pods_that_another_process_may_have_shown_are_not() -> None:
    """The scheduler was binding them when this one began."""
    world = World(node("a", cpu="1"), gang("g", 2, gated=False), through_proxy=True).settle()
    world.answer("g-0")
    assert world.ledger.shown_pods.bypasses().calls == 0
    world.add(pod("late", gated=False, cpu="2")).settle()
    world.answer("late")
    assert world.ledger.shown_pods.bypasses().calls == 1


def test_without_the_view_every_pod_may_be_asked_about() -> None:
    world = World(node("a", cpu="1")).settle()
    world.add(gang("g", 2, gated=False)).settle()
    world.answer("g-0")
    assert world.ledger.shown_pods.bypasses() == Bypasses()


def test_released_hidden_and_leaving_pods_are_counted() -> None:
    world = through_proxy(nodes("a", "b", cpu="2"), gang("g", 2, gated=False, cpu="2"))
    assert world.ledger.shown_pods.release_counts() == (2, 0, 0)
    world.report("g-0", MESSAGE)
    assert world.ledger.shown_pods.release_counts() == (1, 1, 1)


def test_pods_that_a_job_is_still_to_make_are_not_counted_as_shown() -> None:
    """Its pods come one by one: those to come have claims, and would stay nominated."""
    world = JobWorld(node("a", cpu="4"), through_proxy=True).submit(job("train", 4))
    world.stopped = True
    world.work()
    for number in range(4):
        world.add(pod_of(world.jobs["train"], f"train-{number}")).settle()
        assert set(world.shown()) == set(world.pods_of("train"))
        assert world.ledger.shown_pods.release_counts().released == number + 1
    world.scheduler_takes(*world.pods_of("train")).run(*world.pods_of("train"))
    assert world.ledger.shown_pods.release_counts().released == 0
