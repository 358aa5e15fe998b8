"""Loop guard: limits on repeated evictions.

A group makes way for the same one at most once an hour, also where that never starts, and a queue takes from
another one in vain three times at most, each within an hour of the last. The memory of which group gave to
which is lost with the process; that of queues is kept in their statuses.
"""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.objects.queues import BorrowWithinCohort, QueueReclaimed, QueueStatus
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.queues.records import RECLAIM_AT_MOST
from extender.domain.snapshot.decisions import message_of
from tests.domain import builders
from tests.domain.builders import NAMESPACE, node, pod, preemption, queue
from tests.domain.world import LIMITS, World, gang, key, timestamp
from tests.rows import each_of

VICTIMS = tuple(f"b{n}" for n in range(4))
HOUR = LIMITS.reclaim_memory
STEP = 60.0  # seconds between two looks


def written(world: World) -> QueueStatus:
    """Return the status of queue a with the remembered reclaims."""
    reclaimed = world.decisions.queues["a"].reclaimed.items()
    return QueueStatus(
        reclaimed=[
            QueueReclaimed(losing.queue, last.group, last.at, last.in_vain, last.unused)
            for losing, last in reclaimed
        ]
    )


class Refusing:
    """World in which the scheduler uses no node for gang x of queue a.

    Queue a deserves half of what b holds, or with `borrows` nothing of it, but may borrow that from lower
    priorities. Evicted pods come again, and run again as soon as they may.
    """

    def __init__(self, borrows: bool = False) -> None:
        rules = preemption(borrow_within_cohort=BorrowWithinCohort("LowerPriority"))
        self.claiming = queue("a", deserved={"cpu": "0" if borrows else "2"}, preemption=rules)
        self.objects: list[Any] = [node("n"), self.claiming, queue("b", deserved={"cpu": "2"})]
        if borrows:  # it waits for the surplus of b, and evicts no pod
            self.objects += [queue("c", deserved={"cpu": "2"}, preemption=preemption(after="1000h"))]
            self.objects += gang("patient", 2, queue="c", selector={"no": "such"})
        self.pods = [each for name in VICTIMS for each in gang(name, 1, queue="b")]
        self.world = World(self.objects, self.pods).start(*VICTIMS)
        self.world.add(gang("x", 2, queue="a", priority=10))
        self.evicted: list[tuple[float, str]] = []

    def restart(self) -> None:
        """Start another Muster, which knows only what the API server stores."""
        before = self.world
        groups = [gang(name, 1, queue="b")[0] for name in VICTIMS]
        claiming = replace(self.claiming, status=written(before))
        self.world = World(self.objects, claiming, groups, gang("x", 2, queue="a")[0])
        self.world.now = before.now
        self.world.add(*before.pods.values())

    def go_on(self, seconds: float) -> None:
        world, until = self.world, self.world.now + seconds
        while world.now < until:
            world.pass_time(STEP)
            self.evict()
            for name, each in list(world.pods.items()):
                if each.spec.node_name:
                    continue
                group = world.group_of(name)
                if group == "x" and world.verdict("x") is Verdict.STARTING:
                    world.ungate(name).refuse(name, f"0/1 nodes, at {world.now}")
                elif group != "x" and world.plan(group):
                    world.scheduler_takes(name).run(name).settle()

    def evict(self) -> None:
        world = self.world
        for eviction in list(world.decisions.evictions.values()):
            victim = eviction.victim
            group = victim.group.partition("/")[2]
            self.evicted.append((world.now, group))
            world.delete(victim.name).add(pod(f"{group}-{len(self.evicted)}", group))
        world.settle()

    def of(self, group: str) -> list[float]:
        """Return the times at which members of a group were evicted."""
        return [instant for instant, each in self.evicted if each == group]


def test_each_group_gives_once_an_hour() -> None:
    refusing = Refusing()
    refusing.go_on(3 * HOUR)
    assert len(refusing.evicted) > len(VICTIMS)
    for name in VICTIMS:
        assert all(later - one >= HOUR - STEP for one, later in pairwise(refusing.of(name)))


def test_other_equal_groups_get_the_capacity_that_a_group_is_not_given_again() -> None:
    refusing = Refusing()
    refusing.go_on(1500.0)
    assert len(refusing.evicted) == len(VICTIMS)
    assert refusing.world.reason("x") is Reason.NO_ROOM
    refusing.world.add(gang("y", 2, queue="a"))
    refusing.go_on(STEP)
    assert len(refusing.evicted) == len(VICTIMS) + 2


@each_of((NAMESPACE, Reason.NO_ROOM), ("other", Reason.RECLAIMING))
def test_unused_reclaims_of_one_namespace_pause_no_other(namespace: str, verdict: Reason) -> None:
    world = World(node("n"), queue("b"), *(gang(name, 1, queue="b") for name in VICTIMS)).start(*VICTIMS)
    written = QueueReclaimed("b", f"{namespace}/x", timestamp(world.now), 3)
    world.add(replace(queue("a"), status=QueueStatus(reclaimed=[written])), gang("x", 2, queue="a")).settle()
    assert world.reason("x") is verdict


@each_of(False, True)
def test_restarts_do_not_make_a_queue_forget_its_unused_reclaims(borrows: bool) -> None:
    refusing = Refusing(borrows)
    for _ in range(13):
        refusing.go_on(HOUR / 6)
        refusing.restart()
    instants = sorted({instant for instant, _ in refusing.evicted})
    assert len(instants) > 4
    for first in instants:
        assert len([instant for instant in instants if first <= instant < first + HOUR]) <= 1 + 3


def test_two_queues_whose_weights_change_back_and_forth_do_not_take_turns() -> None:
    world = World(node("n"), queue("a", weight=1), queue("b", weight=3))
    for number in range(4):
        world.add(gang(f"a{number}", 1, queue="a"), gang(f"b{number}", 1, queue="b"))
    evictions: list[tuple[float, str]] = []
    for turn in range(60):
        world.add(queue("a", weight=3 - 2 * (turn % 2)), queue("b", weight=1 + 2 * (turn % 2))).settle()
        victims = [eviction.victim for eviction in world.decisions.evictions.values()]
        evictions += [(world.now, victim.queue) for victim in victims[:1]]
        for number, victim in enumerate(victims):
            name = victim.group.partition("/")[2]
            world.delete(victim.name).add(pod(f"{name}-{turn}-{number}", name)).settle()
        planned = [name for each in world.decisions.groups for name in world.plan(each.partition("/")[2])]
        world.scheduler_takes(*planned).run(*planned).settle()
        world.pass_time(150.0)
    for name in ("a", "b"):
        instants = [instant for instant, queue_name in evictions if queue_name == name]
        assert len(instants) > 4
        for first in instants:
            assert len([instant for instant in instants if first <= instant < first + HOUR]) <= 1 + 3


def test_queues_that_lend_to_each_other_by_turns_always_get_back_what_they_deserve() -> None:
    """Let the queue with work take all capacity until the other one has work as well."""
    world = World(node("n"), queue("a"), queue("b"))
    for turn in range(8):
        for name, other in (("a", "b"), ("b", "a")):
            _come(world, name, turn, 4)
            _come(world, other, turn, 2)
            assert [each for each in world.pods if world.pods[each].spec.node_name and each[0] == other]
            world.pass_time(61.0)
            for group in list(world.decisions.groups):
                world.ledger.intake.drop_group(group)
            world.delete(*list(world.pods)).settle()


def _come(world: World, where: str, turn: int, count: int) -> None:
    """Add new groups to a queue; they start in place of others if there is no free capacity."""
    groups = [f"{where}{turn}-{number}-{world.now}" for number in range(count)]
    world.advance(60.0)
    world.add([gang(name, 1, queue=where, created=timestamp(world.now)) for name in groups]).settle()
    for _ in groups:
        for eviction in list(world.decisions.evictions.values()):
            world.delete(eviction.victim.name)
        world.settle()
        planned = [name for each in world.decisions.groups for name in world.plan(each.partition("/")[2])]
        world.scheduler_takes(*planned).run(*planned).settle()


@each_of(False, True)
def test_groups_that_are_deleted_after_evictions_are_given_little(starts: bool) -> None:
    """Limit reclaims for groups that come only to evict.

    Four groups come every two minutes for an hour, and are deleted once capacity is reclaimed for them,
    or as soon as they run. Muster restarts every ten minutes. Evicted pods come again.
    """
    base: list[Any] = [node("n", cpu="8"), queue("b")]
    world = World(base, queue("a"), [gang(f"b{n}", 1, queue="b") for n in range(8)])
    world.start(*(f"b{n}" for n in range(8)))
    evictions = 0
    for turn in range(30):
        names = [f"x{turn}-{n}" for n in range(4)]
        world.add([gang(name, 1, queue="a") for name in names]).settle()
        for _ in range(3):
            victims = [each.victim for each in world.decisions.evictions.values()]
            for number, victim in enumerate(victims):
                again = pod(f"{victim.name}-{turn}-{number}", victim.group.partition("/")[2])
                world.delete(victim.name).add(again)
            evictions += len(victims)
            world.settle()
        if starts and world.plan(names[0]):
            world.start(*(name for name in names if world.plan(name)))
        for name in names:
            world.ledger.intake.drop_group(key(name))
        world.delete(*(f"{name}-0" for name in names)).settle()
        world.start(*(name for name in (f"b{n}" for n in range(8)) if world.plan(name)))
        if turn % 5 == 4:
            before, groups = world, [gang(f"b{n}", 1, queue="b")[0] for n in range(8)]
            world = World(base, replace(queue("a"), status=written(before)), groups)
            world.now = before.now
            world.add(*before.pods.values()).settle()
        world.pass_time(120.0)
    assert 4 <= evictions <= (1 + 3) * 4


class Coming:
    """World in which groups come to queue a and go again; evicted pods come again.

    Queue a deserves half of what b holds. The victims have run for `ran` seconds before each turn, or for
    the longest possible time.
    """

    def __init__(self, ran: float = 0.0) -> None:
        self.base: list[Any] = [node("n"), queue("a"), queue("b")]
        self.ran = ran
        self.world = World(self.base, *(gang(name, 1, queue="b") for name in VICTIMS)).start(*VICTIMS)

    def takes(self, name: str, cpu: str = "1") -> bool:
        """Return whether others make way for a new group, which runs then."""
        world = self.world
        running = [each for each in map("{}-0".format, VICTIMS) if each in world.pods]
        for each in (each for each in running if world.pods[each].spec.node_name):
            status = replace(world.pods[each].status, start_time=timestamp(world.now))
            world.add(replace(world.pods[each], status=status))
        world.pass_time(self.ran)
        world.add(gang(name, 1, queue="a", cpu=cpu, created=timestamp(world.now))).settle()
        victims = [eviction.victim for eviction in world.decisions.evictions.values()]
        for victim in victims:
            world.delete(victim.name).settle()
        if victims:
            world.start(name)
        return bool(victims)

    def goes(self, name: str) -> None:
        self.world.ledger.intake.drop_group(key(name))
        self.world.delete(f"{name}-0").settle()
        again = [each for each in VICTIMS if f"{each}-0" not in self.world.pods]
        self.world.add([pod(f"{each}-0", each) for each in again]).settle()
        self.world.start(*(each for each in VICTIMS if self.world.plan(each)))


@pytest.mark.parametrize("name", ["due", "due{turn}"])
@pytest.mark.parametrize(
    ("ran", "reserved", "turns"), [(0.0, 61.0, 8), (0.0, 30.0, 4), (300.0, 200.0, 4), (300.0, 400.0, 8)]
)
def test_a_reclaim_counts_as_unused_unless_the_group_runs_as_long_as_its_victims_had_run(
    name: str, ran: float, reserved: float, turns: int
) -> None:
    """A minute at least; whether the next group has the same name or not."""
    coming, reclaims = Coming(ran), 0
    for turn in range(8):
        called = name.format(turn=turn)
        reclaims += coming.takes(called)
        coming.world.pass_time(reserved)
        coming.goes(called)
    assert reclaims == turns


def test_a_group_that_completes_has_used_its_reclaim() -> None:
    coming = Coming()
    for turn in range(8):
        assert coming.takes(f"short{turn}")
        coming.world.finish(f"short{turn}-0").settle()
        coming.goes(f"short{turn}")


def test_unused_reclaims_of_overlapping_groups_count() -> None:
    coming, reclaims = Coming(), 0
    reclaims += coming.takes("x0")
    for turn in range(8):
        reclaims += coming.takes(f"x{turn + 1}")
        coming.goes(f"x{turn}")
    assert reclaims <= 2 + 3


def test_a_paused_claimant_reports_the_end_of_its_pause_and_blocks_no_group() -> None:
    coming = Coming()
    world = coming.world
    for turn in range(4):
        assert coming.takes(f"x{turn}")
        coming.goes(f"x{turn}")
    assert not coming.takes("y")
    until = timestamp(world.now + RECLAIM_AT_MOST)
    assert f"queue b lost capacity to groups of namespace {NAMESPACE} in queue a in vain" in (
        text := message_of(world.decision("y"))
    )
    assert f"gives none until {until}" in text
    world.pass_time(RECLAIM_AT_MOST)  # one that does not go again has its capacity back all the same
    assert world.reason("y") is Reason.RECLAIMING
    other = builders.group("z", 1, "a", namespace="other", created=timestamp(world.now))
    of_it = pod("z-0", "z")
    world.add(other, replace(of_it, metadata=replace(of_it.metadata, namespace="other"))).settle()
    assert world.decisions.groups[GroupKey("other/z")].reason is Reason.RECLAIMING


def test_a_group_is_evicted_for_a_queue_once_unless_that_queue_could_not_use_the_capacity_in_time() -> None:
    coming = Coming()
    world = coming.world
    world.add(queue("a", preemption=preemption(at_most="15m")))
    assert coming.takes("x", cpu="2")
    world.pass_time(61.0)
    coming.goes("x")
    begun = world.now
    assert coming.takes("y", cpu="2")  # of those that gave nothing yet
    world.pass_time(61.0)
    coming.goes("y")
    assert not coming.takes("z", cpu="2")
    assert "lost its capacity to queue a already" in message_of(world.decision("z"))
    world.pass_time(RECLAIM_AT_MOST)
    assert world.reason("z") is Reason.RECLAIMING
    assert world.now - begun < HOUR
