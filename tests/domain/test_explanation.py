"""Explanation of a waiting group: holders of the missing capacity, and a change that really starts it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import QueueLimits
from extender.domain.explain.explain import WhyGroup, explain_group
from extender.domain.explain.holders import StartChange
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.records import RESERVE_AFTER
from tests.domain.builders import (
    NAMESPACE,
    budget,
    flavor,
    foreign_pod,
    group,
    node,
    on_flavor,
    pod,
    preemption,
    queue,
)
from tests.domain.test_local_queues import AI, SELECTS_AI, labelled, local
from tests.domain.test_local_queues import namespace as of_labels
from tests.domain.world import LIMITS, World, gang, key, nodes, timestamp
from tests.property_examples import examples
from tests.rows import each_of

STARTS = Verdict.STARTING
GPU = "nvidia.com/gpu"
NEVER = preemption(within_queue="Never", unmanaged="Never")
LATER = preemption(after="10m", at_most="1h")


def small(*objects: Any, cpu: str = "4", **more: Any) -> World:
    """Return a world of one node and a queue that takes no capacity from others."""
    return World(node("n", cpu=cpu), queue("q", preemption=NEVER), *objects, **more)


def why(world: World, name: str) -> WhyGroup:
    found = explain_group(world.decisions, key(name))
    assert found is not None
    return found


def change(world: World, name: str) -> StartChange:
    found = why(world, name).change
    assert found is not None, why(world, name)
    return found


def small_gang(name: str, size: str = "1", created: str = "", members: int = 1, **more: Any) -> list[object]:
    return gang(name, members, queue="q", cpu=size, created=created, **more)


def end(world: World, *names: str) -> World:
    """End the named objects at once: `namespace/name` of groups or pods of others."""
    for each in names:
        name = each.partition("/")[2]
        members = [pod.name for pod in world.ledger.groups.members(key(name))] or [name]
        world.finish(*members).delete(*members)
        world.ledger.intake.drop_group(key(name))
    return world.settle()


# ---- free capacity


@each_of((60.0, "1 being deleted"), (-60.0, "1 being deleted and should have gone at {at}"))
def test_pods_that_are_going_are_named_before_others(after: float, going: str) -> None:
    """Name pods that are being deleted first, pods of others included.

    The time is when they should have gone, if their kubelets have not released them yet.
    """
    world = small(pod("s", cpu="1", on="n", scheduler=keys.DEFAULT_SCHEDULER, gated=False))
    world.add(small_gang("a", "2"), small_gang("c", "1")).start("a", "c").add(small_gang("b", "2")).settle()
    at = timestamp(world.now + after)
    before = world.pods["a-0"]
    world.add(replace(before, metadata=replace(before.metadata, deletion_timestamp=at))).settle()
    assert change(world, "b").text == f"once team/a (1 pod, {going.format(at=at)}) ends"
    reported = {holder.name: (holder.deleting, holder.overdue) for holder in why(world, "b").holders}
    assert reported == {"team/a": (1, at if after < 0 else ""), "team/c": (0, ""), "team/s": (0, "")}
    before = world.pods["s"]
    world.add(replace(before, metadata=replace(before.metadata, deletion_timestamp=at)))
    world.add(small_gang("d", "1")).settle()
    assert change(world, "d").text == f"once pod team/s ({going.format(at=at).removeprefix('1 ')}) ends"


def test_a_holding_group_is_named() -> None:
    world = (
        small()
        .add(small_gang("a", "3", "2026-01-01"))
        .start("a")
        .add(small_gang("b", "2", "2026-01-02"))
        .settle()
    )
    assert world.reason("b") is Reason.NO_ROOM
    shown = why(world, "b")
    assert [(holder.name, holder.queue, holder.pods, holder.amounts) for holder in shown.holders] == [
        ("team/a", "q", 1, {"cpu": 3000})
    ]
    assert shown.change == StartChange("once team/a (1 pod) ends", ends=("team/a",))
    assert (shown.position, shown.waiting) == (1, 1)
    assert shown.message.startswith(f"{world.detail('b')}; position 1 ")
    assert end(world, "team/a").verdict("b") is STARTS


def test_a_group_that_muster_made_is_called_by_its_owner() -> None:
    new_group = group("podgroup-uid-train", 1, "q")
    owners = [OwnerReference("batch/v1", "Job", "train", "uid-train", True)]
    new_group = replace(new_group, metadata=replace(new_group.metadata, owner_references=owners))
    world = small().add(new_group, pod("train-0", "podgroup-uid-train", cpu="3")).start("podgroup-uid-train")
    world.add(small_gang("b", "2")).settle()
    ends = ("team/podgroup-uid-train",)
    assert change(world, "b") == StartChange("once team/job/train (1 pod) ends", ends=ends)


def test_a_holding_pod_of_another_scheduler_is_named() -> None:
    world = small(foreign_pod("s", on="n", cpu="3")).add(small_gang("b", "2")).settle()
    assert [(holder.name, holder.queue) for holder in why(world, "b").holders] == [("team/s", "")]
    assert change(world, "b") == StartChange("once pod team/s ends", ends=("team/s",))
    assert end(world, "team/s").verdict("b") is STARTS


def test_pods_that_are_there_to_stay_are_not_waited_for() -> None:
    """Wait for pods of others only where no group gives enough, and never for (smaller) pods of nodes."""
    daemon = foreign_pod("daemon", on="n", priority=keys.SYSTEM_PRIORITY)

    def ends(size: str) -> tuple[str, ...]:
        world = small(daemon, foreign_pod("s", on="n")).add(small_gang("a", "2")).start("a")
        return change(world.add(small_gang("b", size)).settle(), "b").ends

    assert (ends("1"), ends("3"), ends("4")) == (("team/a",), ("team/a", "team/s"), ())


def test_only_needed_groups_are_suggested_to_end() -> None:
    world = (
        small(cpu="8")
        .add(small_gang("a", "2"), small_gang("b", "3"), small_gang("c", "3"))
        .start("a", "b", "c")
    )
    world.add(small_gang("d", "6")).settle()
    found = change(world, "d")
    assert found.ends == ("team/b", "team/c")
    assert end(world, *found.ends).verdict("d") is STARTS


def test_groups_on_nodes_reserved_for_the_group_are_suggested_to_end() -> None:
    """Others are as good; but the same message names these nodes."""
    world = World(*nodes("k", "l", "m", "n", cpu="4"), queue("q", preemption=NEVER))
    for number, name in enumerate("yzab"):
        world.add(small_gang(name, "4", f"2026-01-0{number + 1}")).start(name)
    world.add(small_gang("wide", "4", timestamp(world.now), members=2)).pass_time(RESERVE_AFTER + 1.0)
    where = {world.ledger.groups.members(key(name))[0].node for name in "yz"}
    reservation = world.decision("wide").reservation
    assert reservation is not None
    assert set(reservation.nodes.values()) == where
    found = change(world, "wide")
    assert found.ends == ("team/y", "team/z")
    assert end(world, *found.ends).verdict("wide") is STARTS


def test_one_more_node_is_suggested_where_no_group_can_be_evicted() -> None:
    world = (
        World(*nodes("n", "m", cpu="4"), queue("q", preemption=NEVER))
        .add(small_gang("b", "3", members=4))
        .settle()
    )
    assert world.reason("b") is Reason.NEVER_FITS
    assert change(world, "b").text == "with 2 more nodes like n (cpu 4)"
    world.add(node("n2", cpu="4"), node("n3", cpu="4")).settle()
    assert world.verdict("b") is STARTS


def test_the_suggested_node_holds_the_most_members_by_all_their_resources() -> None:
    cpu_node, gpu_node = node("c", cpu="64", more={GPU: "1"}), node("g", cpu="4", more={GPU: "16"})
    world = World(cpu_node, gpu_node, node("even", cpu="16", more={GPU: "4"}), queue("q", preemption=NEVER))
    world.add(small_gang("b", "4", members=8, more={GPU: "1"})).settle()
    assert change(world, "b").text.startswith("with 1 more node like even ")


def test_the_number_of_nodes_for_one_that_never_fits_is_the_same_whatever_runs() -> None:
    world = World(*nodes("n", "m", cpu="4"), queue("q", preemption=NEVER))
    world.add(small_gang("b", "3", members=4)).settle()
    alone = change(world, "b")
    assert (alone.then, "2 more nodes" in alone.text) == ("", True)
    world.add(foreign_pod("s", on="n", cpu="3"), foreign_pod("t", on="m", cpu="3")).settle()
    assert world.reason("b") is Reason.NEVER_FITS
    assert change(world, "b") == StartChange(alone.text, then="NoRoom")
    world.add(node("n2", cpu="4"), node("n3", cpu="4")).settle()
    assert world.reason("b") is Reason.NO_ROOM


def test_more_nodes_do_not_help_below_a_ceiling_that_is_too_low() -> None:
    """Name more capability as useless, too, while others run."""
    world = World(*nodes("n", "m", cpu="4"), queue("q", capability={"cpu": "4"}))
    world.add(foreign_pod("s", on="n", cpu="3")).add(small_gang("b", "3", members=2)).settle()
    assert world.reason("b") is Reason.NEVER_FITS
    assert why(world, "b").change is None


def test_a_request_that_would_fit() -> None:
    world = small().add(small_gang("b", "9")).settle()
    assert change(world, "b").text == "with requests of at most cpu 4 per member instead of 9"
    world.add(pod("b-0", "b", cpu="4")).settle()
    assert world.verdict("b") is STARTS


def too_large(made_by_muster: bool) -> World:
    """Return a world where a pod of web is too large for node and queue, as its PodGroup says, too."""
    written = group("podgroup-uid-web", 1, "q", min_resources={"cpu": "4"})
    if made_by_muster:
        owners = [OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web", True)]
        written = replace(written, metadata=replace(written.metadata, owner_references=owners))
    pods = (pod("web-0", queue="q", owner="web", cpu="4"), pod("a", queue="q", on="n", cpu="3"))
    world = World(node("n", cpu="3"), queue("q", capability={"cpu": "3"}), *pods, auto_groups=True)
    return world.add(written).settle()


def test_a_smaller_request_makes_the_group_that_muster_writes_smaller() -> None:
    world = too_large(made_by_muster=True)
    assert world.reason("podgroup-uid-web") is Reason.NEVER_FITS
    found = change(world, "podgroup-uid-web")
    assert (found.then, "cpu 3 per member" in found.text) == ("QueueCeiling", True)


def test_a_smaller_minimum_is_not_suggested_for_a_podgroup_of_a_user() -> None:
    world = too_large(made_by_muster=False)
    assert world.reason("podgroup-uid-web") is Reason.NEVER_FITS
    assert why(world, "podgroup-uid-web").change is None


# ---- the queue


def test_a_capability_of_a_flavor() -> None:
    """Name the parent queue, whose ceiling it is."""
    world = World(node("n", cpu="9", labels=on_flavor("spot")))
    world.add(queue("p", flavors=[flavor("spot", {"cpu": "4"})]), queue("q", parent="p")).add(
        small_gang("b", "6")
    )
    assert world.settle().reason("b") is Reason.NEVER_FITS
    says = "with cpu 6 instead of 4 in spec.flavors[0].capability (spot) in queue p"
    assert change(world, "b").text == says
    world.add(queue("p", flavors=[flavor("spot", {"cpu": "6"})])).settle()
    assert world.verdict("b") is STARTS


def test_a_capability() -> None:
    world = World(node("n", cpu="9"), queue("q", capability={"cpu": "4"})).add(small_gang("b", "6")).settle()
    assert world.reason("b") is Reason.NEVER_FITS
    assert "capability cpu 6 instead of 4" in change(world, "b").text
    world.add(queue("q", capability={"cpu": "6"})).settle()
    assert world.verdict("b") is STARTS


def test_the_end_of_a_group_below_the_ceiling_is_suggested() -> None:
    world = (
        World(node("n", cpu="9"), queue("q", capability={"cpu": "4"})).add(small_gang("a", "3")).start("a")
    )
    world.add(small_gang("b", "2")).settle()
    assert world.reason("b") is Reason.QUEUE_CEILING
    assert [holder.name for holder in why(world, "b").holders] == ["team/a"]
    found = change(world, "b")
    assert found.text == "once team/a (1 pod) ends"
    assert end(world, *found.ends).verdict("b") is STARTS


def test_a_limit() -> None:
    world = (
        World(node("n", cpu="9"), queue("q", limits=QueueLimits(groups=1))).add(small_gang("a")).start("a")
    )
    world.add(small_gang("b")).settle()
    assert change(world, "b").text == "with a limit of 2 groups instead of 1 in queue q"
    world.add(queue("q", limits=QueueLimits(groups=2))).settle()
    assert world.verdict("b") is STARTS


def test_the_group_that_has_to_start_first_is_suggested() -> None:
    world = World(node("n", cpu="4"), queue("q", strategy="fifo", preemption=NEVER)).add(
        foreign_pod("s", on="n")
    )
    world.add(small_gang("a", "4", "2026-01-01"), small_gang("b", "1", "2026-01-02")).settle()
    assert world.reason("b") is Reason.BEHIND_OTHERS
    assert [holder.name for holder in why(world, "b").holders] == ["team/a"]
    found = change(world, "b")
    assert found.text == "once team/a (0 pods) has started and ended, or is deleted"
    assert end(world, *found.ends).verdict("b") is STARTS


# ---- reclaimed capacity


def test_groups_whose_pods_are_evicted_are_named() -> None:
    world = World(node("n"), queue("q"), queue("r"))
    world.add(gang("wide", 2, min_member=1, queue="r", created="2026-01-01")).start("wide")
    world.settle().scheduler_takes(*world.plan("wide")).run("wide-0", "wide-1")
    world.add(gang("alone", 2, queue="r", created="2026-01-02")).start("alone")
    world.add(
        small_gang("b", members=2, created="2026-01-03"), small_gang("c", created="2026-01-04")
    ).settle()
    assert world.reason("b") is Reason.RECLAIMING
    shown = why(world, "b")
    assert [(holder.name, holder.pods, holder.amounts) for holder in shown.holders] == [
        ("team/alone", 2, {"cpu": 2000})
    ]
    assert shown.change == StartChange("once the pods evicted for it are gone: team/alone (2 pods)")
    assert (shown.position, shown.waiting) == (1, 2)
    world.delete("alone-0", "alone-1").settle()
    assert world.verdict("b") is STARTS


def test_spare_members_and_pods_of_others_that_are_evicted_for_it() -> None:
    world = World(node("n"), queue("q"), queue("r"))
    world.add(gang("wide", 3, min_member=1, queue="r")).start("wide")
    world.settle().scheduler_takes(*world.plan("wide")).run("wide-0", "wide-1", "wide-2")
    world.add(foreign_pod("s", on="n"), small_gang("b", members=2, priority=5)).settle()
    found = change(world, "b")
    assert (found.then, found.text.partition(": ")[2]) == ("", "team/wide (1 pod), pod team/s")
    for each in ("wide-2", "s"):
        world.mark_deleted(each)
    assert change(world.settle(), "b").then == ""
    assert world.delete("wide-2", "s").settle().verdict("b") is STARTS


def borrowing(*objects: Any, size: int = 1, **more: Any) -> World:
    """Return a world where queue r holds 4 cpu with groups of `size`; q deserves half of them."""
    world = World(node("n"), queue("q", **more), queue("r"), *objects)
    for n in range(4 // size):
        world.add(gang(f"r{n}", size, queue="r", labels={"app": f"r{n}", "team": "r"}))
    return world.start(*(f"r{n}" for n in range(4 // size)))


@each_of(
    (  # a budget of all of them
        lambda: borrowing(budget("p", 0, team="r")),
        1,
        "disruption budget team/p keeps team/r0",
    ),
    (  # each for its own reason
        lambda: borrowing(budget("p", 0, app="r0"), budget("o", 1, team="r"), size=2),
        2,
        "disruption budgets team/o, team/p keep team/r0",
    ),
    (  # also while it would not be time yet
        lambda: borrowing(budget("p", 0, team="r"), preemption=LATER),
        1,
        "disruption budget team/p keeps team/r0",
    ),
    (lambda: borrowing(budget("p", 0, app="x"), preemption=LATER), 1, ""),  # of others
    (lambda: borrowing(preemption=LATER), 1, ""),  # none
    # beyond its due
    (lambda: borrowing(), 3, "queue q would hold cpu 3 > 2 that it deserves"),
    (  # beyond its due next to a budget
        lambda: borrowing(budget("p", 0, team="r"), preemption=LATER),
        3,
        "queue q would hold cpu 3 > 2 that it deserves",
    ),
    (lambda: small(foreign_pod("s", on="n", cpu="3")), 2, ""),  # no queue borrows
)
def test_the_explanation_says_why_borrowed_capacity_is_protected(
    world: Callable[[], World], members: int, reserved: str
) -> None:
    cluster = world()
    cluster.add(small_gang("b", members=members, created=timestamp(cluster.now))).settle()
    assert cluster.reason("b") is Reason.NO_ROOM
    shown = why(cluster, "b")
    reserved += ", so nothing is reclaimed for it" if reserved else ""
    assert shown.why_not_reclaimed == reserved
    assert shown.outlook.startswith(reserved)


def test_pods_that_leave_anyway() -> None:
    world = World(node("n"), queue("q"), queue("r"), gang("r", 2, queue="r"), gang("old", 2, queue="r"))
    world.start("r", "old")
    for n in range(2):
        world.mark_deleted(f"old-{n}")
    world.add(small_gang("b", members=2)).settle()
    assert change(world, "b") == StartChange("once the pods that leave are gone")


# ---- the group, and what passes by itself


def test_members_to_come() -> None:
    world = small().add(gang("b", 1, 3, queue="q")).settle()
    assert change(world, "b") == StartChange("with 2 more members")
    world.add(pod("b-1", "b"), pod("b-2", "b")).settle()
    assert world.verdict("b") is STARTS


@each_of(
    (
        [foreign_pod("s", on="n", cpu="3"), *gang("b", 1, 3, queue="q")],
        StartChange("with 2 more members", then="NoRoom"),
    ),
    ([group("b", 2, queue="q")], StartChange("with 2 more members, if they fit")),
    (  # One number of a tenant's would take all memory, and every decision of others with it.
        gang("b", 1, 2**31 - 1, queue="q"),
        StartChange("if it needs no more than the 1 member that it has"),
    ),
    ([group("b", 2**31 - 1, queue="q")], None),
)
def test_members_that_are_missing(objects: list[Any], found: StartChange | None) -> None:
    assert why(small().add(objects).settle(), "b").change == found


def test_hold_and_resume() -> None:
    world = small().add(small_gang("b", notes={keys.HOLD: "true"})).settle()
    assert change(world, "b") == StartChange(f"without the annotation {keys.HOLD}")
    assert world.add(group("b", 1, queue="q")).settle().verdict("b") is STARTS


def test_a_stopped_queue() -> None:
    world = World(node("n"), queue("q", stop_policy="Hold")).add(small_gang("b")).settle()
    assert "stopPolicy None" in change(world, "b").text
    assert world.add(queue("q")).settle().verdict("b") is STARTS


def test_a_selector_that_matches_a_namespace_starts_the_first_group_there() -> None:
    world = World(node("n"), queue("q", namespace_selector=SELECTS_AI, preemption=NEVER))
    world.add(small_gang("first", "3", "2026-01-01"), small_gang("second", "3", "2026-01-02")).settle()
    text = f"with spec.namespaceSelector of queue q selecting namespace {NAMESPACE}"
    assert change(world, "first") == StartChange(text)
    assert change(world, "second") == StartChange(text, then="NoRoom")
    world.add(of_labels(AI)).settle()
    assert (world.verdict("first"), world.reason("second")) == (STARTS, Reason.NO_ROOM)


def test_resuming_a_local_queue_starts_the_first_group_there() -> None:
    world = small(local(policy="Hold"))
    world.add(labelled("first", cpu="3", created="2026-01-01"))
    world.add(labelled("second", cpu="3", created="2026-01-02")).settle()
    text = f"with spec.stopPolicy None in LocalQueue {NAMESPACE}/lq"
    assert change(world, "first") == StartChange(text)
    assert change(world, "second") == StartChange(text, then="NoRoom")
    world.add(local()).settle()
    assert (world.verdict("first"), world.reason("second")) == (STARTS, Reason.NO_ROOM)


def test_a_window_that_clears_or_is_too_small() -> None:
    world = (
        small(limits=replace(LIMITS, window=2)).add(small_gang("a", created="2026-01-01", members=2)).settle()
    )
    world.add(small_gang("b", created="2026-01-02")).settle()
    assert world.reason("b") is Reason.WINDOW_FULL
    assert change(world, "b").text == "with 1 more place in the window"
    world = small(limits=replace(LIMITS, window=2)).add(small_gang("b", members=3)).settle()
    assert change(world, "b").text == "with a window of 3 members (--window)"


def test_the_time_of_the_next_try_is_explained() -> None:
    world = small().add(small_gang("b")).settle()
    world.ungate("b-0").refuse("b-0")
    world.settle().advance(3).settle()
    assert world.reason("b") is Reason.BACKING_OFF
    found, requeue_at = change(world, "b"), world.decision("b").retry_at
    assert (found.text, found.then) == (f"about {timestamp(requeue_at)}", "RefusedByScheduler")
    assert found.sentence == f"about {timestamp(requeue_at)} it would wait for RefusedByScheduler"
    world.now = requeue_at
    assert world.settle().reason("b") is Reason.REFUSED_BY_SCHEDULER


def test_a_group_that_runs_lacks_nothing() -> None:
    world = small().add(small_gang("a")).start("a")
    shown = why(world, "a")
    assert (shown.verdict, shown.reason, shown.holders, shown.change) == (Verdict.RUNNING, "", (), None)
    assert explain_group(world.decisions, key("none")) is None


def test_the_debug_page_keeps_its_key_for_the_reason_against_reclaim() -> None:
    answer = WhyGroup(key("g"), "q", Verdict.WAITING, why_not_reclaimed="no victims")
    assert msgspec.to_builtins(answer)["kept"] == "no victims"


def test_the_largest_of_many_holders_are_named() -> None:
    world = World(node("n", cpu="64"), queue("q", preemption=NEVER))
    world.add(
        *(foreign_pod(f"s{n:02}", on="n", cpu=str(1 + n // 20)) for n in range(30)), small_gang("b", "60")
    ).settle()
    shown = why(world, "b")
    assert (len(shown.holders), shown.more_holders) == (20, 10)
    assert shown.holders[0].amounts == {"cpu": 2000}
    assert end(world, *change(world, "b").ends).verdict("b") is STARTS


def test_a_change_whose_trial_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small(foreign_pod("s", on="n", cpu="3")).add(small_gang("b", "2")).settle()
    monkeypatch.setattr("extender.domain.explain.hypotheses.decide", lambda _: 1 / 0)
    shown = why(world, "b")
    assert (shown.change, [holder.name for holder in shown.holders]) == (None, ["team/s"])


# ---- whatever the world is like


sizes = st.lists(st.integers(1, 4), max_size=4)


@settings(max_examples=examples(60))
@given(
    sizes, sizes, sizes, st.integers(1, 4), st.sampled_from(["", "fifo"]), st.sampled_from([None, "4", "7"])
)
def test_a_group_whose_end_is_suggested_starts_the_group(
    running: list[int], strange: list[int], ahead: list[int], members: int, strategy: str, most: str | None
) -> None:
    capability = {"cpu": most} if most else {}
    world = World(
        *nodes("n", "m", cpu="4"), queue("q", strategy=strategy, capability=capability, preemption=NEVER)
    )
    free = {"n": 4, "m": 4}
    for number, size in enumerate(strange):
        on = max(free, key=lambda name: free[name])
        if free[on] >= size:
            free[on] -= size
            world.add(foreign_pod(f"s{number}", on=on, cpu=str(size)))
    for number, size in enumerate(running):
        world.add(small_gang(f"r{number}", str(size), f"2026-01-0{number + 1}")).settle()
        if world.verdict(f"r{number}") is STARTS:
            world.start(f"r{number}")
    for number, size in enumerate(ahead):
        world.add(small_gang(f"w{number}", str(size), f"2026-02-0{number + 1}"))
    world.add(small_gang("x", "2", "2026-03-01", members)).settle()
    found = why(world, "x").change
    if found is not None and found.ends:
        assert end(world, *found.ends).verdict("x") is STARTS
