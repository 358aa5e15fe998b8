"""Reservations: a group that has waited too long gets nodes, and who may start in front of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.model.run_history import series_of
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.reservation import CapacityTurn, turn_at
from extender.domain.snapshot.group_info import Reservation
from tests.domain import job_world
from tests.domain.builders import HOSTNAME, flavor, foreign_pod, group, node, on_flavor, pod, queue
from tests.domain.job_world import JobWorld, podgroup_name
from tests.domain.world import LIMITS, World, comparable, gang, key, names, nodes, timestamp
from tests.rows import each_of

STARTS, WAITS = Verdict.STARTING, Verdict.WAITING
PATIENCE = 600.0
HOUR = "1h"


def is_promised(world: World) -> bool:
    """Return whether the group `big` says when it starts."""
    return "to start about " in world.detail("big")


def job(world: World, name: str, members: int = 1, **more: Any) -> World:
    """Add a gang that comes now."""
    now = timestamp(world.now)
    return world.add(gang(name, members, created=now, **{"cpu": "2", **more}))


def set_limits(world: World, **limits: Any) -> None:
    world.ledger.limits = replace(world.ledger.limits, **limits)


def busy(run_time: str = HOUR, cluster: int = 2, **queues: Any) -> World:
    """Return nodes of 4 cpu, each full of two jobs of 2 cpu; `big` needs two whole nodes."""
    own = queue("default", **queues)
    return filled(World(nodes(*(f"n{n}" for n in range(cluster))), own, queue("r")), cluster, run_time)


def filled(world: World, cluster: int, run_time: str) -> World:
    for n in range(2 * cluster):
        job(world, f"small{n}", run_time=run_time).start(f"small{n}")
    return job(world, "big", 2, cpu="4")


def reserved(run_time: str = HOUR, cluster: int = 2) -> World:
    """Return the busy world once `big` has waited too long."""
    world = busy(run_time, cluster)
    world.pass_time(PATIENCE + 1.0)
    return world


def reservation(world: World) -> Reservation:
    found = world.decision("big").reservation
    assert found is not None
    return found


def end(world: World, *ended: str) -> World:
    for name in ended:
        world.finish(f"{name}-0")
    return world.settle()


# ---- when there is one


@each_of(0.0, 3600.0, -3600.0, 400.0, -400.0)
def test_a_group_gets_one_once_it_has_waited_for_so_long_whatever_the_wall_clock_does(step: float) -> None:
    world = busy()
    world.pass_time(PATIENCE / 2)
    world.wall_steps += step
    world.pass_time(PATIENCE / 2 - 1.0)
    assert world.decision("big").reservation is None
    world.pass_time(1.0)
    assert set(reservation(world).nodes.values()) == {"n0", "n1"}
    assert world.queue("default").reservation == reservation(world)


@each_of(3600.0, -3600.0)
def test_a_group_that_comes_after_a_clock_step_waits_no_longer_than_others(step: float) -> None:
    """Its timestamp is of the clock as it is then."""
    world = busy().delete("big-0", "big-1")
    world.wall_steps += step
    world.add(gang("late", 2, cpu="4", queue="r", created=timestamp(world.now + step))).settle()
    world.pass_time(PATIENCE - 1.0)
    assert world.decision("late").reservation is None
    world.pass_time(2.0)
    assert world.decision("late").reservation is not None


def test_a_group_that_comes_when_capacity_is_gone_does_not_wait_for_the_reservation() -> None:
    world = reserved()
    world.finish("small0-0")
    job(world, "a", run_time="3h")
    job(world, "b", cpu="1", run_time="60s")
    decisions = job(world, "c", run_time="3h").decide().groups
    assert decisions[key("b")].verdict is STARTS
    assert [decisions[key(name)].reason for name in ("a", "c")] == [Reason.RESERVED, Reason.NO_ROOM]


def test_the_queue_sets_the_wait_before_a_reservation() -> None:
    world = busy(reserve_after="30s")
    world.pass_time(31.0)
    assert reservation(world)


def test_the_message_of_a_reservation_names_the_nodes_and_the_timestamp() -> None:
    world = busy()
    came = world.now
    world.pass_time(PATIENCE + 1.0)
    assert world.reason("big") is Reason.NO_ROOM
    text = f"nodes n0, n1 are reserved; it is to start about {timestamp(came + 3600.0)}"
    assert world.detail("big").endswith(text)


@each_of(
    lambda world: world.delete("big-0"),  # a member is gone
    lambda world: world.add(queue("default", capability={"cpu": "4"})),  # above the ceiling
    lambda world: world.ledger.intake.drop_group("team/big"),  # deleted
)
def test_a_reservation_ends_when_its_group_cannot_start(spoil: Any) -> None:
    world = reserved()
    spoil(world)
    world.settle()
    assert world.decision("big").reservation is None
    assert world.queue("default").reservation is None
    assert end(job(world, "late", queue="r"), "small0").verdict("late") is STARTS


def test_a_group_that_never_fits_gets_none() -> None:
    world = job(busy(), "huge", 3, cpu="4")
    world.pass_time(PATIENCE + 1.0)
    assert world.reason("huge") is Reason.NEVER_FITS
    assert world.decision("huge").reservation is None


def test_no_reservation_is_made_on_nodes_with_pods_of_others() -> None:
    world = World(node("n0"), node("n1"), foreign_pod("s", on="n0"))
    job(world, "big", 2, cpu="4").pass_time(PATIENCE + 1.0)
    assert world.decision("big").reservation is None
    world.delete("s").settle()
    assert world.verdict("big") is STARTS


@each_of((0.0, 0), (0.05, 1), (0.1, 1), (0.25, 2), (0.8, 8), (1.0, 10))
def test_reservations_take_a_part_of_the_cluster_and_one_for_each_queue(share: float, count: int) -> None:
    """Each asks for a tenth of the cpus. Nodes for four of them are looked for in one cycle."""
    world = World(node("n", cpu="40"), [queue(f"q{n}") for n in range(10)])
    world.cycles = 4
    set_limits(world, max_reserved_part=share)
    job(world, "runs", cpu="40", run_time=HOUR).start("runs")
    for n in range(10):
        job(world, f"a{n}", cpu="4", queue=f"q{n}")
        job(world, f"b{n}", cpu="4", queue=f"q{n}")
    world.pass_time(PATIENCE + 20.0)
    holders = [d for d in world.decisions.groups.values() if d.reservation is not None]
    assert len(holders) == len({holder.queue for holder in holders}) == count


def test_a_group_that_can_get_no_reservation_blocks_no_other_reservation() -> None:
    """A stranger that stays on n2 leaves no capacity for three of 4 cpu; those that come later need two."""
    world = busy(cluster=3).delete("big-0", "big-1")
    world.add(foreign_pod("s", on="n2", cpu="1")).settle()
    job(world, "huge", 3, cpu="4")
    world.pass_time(1.0)
    job(world, "large", 2, cpu="4")
    world.pass_time(PATIENCE + 1.0)
    assert world.decision("huge").reservation is None
    assert world.decision("large").reservation is not None


def test_the_order_of_the_queue_and_not_the_longest_wait_selects_the_reservation() -> None:
    world = busy()
    job(world, "high", 2, cpu="3", priority=5).pass_time(PATIENCE + 1.0)
    assert world.decision("high").reservation is not None
    assert world.decision("big").reservation is None
    assert [world.decision(name).position for name in ("high", "big")] == [1, 2]


def test_the_first_of_equal_groups_gets_the_reservation_once_it_has_waited_too_long() -> None:
    world = busy()
    world.pass_time(PATIENCE / 2)
    job(world, "high", 2, cpu="4", priority=5).pass_time(PATIENCE / 2 + 1.0)
    assert world.decision("big").reservation is not None
    assert world.decision("high").reservation is None


def test_several_reservations_are_made_in_one_cycle() -> None:
    world = World(node("n", cpu="40"), [queue(f"q{n}") for n in range(4)])
    set_limits(world, max_reserved_part=0.3, max_reclaims=0)
    job(world, "runs", cpu="40", run_time=HOUR).start("runs")
    for n in range(4):
        job(world, f"a{n}", cpu="4", queue=f"q{n}")
    world.settle().now += PATIENCE + 1.0
    decided = decide(world.ledger.snapshot(), world.decisions).groups
    assert [key for key, decision in decided.items() if decision.reservation] == [
        "team/a0",
        "team/a1",
        "team/a2",
    ]


def test_groups_that_can_get_no_reservation_are_tried_in_turn() -> None:
    """Ask each in turn: next to a foreign pod, none of 12 kinds finds two nodes, and `last` finds one."""
    world = World(node("n0"), node("n1"), queue("default"), foreign_pod("s", on="n0", cpu="1"))
    job(world, "runs", cpu="4", run_time=HOUR).start("runs")
    for n in range(12):
        job(world, f"huge{n}", 2, cpu=f"{3100 + n}m")
    world.pass_time(1.0)
    job(world, "last", cpu="3500m").pass_time(PATIENCE)
    for _ in range(12):
        world.settle().pass_time(1.0)
    assert [key for key, decision in world.decisions.groups.items() if decision.reservation] == ["team/last"]


# ---- who may pass


@each_of(
    ({"run_time": "40m"}, STARTS),
    ({"run_time": "55m"}, WAITS),
    ({}, WAITS),
    ({"run_limit": 2400}, STARTS),  # the deadline of its pods
    ({"run_limit": 3600}, WAITS),
)
def test_freed_capacity_is_reserved_and_only_groups_that_end_before_it_may_pass(
    says: dict[str, Any], verdict: Verdict
) -> None:
    world = end(job(reserved(), "late", **says), "small0")
    assert world.verdict("late") is verdict
    if verdict is WAITS:
        assert world.reason("late") is Reason.RESERVED
        assert "team/big: nodes n0, n1 are reserved" in world.detail("late")


@each_of(
    ("40m", "", STARTS),
    ("55m", "", WAITS),
    ("soon", "", WAITS),
    ("40m", "soon", STARTS),
    ("40m", "55m", WAITS),
    ("55m", "40m", STARTS),
)
def test_a_job_says_it_for_its_group_unless_its_podgroup_does(
    of_job: str, of_group: str, verdict: Verdict
) -> None:
    world = JobWorld(nodes("n0", "n1"), queue("default"))
    filled(world, 2, HOUR).pass_time(PATIENCE + 1.0)
    late = job_world.job("late", 1, cpu="2", created=timestamp(world.now))
    world.submit(late).work()
    unit = world.podgroups["late"]
    notes = {**(unit.metadata.annotations or {}), **({keys.RUN_TIME: of_group} if of_group else {})}
    world.podgroups["late"] = replace(unit, metadata=replace(unit.metadata, annotations=notes))
    world.add(world.podgroups["late"])
    end(world, "small0")
    world.annotate("late", **{keys.RUN_TIME: of_job})
    world.work()
    assert world.verdict(podgroup_name("late")) is verdict
    assert world.suspended("late") is (verdict is WAITS)


@each_of((["10m", "10m"], STARTS), (["10m", "2h"], WAITS), (["10m", ""], WAITS), (["", ""], WAITS))
def test_pods_say_it_for_their_group_if_all_do(of_pods: list[str], verdict: Verdict) -> None:
    world = reserved()
    world.add(group("late", 2, created=timestamp(world.now)))
    for number, text in enumerate(of_pods):
        notes = {keys.RUN_TIME: text} if text else None
        world.add(pod(f"late-{number}", "late", annotations=notes, created=timestamp(world.now)))
    assert end(world, "small0").verdict("late") is verdict


def test_groups_start_elsewhere() -> None:
    world = reserved(cluster=3)
    free = ({"n0", "n1", "n2"} - set(reservation(world).nodes.values())).pop()
    number = next(n for n in range(6) if world.pods[f"small{n}-0"].spec.node_name == free)
    assert end(job(world, "late"), f"small{number}").verdict("late") is STARTS


def test_capacity_of_reserved_nodes_that_the_group_will_not_need_is_free() -> None:
    world = World(node("n", cpu="6"))
    for n, run_time in enumerate(("1h", "1h", "2h")):
        job(world, f"small{n}", run_time=run_time).start(f"small{n}")
    job(world, "big", cpu="4").pass_time(PATIENCE + 1.0)
    job(world, "late", cpu="1")
    assert end(world, "small2").verdict("late") is STARTS


def test_a_group_starts_at_its_guaranteed_time() -> None:
    world = reserved()
    promised = reservation(world).starts_at
    assert promised is not None
    world.pass_time(promised - world.now - 1.0)
    end(job(world, "late"), *(f"small{n}" for n in range(4)))
    assert [world.verdict("big"), world.verdict("late")] == [STARTS, WAITS]
    assert world.queue("default").reservation is None


def test_two_groups_that_pass_do_not_take_the_same_capacity_twice() -> None:
    world = job(job(reserved(), "one", run_time="40m"), "two", run_time="40m")
    assert sorted(end(world, "small0").verdicts("one", "two")) == [STARTS, WAITS]


# ---- run times that are not declared, or are no good


def test_freed_capacity_without_run_times_is_reserved() -> None:
    world = reserved(run_time="")
    assert reservation(world).starts_at is None
    end(job(world, "late", run_time="1s"), "small0", "small1")
    assert world.reason("late") is Reason.RESERVED
    assert end(world, "small2", "small3").verdict("big") is STARTS


def test_run_times_are_learnt_from_groups_of_the_same_kind() -> None:
    world = World(nodes("n0", "n1"), queue("default"))
    job(world, "train-1").start("train-1").pass_time(900.0)
    end(world, "train-1")
    for n in range(2, 6):
        job(world, f"train-{n}").start(f"train-{n}")
    came = world.now
    job(world, "big", 2, cpu="4").pass_time(PATIENCE + 1.0)
    assert reservation(world).starts_at == came + 900.0


def test_groups_that_outrun_their_run_time_delay_the_start_and_no_group_passes_any_more() -> None:
    world = reserved(run_time="20m")
    job(world, "late", run_time="1s")
    first = reservation(world)
    assert first.starts_at is not None
    world.pass_time(first.starts_at - world.now + 1.0)
    later = reservation(world)
    assert later.starts_at is not None
    assert later.starts_at > first.starts_at
    assert later.passable_until == first.passable_until
    assert end(world, "small0").reason("late") is Reason.RESERVED


def test_declared_times_of_a_series_that_lies_are_stretched() -> None:
    """A job that says 1s and runs a day: the next of its kind does not pass."""
    world = reserved()
    job(world, "liar-1", run_time="1s")
    end(world, "small0")
    assert world.verdict("liar-1") is STARTS
    world.start("liar-1").pass_time(2000.0)
    end(job(world, "liar-2", run_time="1s"), "small1")
    job(world, "honest", run_time="1s").settle()
    assert [world.verdict("liar-2"), world.verdict("honest")] == [WAITS, STARTS]


def test_a_run_time_beyond_all_durations_counts_as_none() -> None:
    """Ignore it: otherwise the start would never come, and every group might pass."""
    world = reserved(run_time="9" * 309 + "h")
    assert (reservation(world).starts_at, reservation(world).passable_until) == (None, None)


@each_of(
    ("nightly-28392840", "nightly"),
    ("nightly-28392840-xk2bd", "nightly"),
    ("train-7d4b9c6f5-xk2bd", "train"),
    ("train-v2", "train-v2"),
    ("train-2-big", "train-2-big"),
    ("-24567", ""),
    ("", ""),
    ("x" + "-24567" * 40 + "-big", "x" + "-24567" * 40 + "-big"),  # each part is generated in two ways
)
def test_runs_of_one_series_differ_by_generated_parts(name: str, series: str) -> None:
    assert series_of("ns", "Job", name) == f"ns/Job/{series}"


# ---- capacity is not reserved idle without limit


@each_of(
    (50.0, CapacityTurn(True, 100.0)),
    (100.0, CapacityTurn(True, 110.0)),
    (109.0, CapacityTurn(True, 110.0)),
    (110.0, CapacityTurn(False, 120.0)),
    (120.0, CapacityTurn(True, 140.0)),
    (140.0, CapacityTurn(False, 160.0)),
    (159.0, CapacityTurn(False, 160.0)),
    (160.0, CapacityTurn(True, 200.0)),
    (239.0, CapacityTurn(False, 240.0)),
)
def test_turns_grow(now: float, turn: CapacityTurn) -> None:
    assert turn_at(now, first_begin=100.0, first_seconds=10.0) == turn


@given(now=st.floats(0.0, 1e9), since=st.floats(0.0, 1e9), first=st.floats(1.0, 1e4))
def test_a_turn_ends_later_than_now_and_another_follows(now: float, since: float, first: float) -> None:
    turn = turn_at(now, since, first)
    assert turn.ends_at > now
    if now > since:
        assert turn_at(turn.ends_at + 0.01, since, first).is_reserved is not turn.is_reserved


def test_capacity_next_to_services_is_reserved_and_borrowed_by_turns() -> None:
    world = reserved(run_time="")
    end(job(world, "late"), "small0")
    assert world.reason("late") is Reason.RESERVED
    kept = LIMITS.capacity_reserved
    world.pass_time(kept + 1.0)
    assert world.verdict("late") is STARTS
    assert "others may use them" in world.detail("big")
    world.start("late").finish("late-0")
    world.pass_time(kept)
    assert job(world, "later").settle().reason("later") is Reason.RESERVED


def test_no_start_is_guaranteed_after_a_missed_one() -> None:
    world = reserved(run_time="20m")
    end(job(world, "late"), "small0")
    world.pass_time(700.0)
    assert world.reason("late") is Reason.RESERVED
    world.pass_time(LIMITS.capacity_reserved)
    assert world.verdict("late") is STARTS


@each_of(("3h", STARTS), ("1h", WAITS))
def test_groups_of_unknown_run_time_pass_where_the_start_is_far(run_time: str, verdict: Verdict) -> None:
    assert end(job(reserved(run_time), "late"), "small0").verdict("late") is verdict


# ---- shares, and what carries over


def rivals(wants: bool) -> World:
    """Return a world where queue q has the whole cluster, and its `big` has a reservation.

    `wants`: queue r asked for half of the cluster when that was made.
    """
    world = World(nodes("n0", "n1"), queue("q", reclaimable=False), queue("r", reserve_after="24h"))
    for n in range(4):
        job(world, f"small{n}", run_time=HOUR, queue="q").start(f"small{n}")
    if wants:
        job(world, "waits", cpu="4", queue="r")
    job(world, "big", 2, cpu="4", queue="q").pass_time(PATIENCE + 1.0)
    job(world, "poor", queue="r")
    job(world, "rich", queue="q")
    return world


def test_a_group_above_its_share_reserves_nothing_against_those_within_theirs() -> None:
    world = rivals(wants=True)
    assert not is_promised(world)
    end(world, "small0")
    assert [world.verdict("poor"), world.verdict("rich")] == [STARTS, WAITS]


def test_a_guaranteed_start_also_binds_queues_whose_share_grew_since() -> None:
    world = rivals(wants=False)
    promised = reservation(world).starts_at
    assert promised is not None
    assert timestamp(promised) in world.detail("big")
    end(world, "small0")
    assert [world.reason("poor"), world.reason("rich")] == [Reason.RESERVED, Reason.RESERVED]
    world.pass_time(promised - world.now)
    end(world, "small1", "small2", "small3")
    assert world.verdict("big") is STARTS


@each_of(("1h", True), ("2h", False))
def test_a_start_is_promised_once_it_is_less_than_an_hour_away(run_time: str, is_reported: bool) -> None:
    """Let groups of unknown run time pass while the start is farther away."""
    world = reserved(run_time)
    assert is_promised(world) is is_reported
    world.pass_time(3600.0 if not is_reported else 0.0)
    assert is_promised(world)


@each_of(1, 2)
def test_a_start_on_a_flavor_is_promised_where_there_is_no_other(flavors: int) -> None:
    """Two jobs of 2 cpus fill the node of each flavor; both kinds suit `big`, where there are two."""
    kinds = [flavor(f"f{n}", {"cpu": "4"}) for n in range(flavors)]
    filled = [node(f"n{n}", cpu="4", labels=on_flavor(f"f{n}")) for n in range(flavors)]
    world = World(*filled, queue("default", flavors=kinds))
    for n in range(2 * flavors):
        job(world, f"small{n}", run_time=HOUR).start(f"small{n}")
    job(world, "big", cpu="4").pass_time(PATIENCE + 1.0)
    assert is_promised(world) is (flavors == 1)
    if flavors == 1:
        assert end(job(world, "late", cpu="2"), "small0").reason("late") is Reason.RESERVED
        assert end(world, "small1").verdict("big") is STARTS


def test_a_start_that_is_delayed_is_no_longer_published() -> None:
    world = reserved(run_time="20m")
    assert is_promised(world)
    world.pass_time(PATIENCE)
    assert not is_promised(world)


@each_of((5, STARTS), (0, WAITS), (-5, WAITS))
def test_the_first_group_of_its_queue_may_pass_one_without_a_guaranteed_start(
    priority: int, verdict: Verdict
) -> None:
    world = reserved(run_time="")
    job(world, "late", priority=priority)
    assert end(world, "small0").verdict("late") is verdict


def test_a_group_with_a_guaranteed_start_has_the_first_position() -> None:
    world = reserved()
    job(world, "high", priority=5, cpu="4").settle()
    assert [world.decision(name).position for name in ("big", "high")] == [1, 2]
    assert end(world, "small0", "small1").reason("high") is Reason.RESERVED


def test_a_group_with_a_reservation_keeps_its_turn_in_a_rotation() -> None:
    """One that ends in time passes it; those behind that one do not go first then."""
    world = busy("3h", strategy="rotation")
    world.pass_time(PATIENCE + 1.0)
    end(job(job(world, "late", run_time="1s"), "long", run_time="9h"), "small0")
    assert world.verdicts("late", "long") == [STARTS, WAITS]
    assert end(world.start("late"), "small1").reason("long") is Reason.RESERVED


def test_no_group_of_its_queue_passes_a_group_with_a_guaranteed_start() -> None:
    """No group overtakes in the queue; a later group of higher priority waits for other capacity."""
    world = busy(strategy="fifo")
    world.pass_time(PATIENCE + 1.0)
    job(world, "huge", 2, cpu="4", priority=9)
    world.settle()
    assert is_promised(world)
    end(world, *(f"small{n}" for n in range(4)))
    assert [world.verdict("huge"), world.verdict("big")] == [WAITS, STARTS]


def test_reservations_of_two_groups_on_one_node_add_up() -> None:
    """Each will need 2 of 8 cpus that become free; nothing of what is free now is left to a third."""
    world = World(node("n", cpu="8"), queue("q"), queue("r"))
    set_limits(world, max_reserved_part=1.0)
    for n in range(2):
        job(world, f"small{n}", cpu="3", run_time=HOUR).start(f"small{n}")
    for name in ("q", "r"):
        job(world, f"big-{name}", cpu="4", queue=name)
    world.pass_time(PATIENCE + 2.0)
    assert all(world.decision(f"big-{name}").reservation for name in ("q", "r"))
    assert job(world, "late", cpu="1", run_time="10h").settle().reason("late") is Reason.RESERVED


def test_the_same_is_decided_without_memory() -> None:
    world = reserved()
    job(world, "late")
    for n in range(4):
        end(world, f"small{n}")
        assert comparable(decide(world.ledger.snapshot(), world.decisions)) == comparable(
            decide(world.ledger.snapshot(), None)
        )


def test_a_new_member_list_gets_new_nodes() -> None:
    world = reserved()
    before = reservation(world)
    world.delete("big-0")
    world.settle()
    world.add(gang("big", 2, created=timestamp(world.now), cpu="4")).settle()
    world.pass_time(PATIENCE + 1.0)
    assert reservation(world).since > before.since


def test_a_node_that_goes_is_replaced() -> None:
    world = reserved(cluster=3)
    lost_node = next(iter(reservation(world).nodes.values()))
    world.drop_node(lost_node)
    world.settle()
    assert lost_node not in reservation(world).nodes.values()
    assert {*reservation(world).nodes} == {Uid(world.pods[name].metadata.uid) for name in names("big", 2)}
    assert len({*reservation(world).nodes.values()}) == 2


def test_a_group_that_ends_before_the_reserved_start_frees_its_capacity_for_all() -> None:
    """Share the rest of the capacity with all groups.

    `big` needs all of n0 in half an hour, and 2 of 3 cpu on n1. `short` takes the place of `big`, and
    `long`, which would stay, the one that is free for all.
    """
    world = World(node("n0", cpu="2"), node("n1", cpu="3"))
    job(world, "runs", cpu="1", run_time="30m").start("runs")
    job(world, "first", cpu="3", run_time=HOUR).start("first")
    job(world, "big", 2, cpu="2")
    world.pass_time(PATIENCE + 1.0)
    world.finish("first-0")
    job(world, "short", cpu="1", run_time="5m")
    job(world, "long", cpu="1", run_time=HOUR)
    decided = world.decide().groups
    assert [decided[key(name)].verdict for name in ("big", "short", "long")] == [WAITS, STARTS, STARTS]


def test_a_reservation_is_inside_the_domain_that_is_free_first() -> None:
    """One node of each rack is free after an hour, and the other one of rack b before that of rack a."""
    times = {"a0": "1h", "a1": "3h", "b0": "1h", "b1": "2h"}
    racks = (node(name, "4", labels={"rack": name[0]}) for name in times)
    world = World(*racks, queue("default"))
    for name, run_time in times.items():
        job(world, name, cpu="4", run_time=run_time, selector={HOSTNAME: name})
    world.start(*times)
    job(world, "big", 2, cpu="4", annotations={keys.REQUIRED_TOPOLOGY: "rack"}).pass_time(PATIENCE + 1.0)
    assert {*reservation(world).nodes.values()} == {"b0", "b1"}
