"""Cost of evictions, and when a claimant pays it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.keys import CHECKPOINT, HOLD, LOST_WORK, MIN_MEMBER, PREEMPTABLE, RUN_TIME
from extender.api.objects.base import Meta
from extender.domain.admission.submission import annotation_warnings
from extender.domain.model.reasons import Verdict
from extender.domain.queues.records import queue_record
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import message_of
from tests.domain.builders import group, node, pod, preemption, queue
from tests.domain.world import World, comparable, gang, key, names, nodes, timestamp
from tests.property_examples import examples
from tests.rows import each_of

PRICED = preemption(at_most="1h")
KEEPS = preemption(honour=["Preemptable"])  # as far as its pods say so
SOON = preemption(at_most="1h", patience="4")  # for what has cost little
CHECK_SECONDS = 10.0  # seconds from one look at what is lost to the next


def evicted(world: World) -> list[str]:
    return sorted(eviction.victim.name for eviction in world.decisions.evictions.values())


def runs(world: World, *pods: str, since: float) -> None:
    for name in pods:
        before = world.pods[name]
        world.add(replace(before, status=replace(before.status, start_time=timestamp(since))))


def borrowing(ran: float = 100.0, rules: Any = PRICED, notes: dict[str, str] | None = None) -> World:
    """Return a world where queue b borrows capacity that `x` of queue a now wants.

    Its gang `long` of 2 cpu has run, and `reserved` stays; `x` wants 2 cpu.
    """
    world = World(node("n"), queue("a", preemption=rules), queue("b", preemption=KEEPS))
    world.add(gang("kept", 1, queue="b", cpu="2", notes={PREEMPTABLE: "false"}))
    world.add(gang("long", 2, queue="b", notes=notes)).start("kept", "long").advance(ran)
    runs(world, *names("long", 2), since=world.now - ran)
    return world.add(gang("x", 1, queue="a", cpu="2", created=timestamp(world.now))).settle()


def taken_after(world: World, most: float = 4000.0) -> float | None:
    """Return the seconds until the first eviction; None if none comes."""
    begun = world.now
    while not evicted(world) and world.now < begun + most and (requeue_at := world.decisions.requeue_at):
        world.advance(max(requeue_at - world.now, 0.001)).settle()
    return world.now - begun if evicted(world) else None


def test_a_group_waits_until_its_unmet_request_equals_the_loss_of_its_victims() -> None:
    """2 of 4 cpu for 2 t seconds are as much as 1 cpu that runs for t seconds already, and for t more."""
    world = World(node("n"), queue("a", preemption=PRICED), queue("b"))
    for n in range(3):
        world.add(gang(f"b{n}", 1, queue="b")).start(f"b{n}")
    world.advance(200.0)
    runs(world, "b0-0", "b1-0", "b2-0", since=world.now - 200.0)
    world.add(gang("x", 1, queue="a", cpu="2", created=timestamp(world.now))).settle()
    assert not evicted(world)
    waited = taken_after(world)
    assert waited is not None
    assert 200.0 <= waited <= 200.0 + 2 * CHECK_SECONDS
    assert len(evicted(world)) == 1


@each_of(("5m", 300.0), ("", 900.0), ("5s", 5.0), ("0s", 0.0))
def test_a_wait_before_an_eviction_has_the_limit_of_its_queue(at_most: str, after: float) -> None:
    """A gang that has run for three days is worth more than any wait."""
    world = borrowing(
        ran=3 * 86400.0, rules=preemption(at_most=at_most) if at_most else replace(PRICED, at_most="")
    )
    waited = taken_after(world)
    assert waited is not None
    assert after <= waited <= after + 1.0


def test_a_group_at_the_head_that_waits_again_does_not_delay_those_behind_it() -> None:
    world = borrowing(ran=3 * 86400.0, rules=preemption(at_most="30m"))
    begun = world.now
    world.advance(1.0).add(gang("y", 1, queue="a", cpu="2", created=timestamp(world.now)))
    for turn in range(6):
        world.pass_time(305.0)
        snapshot = world.ledger.snapshot()
        assert comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))
        if turn < 5:
            assert not evicted(world)
            world.delete(*(name for name in world.pods if name.startswith("x-")))
            world.add(pod(f"x-again-{turn}", "x", cpu="2", created=timestamp(world.now)))
    assert world.now <= begun + 1800.0 + 31.0
    assert evicted(world) == [*names("long", 2)]


def test_the_longest_wait_counts_although_its_group_is_inadmissible() -> None:
    """X starts to wait again; y, which then waited longest, goes as v comes. Only w has waited long."""
    world = borrowing(ran=3 * 86400.0)
    begun = world.now
    for name in "yw":
        world.advance(10.0).add(gang(name, 1, queue="a", cpu="2", created=timestamp(world.now)))
    world.settle().advance(100.0).delete("x-0")
    world.add(pod("x-again", "x", cpu="2", created=timestamp(world.now))).settle().advance(100.0)
    world.ledger.intake.drop_group(key("y"))
    world.delete("y-0").add(gang("v", 1, queue="a", cpu="2", created=timestamp(world.now))).settle()
    assert f"at the latest, they begin at {timestamp(begun + 20.0 + 3600.0)}" in message_of(
        world.decision("x")
    )


@each_of("held", "queue", "gate", "members")
def test_time_in_which_a_group_wants_no_capacity_is_not_owed_to_it(held_back: str) -> None:
    """Meanwhile it is held, its queue is stopped, or a member is held back or missing."""
    rules = preemption(at_most="10m")
    world = World(node("n"), queue("a", preemption=rules), queue("b"))
    world.add(gang("long", 4, queue="b")).start("long").advance(1000.0)
    runs(world, *names("long", 4), since=world.now - 1000.0)
    hold = {HOLD: "true"} if held_back == "held" else {}
    x = group("x", 2 if held_back == "members" else 1, "a", created=timestamp(world.now), annotations=hold)
    of_it = pod("x-0", "x", created=timestamp(world.now), foreign_gate="other.io/x")
    free = pod("x-0", "x", created=timestamp(world.now))
    stopped = queue("a", preemption=rules, stop_policy="Hold" if held_back == "queue" else "")
    world.add(stopped, x, of_it if held_back == "gate" else free).settle().pass_time(700.0)
    assert not evicted(world)
    begun = world.now
    world.add(
        queue("a", preemption=rules), group("x", 1, "a", created=x.metadata.creation_timestamp or ""), free
    )
    waited = taken_after(world.settle())
    assert waited is not None
    assert 600.0 <= waited <= 602.0
    assert world.now >= begun + 600.0


def test_a_wait_beyond_the_last_date_is_evaluated_as_any_other() -> None:
    world = World(node("n"), queue("a")).add(group("x", 1, "a")).settle()
    world.now += 3e11
    world.add(pod("x-0", "x")).settle()
    assert world.verdict("x") is Verdict.STARTING


def test_the_message_of_a_wait_before_an_eviction_has_its_timestamp() -> None:
    world = borrowing(ran=3 * 86400.0)
    text = message_of(world.decision("x"))
    assert timestamp(world.now + 3600.0) in text
    assert world.decisions.requeue_at is not None
    assert world.decisions.requeue_at <= world.now + CHECK_SECONDS


def test_the_longest_possible_duration_ends_at_a_timestamp() -> None:
    world = borrowing(rules=preemption(at_most="2562047h"))
    text = message_of(world.decision("x"))
    assert timestamp(world.now + 2562047 * 3600) in text


@each_of(("0", False), ("0.5", False), ("10", True), ("1000", True))
def test_how_much_is_lost_at_most_is_for_the_queue_to_say(patience: str, is_enough: bool) -> None:
    world = borrowing(ran=100.0, rules=preemption(at_most="1h", patience=patience))
    waited = taken_after(world, most=300.0)
    assert (waited is not None) is is_enough
    assert (waited or 0.0) <= 3 * CHECK_SECONDS


@each_of("-1", "1001", "much")
def test_a_patience_that_makes_no_sense_is_a_fault_of_the_queue(patience: str) -> None:
    assert queue_record(queue("q", preemption=preemption(patience=patience))).fault


@each_of("30s", timestamp(1000.0 + 3 * 86400.0 - 20.0), timestamp(10_000_000.0))
def test_only_work_since_the_last_checkpoint_is_lost(checkpoint: str) -> None:
    world = borrowing(ran=3 * 86400.0, notes={CHECKPOINT: checkpoint}, rules=SOON)
    waited = taken_after(world, most=300.0)
    assert waited is not None
    assert waited <= 60.0


@each_of(False, True)
def test_a_checkpoint_in_the_future_counts_as_now_however_long_it_has_been_there(is_member: bool) -> None:
    """The pod gains nothing: the time of its first read does not stay, and hides no later checkpoint."""
    far = {CHECKPOINT: timestamp(10_000_000.0)}
    world = World(node("n"), queue("a", preemption=SOON), queue("b", preemption=KEEPS))
    world.add(gang("kept", 1, queue="b", cpu="2", notes={PREEMPTABLE: "false"}))
    world.add(gang("long", 2, queue="b", notes={} if is_member else far)).start("kept", "long")
    if is_member:
        before = world.pods["long-0"]
        notes = {**(before.metadata.annotations or {}), **far}
        world.add(replace(before, metadata=replace(before.metadata, annotations=notes)))
    runs(world, *names("long", 2), since=world.now)
    world.settle().advance(3 * 86400.0).settle()
    world.add(gang("x", 1, queue="a", cpu="2", created=timestamp(world.now))).settle()
    waited = taken_after(world, most=300.0)
    assert waited is not None
    assert waited <= 60.0


@each_of("soon", "2026-01-01T00:00:00", "-5m", "9" * 400 + "h", "0s")
def test_a_checkpoint_that_cannot_be_read_counts_as_absent(text: str) -> None:
    assert taken_after(borrowing(ran=3 * 86400.0, notes={CHECKPOINT: text}), most=300.0) is None
    (reported,) = annotation_warnings(Meta(name="a", annotations={CHECKPOINT: text}))
    assert "counts as absent" in reported


@each_of("", "10m", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+02:00")
def test_a_checkpoint_that_can_be_read_is_taken(text: str) -> None:
    assert not [*annotation_warnings(Meta(name="a", annotations={CHECKPOINT: text}))]


@each_of(
    (RUN_TIME, "soon", "must be how long the group runs, such as 1h30m"),
    (RUN_TIME, "1h30m", ""),
    (MIN_MEMBER, "most", "invalid value 'most': "),
    (MIN_MEMBER, "0", "invalid value '0': "),
    (MIN_MEMBER, "all", ""),
    (MIN_MEMBER, "4", ""),
)
def test_other_annotations_that_cannot_be_read_are_warned_of_as_well(key: str, text: str, fault: str) -> None:
    reported = [*annotation_warnings(Meta(name="a", annotations={key: text}))]
    assert [fault in each for each in reported] == [True] * bool(fault)


def test_a_member_may_say_it_for_its_gang() -> None:
    world = borrowing(ran=3 * 86400.0, rules=SOON)
    before = world.pods["long-0"]
    notes = {**(before.metadata.annotations or {}), CHECKPOINT: timestamp(world.now)}
    world.add(replace(before, metadata=replace(before.metadata, annotations=notes))).settle()
    waited = taken_after(world, most=300.0)
    assert waited is not None
    assert waited <= 60.0


@each_of(({}, 200 / 3), ({"example.com/fpga": "1"}, 200.0))
def test_the_dominant_resource_of_a_group_counts_for_its_price(devices: dict[str, str], after: float) -> None:
    """2 of 4 cpu have run for 200 s; with the only device that is all there is. 2 cpu are wanted."""
    rules = preemption(at_most="1h", patience="4")
    world = World(node("n", more={"example.com/fpga": "1"}), queue("a", preemption=rules))
    world.add(queue("b", preemption=KEEPS), gang("kept", 1, queue="b", cpu="2", notes={PREEMPTABLE: "false"}))
    world.add(gang("long", 1, queue="b", cpu="2", more=devices)).start("kept", "long").advance(200.0)
    runs(world, "long-0", since=world.now - 200.0)
    world.add(gang("x", 1, queue="a", cpu="2", created=timestamp(world.now))).settle()
    waited = taken_after(world)
    assert waited is not None
    assert after <= waited <= after + 2 * CHECK_SECONDS


# ---- what ends soon by itself

WAITS = {"at_most": "450s", "after": "150s"}
LATE = 450  # seconds after which cost does not count


@each_of(
    (1800, LATE + 75, {}, LATE + 75),  # soon
    (1800, LATE + 150, {}, LATE + 150),  # just in time
    (1800, LATE + 170, {}, LATE),  # not soon
    (1800, LATE + 75, {"after": "30s"}, LATE),  # not soon enough for its queue
    (1800, None, {}, LATE),  # unknown
    (1800, -60, {}, LATE),  # past its time
    (1800, LATE + 125, {"at_most": "30s"}, 150),  # after what is twice the longest wait
    (25, 175, {"patience": "2"}, 175),  # worth the wait, but more than is gained
    (25, 300, {"patience": "2"}, 150),  # less than is gained
    (1800, LATE + 75, {"patience": "1000"}, 150),  # worth any price
)
def test_a_group_that_is_known_to_end_soon_is_spared_once(
    ran: int, ends: int | None, rules: dict[str, str], waited: int
) -> None:
    """`ends`: seconds after x has come, by its declared run time. It does not end."""
    declared = {} if ends is None else {RUN_TIME: f"{ran + ends}s"}
    found = taken_after(borrowing(ran=ran, rules=preemption(**{**WAITS, **rules}), notes=declared))
    assert found is not None
    assert waited <= found <= waited + 2 * CHECK_SECONDS


@each_of(((75, 125), LATE + 75), ((75, 175), LATE), ((75, None), LATE), ((75, -1000), LATE))
def test_the_last_end_of_several_victims_counts(times: tuple[int | None, ...], waited: int) -> None:
    """Compare by how many seconds each ends after the longest wait."""
    world = World(node("n"), queue("a", preemption=preemption(**WAITS)), queue("b", preemption=KEEPS))
    world.add(gang("kept", 1, queue="b", cpu="2", notes={PREEMPTABLE: "false"})).start("kept")
    for n, late in enumerate(times):
        declared = {} if late is None else {RUN_TIME: f"{1800 + LATE + late}s"}
        world.add(gang(f"b{n}", 1, queue="b", notes=declared)).start(f"b{n}")
    world.advance(1800.0)
    runs(world, "b0-0", "b1-0", since=world.now - 1800.0)
    found = taken_after(world.add(gang("x", 1, queue="a", cpu="2", created=timestamp(world.now))).settle())
    assert found is not None
    assert waited <= found <= waited + 2 * CHECK_SECONDS
    assert evicted(world) == ["b0-0", "b1-0"]


def test_a_group_that_waits_for_an_end_reports_it_and_starts_in_its_place() -> None:
    rules, notes = preemption(**WAITS), {RUN_TIME: f"{1800 + LATE + 75}s"}
    world = borrowing(ran=1800.0, rules=rules, notes=notes)
    ends = timestamp(world.now + LATE + 75)
    world.pass_time(LATE + 65)
    assert not evicted(world)
    assert ends in message_of(world.decision("x"))
    world.finish(*names("long", 2)).settle()
    assert world.decision("x").verdict is Verdict.STARTING
    assert not evicted(world)


def test_run_times_that_are_extended_again_and_again_protect_capacity_until_twice_the_longest_wait() -> None:
    world, begun = borrowing(ran=1800.0, rules=preemption(**WAITS)), 2800.0
    while not evicted(world) and world.now < begun + 3 * LATE:
        world.add(group("long", 2, "b", run_time=f"{int(world.now - 1000.0) + 75}s")).settle()
        world.pass_time(27.0)
        snapshot = world.ledger.snapshot()
        assert comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))
    assert begun + LATE + 75 < world.now <= begun + 2 * LATE + 40.0
    assert evicted(world) == [*names("long", 2)]


# ---- what a group has lost


def evicted_once() -> World:
    """Return a world with a gang of 2 that ran for 600 s and is evicted."""
    world = World(node("n"), queue("a"), queue("b", preemption=KEEPS))
    world.add(gang("kept", 1, queue="b", cpu="2", notes={PREEMPTABLE: "false"}))
    world.add(gang("g", 2, queue="b")).start("kept", "g")
    world.advance(600.0)
    runs(world, *names("g", 2), since=world.now - 600.0)
    world.add(gang("x", 1, queue="a", cpu="2")).settle()
    assert evicted(world) == [*names("g", 2)]
    world.delete("g-0").settle()
    return world.delete("g-1").settle()


def test_the_cost_of_an_eviction_stays_with_the_group() -> None:
    world = evicted_once()
    assert world.ledger.groups.history(key("g"))[-1] == 600
    world.add(pod("again-0", "g"), pod("again-1", "g")).settle()
    view = world.ledger.snapshot().groups[key("g")]
    assert view.history.lost_work == pytest.approx(600.0)


def test_lost_work_counts_for_the_next_eviction() -> None:
    fresh, burnt = (
        borrowing(ran=0.0, notes=notes, rules=preemption(at_most="1h", patience="8"))
        for notes in ({}, {LOST_WORK: "2000/uid-long"})
    )
    first, later = taken_after(fresh), taken_after(burnt)
    assert None not in (first, later)
    assert (later or 0.0) >= 200.0 > 60.0 >= (first or 0.0)


@each_of(
    ("2000/uid-long", True, 2000), ("2000/uid-long", False, 0), ("2000/another", True, 0), ("x", True, 0)
)
def test_lost_work_survives_a_restart_as_a_record(written: str, reserved: bool, seconds: int) -> None:
    world = (
        World(queue("q"), records_trusted=reserved)
        .add(group("long", 1, "q", annotations={LOST_WORK: written}))
        .settle()
    )
    assert world.ledger.groups.history(key("long"))[-1] == seconds


def test_a_recreated_group_has_no_lost_work() -> None:
    world = evicted_once().add(group("g", 2, "b", uid="another")).settle()
    assert world.ledger.groups.history(key("g"))[-1] == 0


# ---- whatever runs and waits


@settings(max_examples=examples(12), deadline=None)
@given(
    ran=st.lists(st.integers(0, 900), min_size=4, max_size=4),
    asks=st.integers(1, 2),
    patience=st.sampled_from(["0", "0.5", "1", "3"]),
    at_most=st.integers(0, 900),
)
def test_no_group_is_evicted_before_the_claimant_is_owed_enough_or_the_limit_is_reached(
    ran: list[int], asks: int, patience: str, at_most: int
) -> None:
    rules = preemption(patience=patience, at_most=f"{at_most}s")
    world = World(node("n"), queue("a", preemption=rules), queue("b"))
    for n in range(4):
        world.add(gang(f"b{n}", 1, queue="b")).start(f"b{n}")
    world.advance(900.0)
    began = {f"b{n}-0": world.now - seconds for n, seconds in enumerate(ran)}
    for name, since in began.items():
        runs(world, name, since=since)
    came = world.now
    world.add(gang("x", 1, queue="a", cpu=str(asks), created=timestamp(came))).settle()
    waited = taken_after(world, most=at_most + 1.0)
    assert waited is not None
    then = world.now // CHECK_SECONDS * CHECK_SECONDS
    lost = sum(max(then - began[name], 0.0) for name in evicted(world))
    assert waited >= at_most or lost <= float(patience) * asks * max(then - came, 0.0) + 1e-6
    assert world.decision("x").verdict is Verdict.WAITING


# ---- the cheapest


def test_a_gang_with_a_recent_checkpoint_is_evicted_first() -> None:
    """Select the gang with saved work, although it is larger, and has run longer."""
    world = World(node("n", cpu="8"), queue("a"), queue("b", preemption=KEEPS))
    world.add(gang("kept", 3, queue="b", notes={PREEMPTABLE: "false"}))
    world.add(gang("saves", 3, queue="b"), gang("loses", 2, queue="b")).start("saves", "loses", "kept")
    world.advance(3700.0).add(group("saves", 3, "b", annotations={CHECKPOINT: timestamp(4600.0)}))
    runs(world, *names("saves", 3), since=1000.0)
    runs(world, *names("loses", 2), since=2000.0)
    world.add(gang("x", 2, queue="a")).settle()
    assert evicted(world) == [*names("saves", 3)]


def test_work_lost_before_is_not_lost_again() -> None:
    world = World(node("n"), queue("a"), queue("b", preemption=KEEPS))
    world.add(gang("burnt", 2, queue="b", notes={LOST_WORK: "5000/uid-burnt"}), gang("lucky", 2, queue="b"))
    world.start("burnt", "lucky").advance(2000.0)
    runs(world, *names("burnt", 2), since=2900.0)
    runs(world, *names("lucky", 2), since=1000.0)
    world.add(gang("x", 2, queue="a")).settle()
    assert evicted(world) == [*names("lucky", 2)]


@settings(max_examples=examples(12), deadline=None)
@given(
    given_runs=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 900)), min_size=1, max_size=9
    ),
    members=st.integers(1, 3),
    cpu=st.integers(1, 3),
)
def test_victims_have_the_least_loss_of_all_choices(
    given_runs: list[tuple[int, int, int]], members: int, cpu: int
) -> None:
    """Compare all choices of victims.

    `given_runs`: the node, the cpu and the seconds of each run.
    """
    world, free = World(*nodes("n0", "n1", "n2"), queue("q")), [4, 4, 4]
    held_by: dict[str, tuple[int, int, int]] = {}
    for number, (on, size, ran) in enumerate(given_runs):
        if size <= free[on]:
            name, free[on] = f"b{number}", free[on] - size
            world.add(group(name, 1, "q"), pod(f"{name}-0", name, cpu=str(size), on=f"n{on}"))
            runs(world, f"{name}-0", since=world.now - ran)
            held_by[f"{name}-0"] = on, size, ran * size
    world.add(gang("x", members, queue="q", cpu=str(cpu), priority=10)).settle()

    def fits(gone: set[str]) -> bool:
        left = list(free)
        for name in gone:
            left[held_by[name][0]] += held_by[name][1]
        return sum(each // cpu for each in left) >= members

    out = set(evicted(world))
    assert fits(out) or not fits(set(held_by))
    for one in out:
        for other in held_by.keys() - out:
            assert held_by[other][2] >= held_by[one][2] or not fits(out - {one} | {other})
