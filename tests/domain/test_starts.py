"""Starts under way: completed, moved, undone, tried again."""

from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.pods import PodSpec, Volume
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import Shapes
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import foreign_pod, group, node, pod, queue
from tests.domain.world import LIMITS, World, gang, key, nodes, single
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING


def test_a_gang_starts_whole_and_its_end_causes_no_decision() -> None:
    world = World(nodes("a", cpu="3"), gang("g", 3)).settle()
    assert world.plan("g") == {"g-0": "a", "g-1": "a", "g-2": "a"}
    world.scheduler_takes("g-0", "g-1")
    assert [world.stage(f"g-{n}") for n in range(3)] == [ClaimStage.HELD, ClaimStage.HELD, ClaimStage.PLANNED]
    world.scheduler_takes("g-2")
    assert [world.stage(f"g-{n}") for n in range(3)] == [ClaimStage.BOUND] * 3
    decisions = world.decide()
    world.publish_decisions(decisions)
    assert world.verdict("g") is RUNS
    now = world.ledger.snapshot()
    assert (now.version, now.dirty_groups) == (decisions.version, frozenset())
    assert not world.settle().stood_whole("g")
    assert world.run("g-0", "g-1", "g-2").stood_whole("g")


def test_a_pod_on_its_own_needs_no_barrier() -> None:
    world = World(nodes("a", "b"), pod("p")).settle()
    assert world.answer("p") == ["a", "b"], "the scheduler's own scoring decides"
    world.scheduler_takes("p").settle()
    assert world.verdict(single("p")) is RUNS


def test_two_gangs_that_fit_alone_but_not_together() -> None:
    world = World(node("n"), gang("a", 3, created="2026-01-01"), gang("b", 3, created="2026-01-02")).settle()
    assert world.verdicts("a", "b") == [STARTS, WAITS]
    world.start("a").finish("a-0", "a-1", "a-2").settle()
    assert world.verdict("b") is STARTS


def test_a_start_passes_no_ceiling_that_came_meanwhile() -> None:
    """A planned member went, and another one came. A start that holds capacity continues for a while."""
    for started in ((), ("g-0",)):
        world = World(node("n"), queue("q"), gang("g", 2, queue="q")).settle()
        world.scheduler_takes(*started).add(queue("q", capability={"cpu": "1"}))
        world.delete("g-1").add(pod("g-2", "g")).settle()
        if started:
            assert (world.verdict("g"), world.plan("g")) == (STARTS, {})
            world.pass_time(LIMITS.stall_grace + 1.0)
            assert (world.reason("g"), world.claim_count()) == (Reason.BACKING_OFF, 0)
        else:
            assert (world.reason("g"), world.plan("g"), world.claim_count()) == (Reason.NEVER_FITS, {}, 0)


# ---- short starts


def crashed(limits: Limits | None = None) -> World:
    """Return a start with one of two members bound, begun by a process that is gone."""
    return World(
        node("n"), group("g", 2, admitted=True), pod("g-0", "g", on="n", phase="Pending"), limits=limits
    )


def test_a_start_from_before_a_restart_is_completed() -> None:
    world = crashed().add(pod("g-1", "g")).settle()
    assert (world.verdict("g"), world.plan("g"), world.decision("g").undo) == (STARTS, {"g-1": "n"}, ())
    world.scheduler_takes("g-1").run("g-0", "g-1")
    assert world.settle().verdict("g") is RUNS


def test_an_incomplete_start_is_undone_after_its_deadline() -> None:
    world = crashed(replace(LIMITS, start_deadline_per_member=1.0)).settle()
    assert world.detail("g") == "1 of 2 members exist"
    world.pass_time(31.9)
    assert (world.verdict("g"), world.decision("g").undo) == (STARTS, ())
    world.pass_time(0.2)
    assert (world.verdict("g"), world.reason("g")) == (WAITS, Reason.BACKING_OFF)
    assert world.decision("g").undo == ("uid-g-0",)
    assert world.detail("g") == "the group was not fully running within its deadline"


def test_failures_of_a_start_are_seen_without_events_of_its_pods() -> None:
    world = crashed().settle()
    world.pass_time(32.0)
    assert world.ledger.snapshot().groups[key("g")].job.start_timeouts == 1
    world = World(group("g", 2, admitted=True), [pod(name, "g") for name in ("g-0", "g-1")]).settle()
    assert world.ledger.snapshot().groups[key("g")].history.resumes
    world.settle().add(node("n")).settle()
    assert world.verdict("g") is STARTS
    assert not world.ledger.snapshot().groups[key("g")].history.resumes


def test_a_failed_start_evicts_until_its_members_are_gone() -> None:
    world = crashed().settle()
    world.pass_time(32.0)
    world.pass_time(1.0)
    assert world.decision("g").undo == ("uid-g-0",)
    assert world.delete("g-0").settle().decision("g").undo == ()


def test_losing_members_after_running_fully_undoes_no_member() -> None:
    world = World(node("n"), group("g", 2, stood_whole=True), pod("g-0", "g", on="n")).settle()
    world.pass_time(10_000)
    assert (world.verdict("g"), world.decision("g").undo) == (RUNS, ())


def test_a_member_that_the_kubelet_refused_is_replaced_in_time_or_all_are_undone() -> None:
    world = World(node("n"), gang("g", 2)).settle().scheduler_takes("g-0", "g-1").settle()
    world.finish("g-1", phase="Failed").settle()
    assert (world.verdict("g"), world.decision("g").undo) == (STARTS, ())
    replaced = world.add(pod("g-2", "g")).settle()
    assert replaced.plan("g") == {"g-2": "n"}
    world.delete("g-2")
    world.pass_time(31.0)
    assert world.decision("g").undo == ("uid-g-0",)


def undo(world: World, times: int) -> None:
    """Refuse a member of each start on its node and evict the others; all are made again."""
    for _ in range(times):
        world.advance(LIMITS.backoff_max).settle().scheduler_takes("g-0", "g-1").settle()
        world.finish("g-1", phase="Failed").settle()
        world.pass_time(31.0)
        assert world.decision("g").undo == ("uid-g-0",)
        world.delete("g-0", "g-1").add(pod("g-0", "g"), pod("g-1", "g")).settle()


def test_a_gang_that_was_undone_three_times_in_a_row_is_held_until_it_is_resumed() -> None:
    world = World(node("n"), gang("g", 2)).settle()
    undo(world, 2)
    assert world.reason("g") is Reason.BACKING_OFF
    undo(world, 1)
    world.pass_time(10_000)
    assert (world.reason("g"), world.figures("g")) == (Reason.START_TIMED_OUT, ["3"])
    assert world.ledger.groups.history(key("g"))[3] == 3
    world.add(group("g", 2, annotations={keys.START_TIMEOUTS: "3"})).settle()
    assert world.reason("g") is Reason.START_TIMED_OUT
    assert world.add(group("g", 2)).settle().verdict("g") is STARTS


def test_undone_starts_are_counted_over_restarts_and_from_zero_once_it_stands() -> None:
    world = World(node("n"), group("g", 2, annotations={keys.START_TIMEOUTS: "2"}), pod("g-0", "g"))
    world.add(pod("g-1", "g")).settle().scheduler_takes("g-0", "g-1").run("g-0", "g-1").settle()
    assert (world.verdict("g"), world.ledger.groups.history(key("g"))[3]) == (RUNS, 0)
    short = World(node("n"), group("g", 2, annotations={keys.START_TIMEOUTS: "2"}), pod("g-0", "g"))
    undo(short.add(pod("g-1", "g")), 1)
    assert short.reason("g") is Reason.START_TIMED_OUT


def test_starts_that_end_before_a_member_is_bound_are_tried_without_end() -> None:
    world = World(nodes("a"), gang("g", 2)).settle()
    for _ in range(5):
        for name in world.plan("g"):
            world.refuse(name)
        world.pass_time(LIMITS.backoff_max + 1.0)
    assert world.reason("g") is not Reason.START_TIMED_OUT


def test_members_whose_volumes_take_long_have_until_the_bind_deadline() -> None:
    world = World(nodes("a", cpu="3"), gang("g", 3)).settle().scheduler_takes("g-0", "g-1").ungate("g-2")
    assert isinstance(world.answer("g-2"), list)
    world.pass_time(LIMITS.start_deadline - 1.0)
    assert world.verdict("g") is STARTS
    world.pass_time(2.0)
    assert world.reason("g") is Reason.BACKING_OFF


def test_a_gang_whose_members_run_is_not_undone_for_one_that_still_pulls_its_image() -> None:
    world = World(node("n"), gang("g", 3)).settle().scheduler_takes("g-0", "g-1", "g-2").run("g-0", "g-1")
    world.settle()
    assert not world.stood_whole("g")
    world.pass_time(LIMITS.whole_grace + 1.0)
    assert world.stood_whole("g")
    world.delete("g-2")
    world.pass_time(1_000.0)
    assert (world.verdict("g"), world.decision("g").undo) == (RUNS, ())


def test_a_member_that_its_kubelet_refuses_within_the_grace_is_a_failure() -> None:
    world = World(node("n"), gang("g", 2)).settle().scheduler_takes("g-0", "g-1").run("g-0").settle()
    world.pass_time(5.0)
    world.finish("g-1", phase="Failed")
    world.pass_time(1_000.0)
    assert world.decision("g").undo == ("uid-g-0",)
    assert not world.stood_whole("g")


# ---- backing off


def test_deadline_and_backoff_grow_up_to_their_limits() -> None:
    limits = Limits(start_deadline=100.0, start_deadline_base=10.0, start_deadline_per_member=1.0)
    assert [limits.deadline(members) for members in (1, 50, 500)] == [11.0, 60.0, 100.0]
    limits = Limits(backoff=5.0, backoff_max=60.0)
    assert [limits.retry_after(n) for n in (0, 1, 2, 3, 4, 1000)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_failed_starts_wait_longer_each_time() -> None:
    world = World(node("n"), gang("g", 2), limits=replace(LIMITS, backoff_max=15.0, refusal_memory=1.0))
    waits = []
    for n in range(3):
        world.settle().ungate("g-0", "g-1")
        world.refuse("g-0", f"0/1 nodes are available: refusal {n}.")
        world.pass_time(2.5)
        assert world.reason("g") is Reason.BACKING_OFF
        waits.append(world.decision("g").retry_at - world.now)
        world.pass_time(waits[-1] + 0.1)
    assert waits == pytest.approx([4.5, 9.5, 14.5])  # half a second of each has passed


def test_a_start_that_succeeds_forgets_the_failures() -> None:
    world = World(node("n"), gang("g", 2)).settle().ungate("g-0", "g-1")
    world.refuse("g-0")
    world.pass_time(3.0)
    world.ledger.intake.drop_node("n")
    world.pass_time(10.0)
    world.add(node("n")).start("g")
    assert world.ledger.snapshot().groups[key("g")].start.failures == 0


def test_a_failed_start_frees_its_capacity_at_once() -> None:
    world = World(node("n", cpu="2"), gang("g", 2), gang("h", 3, cpu="500m", created="2026-01-02"))
    world.settle().ungate("g-0", "g-1").refuse("g-0")
    world.pass_time(3.0)
    assert (world.reason("g"), world.verdict("h")) == (Reason.BACKING_OFF, STARTS)
    assert world.claim("g-0") is world.claim("g-1") is None


def test_a_gang_that_waits_too_long_for_a_member_is_given_up() -> None:
    world = World(node("n", cpu="2"), gang("g", 2)).settle().scheduler_takes("g-0").ungate("g-1")
    world.delete("g-1")
    world.pass_time(9.0)
    assert world.stage("g-0") is ClaimStage.HELD
    world.pass_time(1.5)
    assert world.reason("g") is Reason.NOT_ENOUGH_MEMBERS
    assert world.claim("g-0") is None, "held members are released"


# ---- refusals by the scheduler


def test_a_refused_member_finds_another_node_by_itself_or_its_start_has_failed() -> None:
    """The scheduler looks at all nodes each time it is asked."""
    for finds_one in (True, False):
        world = World(node("a", cpu="2"), gang("g", 2)).settle().ungate("g-0", "g-1").add(node("b"))
        world.scheduler_takes("g-1")
        world.refuse("g-0")
        world.pass_time(1.0)
        assert world.plan("g") == {"g-0": "a"}, "the scheduler's view may lag ours"
        assert world.stage("g-1") is ClaimStage.HELD
        if finds_one:
            world.scheduler_takes("g-0", offered=["b"])
        world.pass_time(1.5)
        assert world.verdict("g") is (RUNS if finds_one else WAITS)
    assert (world.reason("g"), world.claim_count()) == (Reason.BACKING_OFF, 0)


def test_a_start_that_is_refused_says_so_while_it_continues() -> None:
    world = World(nodes("a", "b", cpu="2"), gang("g", 2)).settle().ungate("g-0", "g-1")
    world.refuse("g-0", "0/2 nodes are available: 2 too crooked.")
    world.settle()
    assert (world.verdict("g"), world.reason("g")) == (STARTS, Reason.REFUSED_BY_SCHEDULER)
    assert world.detail("g") == "0/2 nodes are available: 2 too crooked."
    world.scheduler_takes("g-0", "g-1")
    assert (world.settle().verdict("g"), world.reason("g")) == (RUNS, None)


def test_a_refusal_from_before_a_start_is_not_held_against_it() -> None:
    """No node was nominated then: the scheduler and Muster both reported insufficient capacity."""
    world = World(nodes("a", cpu="4"), foreign_pod("s", on="a", cpu="4"), gang("g", 2, gated=False)).settle()
    world.refuse("g-0", "0/1 nodes are available: 1 Insufficient cpu.")
    world.settle().delete("s").settle()
    assert (world.verdict("g"), world.reason("g")) == (STARTS, None)
    world.add(node("b", cpu="4")).refuse("g-0", "0/2 nodes are available: 2 too crooked.")
    world.pass_time(1.0)
    assert (world.verdict("g"), world.reason("g")) == (STARTS, Reason.REFUSED_BY_SCHEDULER)


@each_of(*product([True, False], [8, 250]))
def test_a_start_that_is_refused_fails_whatever_its_size(through_proxy: bool, members: int) -> None:
    """A claim that does not exist. The large gang covers all nodes at once, the small one not even one."""
    world = World(nodes(*(f"n{n}" for n in range(20)), cpu="15"), through_proxy=through_proxy).advance(10.0)
    world.add(gang("g", members))
    waits = []
    for turn in range(3):
        world.settle().ungate(*(f"g-{n}" for n in range(members))).settle()
        begun = world.now
        while world.verdict("g") is STARTS:
            for name in list(world.shown()):
                world.report(name, "0/20 nodes are available: no such claim.")
            if not through_proxy and world.now == begun:
                world.refuse("g-0", f"0/20 nodes are available: no such claim ({turn}).")
            world.pass_time(0.5)
            world.settle()
        assert world.now - begun <= LIMITS.refusal_grace
        assert "no such claim" in world.detail("g")
        assert world.ledger.snapshot().groups[key("g")].start.failures == turn + 1
        assert world.claim_count() == 0, "its places in the window are free"
        waits.append(world.decision("g").retry_at - world.now)
        world.pass_time(waits[-1])
    assert waits == pytest.approx([5.0, 10.0, 20.0], abs=0.5)


def test_a_new_plan_does_not_put_off_the_deadline_of_a_start() -> None:
    """The nodes that it is planned on vanish, one after the other."""
    world = World(nodes("n0", cpu="2"), gang("g", 2)).settle().ungate("g-0", "g-1")
    begun = world.now
    for turn in range(1, 20):
        world.pass_time(5.0)
        if world.verdict("g") is not STARTS:
            break
        world.add(node(f"n{turn}", cpu="2")).drop_node(f"n{turn - 1}")
        world.settle()
    assert world.reason("g") is Reason.BACKING_OFF
    assert world.now - begun <= LIMITS.deadline(2) + 5.0


def test_a_member_that_never_arrives_moves_too() -> None:
    world = World(nodes("a", "b", cpu="2"), gang("g", 2)).settle().ungate("g-0", "g-1")
    first = world.plan("g")["g-0"]
    world.scheduler_takes("g-1")
    world.pass_time(15.5)
    assert world.plan("g")["g-0"] != first


def test_a_refusal_by_muster_does_not_count_as_one_of_the_scheduler() -> None:
    world = World(node("a"), gang("g", 2)).settle().ungate("g-0", "g-1")
    world.refuse("g-0", "0/1 nodes are available: 1 muster: NoRoom: the suitable nodes lack room.")
    world.pass_time(3.0)
    assert world.verdict("g") is STARTS


def test_a_refusal_counts_for_pods_of_the_same_shape_until_the_node_changes_or_a_pod_leaves_it() -> None:
    changes: list[Callable[[World], object]] = [
        lambda world: world.add(node("a", labels={"new": "label"})),
        lambda world: world.delete("s"),
        lambda world: world.pass_time(54.5),
    ]
    for change in changes:
        world = World(node("a"), foreign_pod("s", on="a"), gang("g", 1)).settle().ungate("g-0")
        world.refuse("g-0")
        world.pass_time(8.0)
        world.add(gang("same", 1), gang("other", 1, cpu="2")).settle()
        assert [world.reason(name) for name in ("g", "same")] == [Reason.REFUSED_BY_SCHEDULER] * 2
        assert world.verdict("other") is STARTS
        change(world)
        assert world.settle().verdict("g") is STARTS


def test_a_refusal_outlives_the_start_that_met_it() -> None:
    """Members that were answered leave a node as the scheduler knew it: the same plan would fail again."""
    world = World(node("a"), gang("g", 2)).settle().ungate("g-0", "g-1")
    world.scheduler_takes("g-1")
    world.refuse("g-0", "0/1 nodes are available: 1 too crooked.")
    world.pass_time(3.0)
    assert world.reason("g") is Reason.BACKING_OFF
    world.pass_time(LIMITS.backoff)
    assert world.reason("g") is Reason.REFUSED_BY_SCHEDULER
    assert "too crooked" in world.detail("g")


def test_fields_that_only_the_scheduler_evaluates_make_a_separate_shape() -> None:
    spread = PodSpec(topology_spread_constraints=msgspec.Raw(b'[{"maxSkew":1}]'))
    claim = PodSpec(volumes=[Volume(persistent_volume_claim=msgspec.Raw(b'{"claimName":"data"}'))])
    token = PodSpec(volumes=[Volume()])
    shapes = Shapes()
    plain, same, *others = (shapes.shape_of(spec, "ns") for spec in (PodSpec(), token, spread, claim))
    assert plain is same
    assert len({plain, *others}) == 3


def test_a_refusal_in_one_namespace_does_not_count_for_another() -> None:
    """A claim of the same name may exist there."""
    world = World(nodes("a", "b"), gang("g", 2)).settle().ungate("g-0", "g-1")
    for turn in range(2):
        for name in ("g-0", "g-1"):
            world.refuse(name, f"0/2 nodes are available: no such claim ({turn}).")
        world.pass_time(2.5)
        world.pass_time(LIMITS.retry_after(turn))
    assert world.reason("g") is Reason.REFUSED_BY_SCHEDULER
    new_pod = pod("other", gated=False)
    world.add(replace(new_pod, metadata=replace(new_pod.metadata, namespace="elsewhere"))).settle()
    assert world.ledger.decisions.groups[GroupKey("elsewhere/pod:other")].verdict is STARTS
    world.add(gang("same", 1)).settle()
    assert world.reason("same") is Reason.REFUSED_BY_SCHEDULER


# ---- time without a leader or a scheduler


def test_a_start_whose_gates_stay_closed_has_not_failed() -> None:
    world = World(node("a"), gang("g", 2)).settle()
    world.pass_time(10_000.0)
    assert world.verdict("g") is STARTS
    world.ungate("g-0", "g-1")
    world.pass_time(1.0)
    assert world.verdict("g") is STARTS, "the clock starts with the first gate that is open"


def outage() -> World:
    """Return a gang without gates in a cluster without a scheduler."""
    world = World(nodes("a", "b"), gang("g", 2)).settle().advance(1.0)
    world.scheduler_asks = False
    return world.ungate("g-0", "g-1").settle()


def test_half_an_hour_without_a_scheduler_is_no_failed_start_until_it_asks_for_others_again() -> None:
    world = outage()
    first = world.plan("g")
    world.pass_time(1_800.0)
    view = world.ledger.snapshot()
    assert (world.verdict("g"), world.plan("g"), view.refused_rows) == (STARTS, first, {})
    assert view.groups[key("g")].start.failures == 0
    world.scheduler_asks = True
    world.pass_time(14.0)
    assert world.plan("g") == first
    world.pass_time(2.0)
    assert world.plan("g") != first


def test_half_an_hour_without_a_leader_is_no_failed_start() -> None:
    world = World(nodes("a", "b"), gang("g", 2)).settle().ungate("g-0", "g-1").scheduler_takes("g-0")
    first = world.settle().plan("g")
    world.ledger.set_leading(False)
    world.pass_time(1_800.0)
    assert (world.verdict("g"), world.plan("g")) == (STARTS, first)
    world.ledger.set_leading(True)
    world.pass_time(14.0)
    assert world.plan("g") == first
    world.pass_time(2.0)
    assert world.plan("g") != first


def test_a_refused_pod_that_stays_silent_moves_on_in_an_idle_cluster() -> None:
    """The scheduler does not patch an unchanged condition: its second refusal cannot be seen."""
    world = World(nodes("a", "b", cpu="1"), gang("g", 1)).settle().ungate("g-0")
    world.refuse("g-0")
    world.pass_time(3.0)
    second = world.plan("g")
    world.scheduler_asks = False
    world.advance(11.0).pass_time(61.0)
    assert world.plan("g") != second


# ---- capacity that others take


def test_planned_capacity_that_other_pods_take_is_planned_again() -> None:
    world = World(nodes("a", "b", cpu="2"), gang("g", 2)).settle()
    (node_,) = set(world.plan("g").values())
    world.add(foreign_pod("s", on=node_)).settle()
    assert (world.verdict("g"), sorted(world.plan("g").values())) == (STARTS, ["a", "b"]) or set(
        world.plan("g").values()
    ) == {"ab".replace(node_, "")}


def test_a_start_without_free_capacity_waits_again_without_backoff() -> None:
    world = World(nodes("a", cpu="2"), gang("g", 2)).settle().add(foreign_pod("s", on="a")).settle()
    assert (world.verdict("g"), world.reason("g")) == (WAITS, Reason.NO_ROOM)
    assert world.delete("s").settle().verdict("g") is STARTS


@each_of(False, True)
def test_a_queue_that_closes_stops_no_start(bound: bool) -> None:
    world = World(node("n"), queue("q"), gang("g", 2, queue="q")).settle()
    if bound:
        world.bind("g-0", "n")
    assert world.add(queue("q", spec_state="Closed")).settle().verdict("g") is STARTS


# ---- pods that name their node from the beginning


def seeded(**world: Any) -> World:
    """Return a group that was created with one member on a node; no start was admitted."""
    world_ = World(node("n", cpu="32"), queue("q", **world))
    return world_.add(group("g", 8, "q"), [pod(f"g-{n}", "g", queue="q") for n in range(1, 8)])


@each_of(
    *product(
        [False, True],
        [
            ({"capability": {"cpu": "4"}}, {Reason.QUEUE_CEILING, Reason.NEVER_FITS}),
            ({"spec_state": "Closed"}, {Reason.QUEUE_NOT_OPEN}),
        ],
    )
)
def test_a_bound_pod_takes_no_waiting_group_past_a_ceiling_or_into_a_closed_queue(
    waits_first: bool, limit: tuple[dict[str, Any], set[Reason]]
) -> None:
    fields, reasons = limit
    world = seeded(**fields)
    if waits_first:
        world.settle()
    world.add(pod("g-0", "g", queue="q", on="n")).settle()
    assert (world.verdict("g"), world.decision("g").plan) == (WAITS, {})
    assert world.reason("g") in reasons


def test_a_seed_does_not_overtake() -> None:
    world = World(node("n", cpu="8"), queue("q"), gang("first", 6, queue="q", created="2026-01-01"))
    world.add(group("g", 4, "q", created="2026-01-02", phase="Inqueue"))
    world.add([pod(f"g-{n}", "g", queue="q") for n in range(1, 3)]).settle()
    world.ledger.intake.drop_node("n")
    world.settle().add(node("n", cpu="8"), pod("g-0", "g", queue="q", on="n"), pod("g-3", "g", queue="q"))
    assert world.settle().verdicts("first", "g") == [STARTS, WAITS]


def test_members_beyond_the_minimum_do_not_follow_a_seed_into_a_closed_queue() -> None:
    world = World(node("n"), queue("q", spec_state="Closed"), group("g", 1, "q"))
    world.add(pod("g-0", "g", queue="q", on="n"), pod("g-1", "g", queue="q")).settle()
    assert (world.verdict("g"), world.reason("g")) == (RUNS, Reason.QUEUE_NOT_OPEN)
    assert not world.plan("g")


def test_a_start_left_by_a_crash_is_not_completed_beyond_the_ceiling() -> None:
    world = World(node("n"), queue("q", capability={"cpu": "1"}), group("g", 2, "q", admitted=True))
    world.add(pod("g-0", "g", queue="q", on="n", phase="Pending"), pod("g-1", "g", queue="q")).settle()
    assert (world.verdict("g"), world.decision("g").undo) == (WAITS, ("uid-g-0",))
    assert "cpu" in world.detail("g")


# ---- a PodGroup that goes while its members are left


def test_a_deleted_podgroup_with_one_member_done_and_one_waiting() -> None:
    """Use a queue without other groups, which takes no part in the division."""
    world = World(node("n"), queue("q"), group("g", 1, "q"), pod("g-0", "g", queue="q", on="n")).settle()
    world.add(pod("g-1", "g", queue="q")).finish("g-0")
    world.ledger.intake.drop_group(key("g"))
    assert world.settle().reason("g") is Reason.GROUP_NOT_FOUND


@each_of(("goes", "lost", "comes"), ("lost", "goes", "comes"), ("goes", "comes", "lost"))
def test_a_gang_that_ran_is_not_undone_when_its_podgroup_is_recreated_and_a_member_is_lost(
    order: tuple[str, ...],
) -> None:
    world = World(node("n", cpu="3"), gang("g", 3)).start("g")
    other = group("g", 3)
    acts: dict[str, Callable[[], object]] = {
        "goes": lambda: world.ledger.intake.drop_group(key("g")),
        "lost": lambda: world.delete("g-2"),
        "comes": lambda: world.add(replace(other, metadata=replace(other.metadata, uid="another"))),
    }
    for act in order:
        acts[act]()
        world.settle()
    world.pass_time(LIMITS.start_deadline + 60.0)
    assert world.decision("g").undo == ()
    assert world.stood_whole("g")
    world.add(pod("g-3", "g")).settle()
    assert list(world.plan("g")) == ["g-3"], "it is replaced"


def test_silence_is_looked_at_again_when_the_scheduler_asks_after_all() -> None:
    """Questions alone do not cause a decision, so one has to be due in time to notice them."""
    world = World(nodes("a", "b", cpu="4"), gang("g", 3))
    world.scheduler_asks = False
    world.settle().ungate("g-2")
    world.refuse("g-2")
    world.settle()
    moved_at = world.now + world.ledger.limits.refusal_grace
    world.pass_time(moved_at - world.now)
    requeue_at = world.decisions.requeue_at
    assert requeue_at is not None
    assert moved_at < requeue_at <= moved_at + world.ledger.limits.arrival_grace


@each_of(False, True)
def test_a_lost_member_comes_back_only_below_the_ceiling_that_its_queue_has_by_now(ran_fully: bool) -> None:
    """Hold the member back whether the gang is whole or still starts.

    A member in flight only gets another node.
    """
    world = World(nodes("n", "m"), queue("p"), queue("q"), gang("g", 3, queue="q")).settle()
    if ran_fully:
        world.start("g")
    else:
        world.scheduler_takes("g-0", "g-1", "g-2")
    world.delete("g-2").add(queue("p", capability={"cpu": "2"}), queue("q", parent="p"))
    world.add(pod("g-3", "g")).settle()
    assert not world.plan("g")
    assert "cpu: 2 held + 1 asked > 2" in world.detail("g")
    world.add(queue("p", capability={"cpu": "3"})).settle()
    assert world.plan("g")
    world.add(queue("p", capability={"cpu": "2"})).drop_node(world.plan("g")["g-3"])
    assert world.settle().plan("g").keys() == {"g-3"}
