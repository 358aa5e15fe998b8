"""Records of what happened, and sums of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from extender.api import keys
from extender.domain.explain.history import (
    AnyRecord,
    By,
    Evicted,
    GroupRun,
    Period,
    QueueHour,
    Report,
    Wait,
    report,
)
from extender.domain.explain.recorder import QueueHours, Recorder
from extender.domain.model.records import GroupKey, Uid
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.group_info import GroupInfo
from tests.domain.builders import node, pod, queue
from tests.domain.world import EPOCH, World, gang, key, names, timestamp
from tests.property_examples import examples
from tests.rows import each_of

HOUR = 3600.0
GPU = "nvidia.com/gpu"


class RecordedWorld:
    """Recorder of a world's history.

    After a restart it knows records without an end, and takes the rest from the objects.
    """

    def __init__(self, world: World) -> None:
        self.world, self.records = world, dict[str, AnyRecord]()
        self.written = self.records, self.now
        self.restart()

    def restart(self, crashed: bool = False) -> None:
        """Restart; after a crash, records since the last look are lost."""
        if crashed:
            self.records = self.written[0]
        known = [record for record in self.records.values() if record.end is None]
        self.faulty: list[GroupKey] = []
        seen = self.written[1] if crashed else self.now
        self.recorder = Recorder(known, seen, self._is_going, self._guard)

    def _guard(self, group: GroupKey, act: Callable[[], None]) -> None:
        try:
            act()
        except AttributeError:
            self.faulty.append(group)

    @property
    def now(self) -> float:
        return EPOCH + self.world.now

    def _is_going(self, uid: Uid) -> bool:
        record = self.world.ledger.pods.get(uid)
        return record is None or record.deleting

    def look(self) -> "RecordedWorld":
        notes = read_facts(self.world.settle().decisions)
        assert notes is not None
        self.written = dict(self.records), self.now
        self.keep(self.recorder.observe(self.world.decisions, notes.snapshot))
        return self

    def keep(self, made: Iterable[AnyRecord]) -> None:
        for record in made:
            if not (record.is_final and record.key in self.records):
                self.records[record.key] = record

    def add(self, *objects: Any) -> "RecordedWorld":
        self.world.add(*objects)
        return self.look()

    def start(self, *groups: str) -> "RecordedWorld":
        self.world.start(*groups)
        return self.look()

    def delete(self, *pods: str) -> "RecordedWorld":
        self.world.delete(*pods)
        return self.look()

    def after(self, seconds: float) -> "RecordedWorld":
        self.world.advance(seconds)
        return self.look()

    def all_of(self, kind: type[AnyRecord]) -> list[Any]:
        return [record for record in self.records.values() if isinstance(record, kind)]

    def report(self, by: By = By.QUEUE, since: float = 0.0) -> Report:
        return report(self.records.values(), Period(by, since, self.now))


def made_by(user: str, name: str, members: int, **more: Any) -> list[Any]:
    return gang(name, members, notes={keys.SUBMITTER: user}, **more)


def figures(found: Report) -> dict[str, tuple[int, float]]:
    return {row.name: (row.starts, round(row.cpu_hours, 3)) for row in found.rows}


def run_since(world: World, instant: float, *pods: str) -> None:
    for name in pods:
        was = world.pods[name]
        world.add(replace(was, status=replace(was.status, start_time=timestamp(instant))))


# ---- from the course of things to records


def test_a_group_waits_runs_and_ends() -> None:
    recorded = RecordedWorld(World(queue("q"))).add(made_by("ann", "g", 2, queue="q", more={GPU: "2"}))
    recorded.after(60).add(node("a", more={GPU: "8"})).start("g").after(HOUR)
    recorded.world.finish(*names("g", 2))
    recorded.look().after(HOUR)
    (wait,), (run,) = recorded.all_of(Wait), recorded.all_of(GroupRun)
    assert (wait.group, wait.queue, wait.namespace, wait.user) == (key("g"), "q", "team", "ann")
    assert (wait.has_started, wait.seconds, sum(wait.waited.values())) == (True, 60, 60)
    assert (run.end - run.start, run.spent["cpu"], run.spent[GPU]) == (HOUR, 2000 * HOUR, 4 * HOUR)
    (row,) = recorded.report().rows
    assert (row.name, row.starts, row.waiting, row.gpu_hours, row.cpu_hours) == ("q", 1, 0, 4.0, 2.0)


def test_a_group_that_runs_counts_up_to_now() -> None:
    recorded = RecordedWorld(World(node("a"))).add(gang("g", 3)).start("g")
    recorded.world.advance(2 * HOUR)
    assert figures(recorded.report()) == {"default": (1, 6.0)}
    assert figures(recorded.report(since=recorded.now - HOUR)) == {"default": (0, 3.0)}


def test_each_reason_of_a_wait_has_a_cause_and_those_of_the_owner_have_none() -> None:
    recorded = RecordedWorld(World(node("a"))).add(gang("g", 1, min_member=2)).after(100)
    assert recorded.report().total.waiting == 0
    recorded.add(pod("g-1", "g", cpu="9")).after(50)
    assert recorded.report().total.waiting == 1
    recorded.delete("g-1").add(pod("g-2", "g")).start("g")
    (wait,) = recorded.all_of(Wait)
    assert wait.waited == {"NotEnoughMembers": 100, "NeverFits": 50, "": 0}
    assert recorded.report().total.wait_longest == wait.seconds == 50


def test_a_group_that_goes_while_it_waits_has_not_started() -> None:
    recorded = RecordedWorld(World(node("a"))).add(gang("g", 9)).after(10)
    assert (recorded.report().total.waiting, recorded.report().total.starts) == (1, 0)
    recorded.world.ledger.intake.drop_group(key("g"))
    recorded.delete(*names("g", 9))
    (wait,) = recorded.all_of(Wait)
    assert (wait.end, wait.has_started) == (recorded.now, False)
    assert (recorded.report().total.waiting, recorded.report().total.starts) == (0, 0)


def test_a_group_that_cannot_be_read_stops_no_other() -> None:
    recorded = RecordedWorld(World(node("a"), gang("bad", 1), gang("good", 1)))
    notes = read_facts(recorded.world.settle().decisions)
    assert notes is not None
    bad = replace(notes.snapshot.groups[key("bad")], spec=None)
    snapshot = replace(notes.snapshot, groups={**notes.snapshot.groups, key("bad"): bad})
    recorded.keep(recorded.recorder.observe(recorded.world.decisions, snapshot))
    assert [wait.group for wait in recorded.all_of(Wait)] == [key("good")]
    assert recorded.faulty == [key("bad")]


def test_quick_changes_are_one_run_and_slow_ones_several() -> None:
    recorded = RecordedWorld(World(node("a", cpu="9"))).add(gang("g", 3)).start("g")
    recorded.after(10).delete("g-2").after(HOUR).delete("g-1").after(HOUR)
    runs = recorded.all_of(GroupRun)
    assert [run.up_to(recorded.now).spent["cpu"] for run in runs] == [3000 * 10 + 2000 * HOUR, 1000 * HOUR]
    assert runs[0].end == runs[1].start


def borrowed() -> RecordedWorld:
    """Return a history in which queue b holds the cluster, and half of it is reclaimed for a."""
    recorded = RecordedWorld(World(node("n", cpu="2"), queue("a"), queue("b")))
    recorded.add(made_by("bob", "b0", 1, queue="b"), made_by("bob", "b1", 1, queue="b")).start("b0", "b1")
    run_since(recorded.world, recorded.world.now, "b0-0", "b1-0")
    return recorded.after(HOUR).add(gang("x", 1, queue="a"))


def test_an_eviction_record_names_the_claimant_and_the_loss() -> None:
    recorded = borrowed()
    (victim,) = recorded.world.decisions.evictions.values()
    assert not recorded.all_of(Evicted)  # it is only to be
    recorded.world.mark_deleted(victim.victim.name)
    (evicted,) = recorded.look().all_of(Evicted)
    assert (evicted.pod, evicted.claimant) == (f"team/{victim.victim.name}", key("x"))
    assert (evicted.cause, evicted.queue, evicted.user) == ("Reclaim", "b", "bob")
    assert evicted.lost["cpu"] == 1000 * HOUR
    recorded.delete(victim.victim.name).start("x")
    lost = {row.name: (row.evictions, row.lost_cpu_hours) for row in recorded.report(By.USER).rows}
    assert lost == {"bob": (1, 1.0), "": (0, 0.0)}


def test_a_pod_that_stays_after_all_was_not_evicted() -> None:
    recorded = borrowed()
    recorded.world.ledger.intake.drop_group(key("x"))
    recorded.delete("x-0").after(60)
    assert not recorded.world.decisions.evictions
    assert not recorded.all_of(Evicted)


def test_an_evicted_group_waits_again() -> None:
    recorded = borrowed()
    (victim,) = recorded.world.decisions.evictions.values()
    recorded.delete(victim.victim.name).start("x").after(60)
    recorded.add(pod("again", victim.victim.group.partition("/")[2])).after(40)
    waits = [wait for wait in recorded.all_of(Wait) if wait.group == victim.victim.group]
    assert [wait.has_started for wait in waits] == [True, False]
    assert waits[1].up_to(recorded.now).seconds == 40  # before that it lacked a pod


def test_members_of_a_failed_start_are_evicted_for_no_group() -> None:
    recorded = RecordedWorld(World(node("a"), gang("g", 2)))
    recorded.look().world.scheduler_takes("g-0")
    recorded.world.bind("g-0", "a")
    recorded.look()
    recorded.world.pass_time(1000)
    recorded.look()
    assert list(recorded.world.decision("g").undo) == ["uid-g-0"]
    (evicted,) = recorded.delete("g-0").all_of(Evicted)
    assert (evicted.pod, evicted.cause, evicted.claimant, evicted.lost) == ("team/g-0", "Undo", "", {})


# ---- queues over time


def test_the_share_of_a_queue_counts_while_it_wants_more() -> None:
    recorded = RecordedWorld(World(node("n", cpu="4"), queue("a"), queue("b")))
    recorded.add(gang("b0", 3, queue="b")).start("b0").add(gang("a0", 1, queue="a")).start("a0")
    recorded.add(gang("a1", 2, queue="a"))
    hours = QueueHours()
    for minute in range(61):
        recorded.keep(hours.sample(recorded.world.decisions.queues, recorded.now, max_gap=60.0))
        recorded.world.advance(60)
        hours = hours if minute != 30 else QueueHours(hours.open)
    shares = {row.name: row.share for row in recorded.report().rows}
    assert shares == {"a": 0.5, "b": None}
    found = [record for record in recorded.all_of(QueueHour) if record.queue == "a"]
    lost = 60  # the restart: the time of the last sample is unknown
    assert sum(hour.wanting for hour in found) == HOUR - lost
    assert sum(hour.deserved["cpu"] for hour in found) == 2000 * (HOUR - lost)
    assert all(hour.start % HOUR == 0 for hour in found)


# ---- restarts


def test_a_running_group_is_taken_from_its_objects_if_nothing_is_known_of_it() -> None:
    world = World(node("a", cpu="9")).add(gang("g", 2, created=timestamp(1000))).settle()
    world.advance(100).start("g").advance(HOUR)
    run_since(world, 1100, *names("g", 2))
    recorded = RecordedWorld(world).look()
    (wait,), (run,) = recorded.all_of(Wait), recorded.all_of(GroupRun)
    assert (wait.seconds, wait.has_started) == (100, True)
    assert (run.start, run.spent["cpu"]) == (EPOCH + 1100, 2000 * HOUR)
    before = dict(recorded.records)
    recorded.restart()
    assert recorded.look().records == before  # the same once more


def test_an_observed_wait_counts_and_not_timestamps_of_objects() -> None:
    recorded = RecordedWorld(World(node("a"))).add(gang("g", 2, created=timestamp(0))).after(60).start("g")
    (wait,) = recorded.all_of(Wait)
    recorded.restart()
    assert recorded.look().all_of(Wait) == [wait]


@each_of("gone", "smaller", "another", "back")
def test_changes_during_a_restart_are_dated_by_the_last_observation(change: str) -> None:
    recorded = RecordedWorld(World(node("a", cpu="9"))).add(gang("g", 2, created=timestamp(1000)))
    recorded.start("g").after(HOUR)
    recorded.restart()
    recorded.world.advance(HOUR)
    if change == "smaller":
        recorded.world.delete("g-1")
    else:
        recorded.world.ledger.intake.drop_group(key("g"))
        recorded.world.delete("g-0", "g-1").settle()
    if change == "another":
        recorded.world.add(gang("g", 3, created=timestamp(recorded.world.now))).start("g")
    if change == "back":
        recorded.world.add(gang("g", 2, created=timestamp(1000))).start("g")
        run_since(recorded.world, recorded.world.now, *names("g", 2))
    held = {"gone": 0, "smaller": 1, "another": 3, "back": 2}[change]
    recorded.look().after(HOUR)
    known = HOUR if change == "smaller" else 0  # it held that in the meantime
    assert recorded.report().total.cpu_hours == pytest.approx((2 * HOUR + held * (HOUR + known)) / HOUR)


# ---- what always holds

steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(1, 4), st.integers(0, 8)),
        st.tuples(st.just("starts"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["fails", "ends", "is deleted"]), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("passes"), st.sampled_from([1, 30, 90, 4000]), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


def take(world: World, step: tuple[str, int, int]) -> None:
    what, number, more = step
    names = sorted(world.pods)
    if what == "comes":
        name = f"g{world.changes}"
        owner = ("ann", "bob", "")[more % 3]
        needed = max(number - more % 2, 1)
        world.add(
            gang(name, number, needed, ("a", "b")[more % 2], notes={keys.SUBMITTER: owner} if owner else {})
        )
    elif what == "starts":
        for group in sorted(world.settle().decisions.groups):
            if world.plan(group.partition("/")[2]):
                world.start(group.partition("/")[2])
    elif what == "passes":
        world.advance(number)
    elif names and what == "is deleted":
        world.delete(names[number % len(names)])
    elif names and what in ("ends", "fails") and world.pods[names[number % len(names)]].spec.node_name:
        world.finish(names[number % len(names)], phase="Failed" if what == "fails" else "Succeeded")


@settings(max_examples=examples(40), deadline=None)
@given(steps)
def test_sums_equal_the_usage_whenever_the_process_was_restarted(
    course: list[tuple[str, int, int]],
) -> None:
    world = World(node("n", cpu="6"), queue("a"), queue("b")).settle()
    steady, restarted = RecordedWorld(world).look(), RecordedWorld(world).look()
    held: defaultdict[str, float] = defaultdict(float)
    for step in [*course, ("passes", 90, 0)]:
        before = world.now
        allocated = {name: view.allocated.get("cpu", 0) for name, view in groups(world).items()}
        queues = {name: decision.queue for name, decision in world.decisions.groups.items()}
        if step[0] == "restart":
            restarted.restart()
        take(world, step)
        for group, cpu in allocated.items():
            held[queues[group]] += cpu * (world.now - before)
        steady.look(), restarted.look()
    for since in (0.0, steady.now - 1000):
        found, again = steady.report(since=since), restarted.report(since=since)
        assert figures(found) == figures(again)
    for row in steady.report().rows:
        assert row.cpu_hours == pytest.approx(held[row.name] / 3600 / 1000)
    assert sum(held.values()) / 3600 / 1000 == pytest.approx(steady.report().total.cpu_hours)
    starts = [steady.report(by).total.starts for by in By]
    for by, total in zip(By, starts, strict=True):
        rows = steady.report(by).rows
        assert sum(row.starts for row in rows) == total == starts[0]
        assert sum(row.cpu_hours for row in rows) == pytest.approx(steady.report().total.cpu_hours)


calm_steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(1, 4), st.integers(0, 8)),
        st.tuples(st.just("starts"), st.just(0), st.just(0)),
        st.tuples(st.just("passes"), st.sampled_from([1, 30, 90, 4000]), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=examples(30), deadline=None)
@given(calm_steps)
def test_records_lost_in_a_crash_are_restored_from_objects_once(course: list[tuple[str, int, int]]) -> None:
    """Restore records from objects that still exist."""
    world = World(node("n", cpu="6"), queue("a"), queue("b")).settle()
    steady, crashed = RecordedWorld(world).look(), RecordedWorld(world).look()
    for step in [*course, ("crash", 0, 0), ("passes", 90, 0)]:
        if step[0] == "crash":
            crashed.restart(crashed=True)
        take(world, step)
        steady.look(), crashed.look()
    for by in By:
        assert figures(steady.report(by)) == figures(crashed.report(by))


def groups(world: World) -> Mapping[GroupKey, GroupInfo]:
    notes = read_facts(world.settle().decisions)
    assert notes is not None
    return notes.snapshot.groups


names_of = st.text("ab<", max_size=2)
whose = {"queue": names_of, "namespace": names_of, "user": names_of}
instants = st.integers(0, 100).map(float)
amounts = st.dictionaries(st.sampled_from(["cpu", GPU]), st.integers(1, 9))


def _ends(record: Any) -> Any:
    return replace(record, end=max(record.start, record.until)) if record.user != "a" else record


records = st.lists(
    st.one_of(
        st.builds(
            GroupRun, **whose, start=instants, group=names_of, until=instants, spent=amounts, held=amounts
        ),
        st.builds(Wait, **whose, start=instants, group=names_of, until=instants, has_started=st.booleans()),
        st.builds(Evicted, **whose, start=instants, uid=names_of, pod=names_of, cause=names_of, lost=amounts),
    )
).map(lambda found: [_ends(each) if not isinstance(each, Evicted) else each for each in found])


@given(records, instants, instants)
def test_the_rows_add_up_to_the_total_for_each_grouping(found: list[Any], one: float, other: float) -> None:
    since, until = sorted((one, other))
    totals = []
    for by in By:
        result = report(found, Period(by, since, until))
        totals.append(result.total)
        for field in ("starts", "waiting", "evictions", "gpu_hours", "cpu_hours", "lost_gpu_hours"):
            rows = sum(getattr(row, field) for row in result.rows)
            assert rows == pytest.approx(getattr(result.total, field))
    expected = {
        field: pytest.approx(value) if isinstance(value, float | dict) else value
        for field, value in asdict(totals[0]).items()
    }
    assert [asdict(total) for total in totals[1:]] == [expected, expected]


@given(records, instants, instants)
def test_two_parts_of_a_period_add_up_to_the_whole(found: list[Any], one: float, other: float) -> None:
    middle, end = sorted((one, other))
    ended = [each for each in found if not isinstance(each, GroupRun) or each.end is not None]
    parts = [report(ended, Period(By.QUEUE, *part)).total.gpu_hours for part in ((0, middle), (middle, end))]
    assert sum(parts) == pytest.approx(report(ended, Period(By.QUEUE, 0, end)).total.gpu_hours)
