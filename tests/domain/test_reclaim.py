"""Reclaimed capacity: its victims, its claimants, and the outcome for both."""

from itertools import product
from typing import Any

from msgspec.structs import replace

from extender.api.keys import QUEUE
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import PriorityClass
from extender.api.objects.queues import (
    BorrowWithinCohort,
    GangPolicy,
    NativePodGroup,
    NativePodGroupSpec,
    QueuePreemption,
    SchedulingPolicy,
)
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from tests.domain import builders
from tests.domain.builders import budget, foreign_pod, group, node, pod, preemption, queue
from tests.domain.world import World, gang, key, names, nodes, timestamp
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING


def evicted(world: World) -> list[str]:
    """Return the names of the pods that are to be evicted now."""
    return sorted(eviction.victim.name for eviction in world.decisions.evictions.values())


def evict(world: World) -> World:
    """Do what was decided: the pods go at once."""
    return world.delete(*evicted(world)).settle()


def borrowed(cpu: str = "4", **victims: Any) -> World:
    """Return a world whose queue b holds all with groups of one; a deserves half."""
    world = World(node("n", cpu=cpu), queue("a"), queue("b", **victims))
    for n in range(int(cpu)):
        world.add(gang(f"b{n}", 1, queue="b", created=f"2026-01-0{n + 1}"))
    return world.start(*(f"b{n}" for n in range(int(cpu))))


def test_a_starved_queue_reclaims_what_it_deserves_and_no_more() -> None:
    world = borrowed().add(gang("x", 2, queue="a")).settle()
    assert world.reason("x") is Reason.RECLAIMING
    assert len(evicted(world)) == 2
    assert evict(world).verdict("x") is STARTS
    world.add(gang("y", 1, queue="a")).settle()
    assert world.verdict("y") is WAITS
    assert not evicted(world)


@each_of(
    (3, {}, False),  # it would still not fit
    (2, {"reclaimable": False}, False),
    (1, {"guarantee": {"cpu": "3"}}, True),
    (1, {"guarantee": {"cpu": "4"}}, False),
)
def test_no_pod_is_evicted_in_vain_or_from_a_guarantee(members: int, victims: Any, gives: bool) -> None:
    world = borrowed(**victims).add(gang("x", members, queue="a")).settle()
    assert len(evicted(world)) == (members if gives else 0)
    assert (world.reason("x") is Reason.RECLAIMING) is gives


@each_of({}, {"cpu": "8"})
def test_a_queue_that_deserves_nothing_of_a_resource_gives_all_of_it_back(others: dict[str, str]) -> None:
    gpu = {"x.io/gpu": "2"}
    world = World(
        node("n", cpu="8", more=gpu),
        queue("a", deserved=gpu),
        queue("b", deserved={"x.io/gpu": "0", **others}),
    )
    world.add(gang("g", 1, queue="b", cpu="1" if others else "0", more=gpu)).start("g")
    world.add(gang("x", 1, queue="a", cpu="0", more=gpu)).settle()
    assert evicted(world) == ["g-0"]
    assert evict(world).verdict("x") is STARTS


def peaceful(members: int, queue: str) -> list[Any]:
    """Return a gang that deserves its capacity, and preempts no pod."""
    group, *pods = gang("peaceful", members, queue=queue)
    return [group, *(replace(each, spec=replace(each.spec, preemption_policy="Never")) for each in pods)]


GPU = "nvidia.com/gpu"


def accelerators(memory: str, members: int) -> World:
    """Return a world whose queue rich holds two machines of 8 GPUs; each member takes one and `memory`."""
    machine: dict[str, Any] = {"cpu": "200", "memory": "2000Gi", "more": {GPU: "8"}}
    world = World(node("m", **machine), node("n", **machine), queue("rich"), queue("poor"))
    capacity: dict[str, Any] = {"cpu": "1", "more": {GPU: "1", "memory": memory}}
    for number in range(16 // members):
        world.add(gang(f"r{number}", members, queue="rich", **capacity))
    world.start(*(f"r{number}" for number in range(16 // members)))
    world.add([gang(f"more{number}", members, queue="rich", **capacity) for number in range(4)])
    return world.add(gang("x", 8, queue="poor", **capacity)).settle()


@each_of(*product([1, 2, 4, 8], ["100Gi", "240Gi", "250Gi"]))
def test_a_second_scarce_resource_keeps_no_queue_from_its_due(members: int, memory: str) -> None:
    """Reclaim GPUs although, with 240Gi each, two gangs of four leave rich less memory than it deserves."""
    world = accelerators(memory, members)
    assert len(evicted(world)) == 8
    assert evict(world).verdict("x") is STARTS
    again = evict(world.start("x"))
    assert not evicted(again)


@each_of(
    ({"all": 32}, 8, {"all"}),  # an endless gang that holds everything
    ({"all": 32}, 20, set()),  # not for more than the claimant's queue deserves
    ({"old": 12, "new": 20}, 16, {"new"}),  # 20 where both would be 32
    ({"old": 20, "new": 12}, 16, {"old"}),  # whichever came first
    ({"old": 20, "new": 12}, 8, {"new"}),  # the smaller one where that does
    ({"old": 12, "new": 20}, 8, {"old"}),  # even if the larger one came last
    ({"old": 20, "mid": 6, "new": 6}, 16, {"old"}),  # one rather than three
    ({"due": 16, "new": 8}, 12, {"new"}),  # free capacity counts
    ({"due": 16}, 16, set()),  # who holds its due gives nothing
)
def test_a_gang_that_straddles_the_border_of_a_share_goes_and_no_more(
    held: dict[str, int], asked: int, gone: set[str]
) -> None:
    """Evict one gang across the border of a share, and no more.

    Two queues deserve 16 of 32 cpus each, on `count` nodes. `members`: cpus that each of the claimant
    takes.
    """
    for members, count in product([1, 4], [1, 4, 16]):
        world = World(*(node(f"n{number}", cpu=str(32 // count)) for number in range(count)))
        world.add(queue("a"), queue("b"))
        for number, (name, size) in enumerate(held.items(), 1):
            world.add(gang(name, size, queue="b", created=f"2026-01-0{number}")).start(name)
        world.add(gang("idle", 32, queue="b"))  # asks for more
        cpus = min(members, 32 // count)
        world.add(gang("x", asked // cpus, queue="a", cpu=str(cpus))).settle()
        assert {name.partition("-")[0] for name in evicted(world)} == gone
        if gone:
            assert evict(world).verdict("x") is STARTS


def test_one_pod_of_node_size_blocks_no_other_queue() -> None:
    machine: dict[str, Any] = {"cpu": "8", "more": {GPU: "8"}}
    world = World(node("n", **machine), queue("a"), queue("b"))
    world.add(gang("large", 1, queue="b", more={GPU: "8"})).start("large")
    world.add(gang("x", 1, queue="a", more={GPU: "4"})).settle()
    assert evicted(world) == ["large-0"]
    world.delete("large-0").add(pod("again", "large", more={GPU: "8"})).settle()
    assert world.verdicts("x", "large") == [STARTS, WAITS]
    assert not evicted(world.start("x").settle())


def test_on_one_node_the_queue_furthest_above_its_share_gives_first() -> None:
    world = World(node("n", cpu="12"), *map(queue, "abcd"))
    held = [*(("c", f"c{n}") for n in range(7)), *(("b", f"b{n}") for n in range(5))]
    for hour, (of, name) in enumerate(held):  # those of b ran shortest
        world.add(gang(name, 1, queue=of)).start(name)
        before = world.pods[f"{name}-0"]
        began = f"2026-01-01T{hour:02}:00:00Z"
        world.add(replace(before, status=replace(before.status, start_time=began)))
    world.add(peaceful(3, "d"), gang("x", 1, queue="a")).settle()
    assert evicted(world) == ["c6-0"]


def test_surplus_goes_before_whole_groups() -> None:
    world = World(node("n", cpu="6"), queue("a"), queue("b"))
    world.add(gang("gang", 2, queue="b")).start("gang")
    world.add(gang("elastic", 4, min_member=1, queue="b")).start("elastic")
    world.settle().scheduler_takes(*world.plan("elastic")).run(*names("elastic", 4)).settle()
    world.add(gang("x", 3, queue="a")).settle()
    assert evicted(world) == ["elastic-1", "elastic-2", "elastic-3"]
    assert evict(world).verdict("x") is STARTS
    assert world.verdicts("gang", "elastic") == [RUNS, RUNS]


@each_of((None, "g"), ({"single": {}}, "g"), ("Pod", "g"), ({"all": {}}, "h"), ("PodGroup", "h"))
def test_the_disruption_mode_of_a_native_group_says_whether_it_gives_its_surplus(
    mode: Any, going: str
) -> None:
    """Its four spare members would do, and so would the gang h as a whole."""
    world = World(node("n", cpu="9"), queue("a"), queue("b"), gang("h", 4, queue="b")).start("h")
    spec = NativePodGroupSpec(SchedulingPolicy(GangPolicy(1)), disruption_mode=mode)
    meta = Meta("g", "team", uid="native", annotations={QUEUE: "b"})
    world.add(NativePodGroup(meta, spec), gang("g", 5, queue="b")[1:]).start("g")
    world.settle().scheduler_takes(*world.plan("g")).run(*names("g", 5)).settle()
    world.add(gang("x", 4, queue="a")).settle()
    assert [name.partition("-")[0] for name in evicted(world)] == [going] * 4


def test_the_group_that_ran_shortest_is_evicted_first() -> None:
    world = borrowed()
    for n in range(4):
        before = world.pods[f"b{n}-0"]
        began = f"2026-01-01T0{(n + 2) % 4}:00:00Z"
        world.add(replace(before, status=replace(before.status, start_time=began)))
    world.add(gang("x", 2, queue="a")).settle()
    assert evicted(world) == ["b0-0", "b1-0"]


def test_no_other_group_gets_the_capacity_while_victims_leave() -> None:
    world = borrowed().add(gang("x", 2, queue="a")).settle()
    first, second = evicted(world)
    world.delete(first).add(gang("late", 1, queue="b"), pod("alone", queue="b")).settle()
    assert [world.reason("x"), world.verdict("late")] == [Reason.RECLAIMING, WAITS]
    assert world.answer("x-0") is Reason.RECLAIMING
    assert evicted(world) == [second]
    assert world.delete(second).settle().verdict("x") is STARTS


def test_terminating_pods_count_as_free_capacity() -> None:
    """Count victims that are going after a restart, when nothing is known of the reclaim."""
    world = borrowed()
    world.mark_deleted("b0-0")
    world.mark_deleted("b1-0")
    world.add(gang("x", 2, queue="a")).settle()
    assert not evicted(world)
    assert world.delete("b0-0", "b1-0").settle().verdict("x") is STARTS


def test_a_reclaim_ends_at_its_deadline_and_reports_it() -> None:
    world = borrowed().add(gang("x", 2, queue="a")).settle()
    for name in evicted(world):
        world.mark_deleted(name)
    world.pass_time(301.0)
    world.settle()
    assert world.reason("x") is Reason.BACKING_OFF
    assert "did not become free in time" in world.detail("x")


@each_of(lambda world: world.add(node("more")), lambda world: world.delete("x-0"))
def test_victims_that_are_not_needed_any_more_stay(change: Any) -> None:
    world = borrowed().add(gang("x", 2, queue="a")).settle()
    assert evicted(world)
    change(world).settle()
    assert (world.verdict("x") is STARTS) is ("x-0" in world.pods)
    assert not evicted(world)


def test_a_gang_goes_whole_or_not_at_all_and_its_replacements_wait_until_all_of_it_is_gone() -> None:
    world = World(*nodes("m", "n", cpu="4"), queue("a"), queue("b"))
    for name in ("g", "h"):
        world.add(gang(name, 4, queue="b")).start(name)
    world.add(gang("x", 4, queue="a")).settle()
    victims = evicted(world)
    group = victims[0].partition("-")[0]
    assert victims == [*names(group, 4)]
    for n, name in enumerate(victims):
        world.delete(name).add(pod(f"{group}-again-{n}", group)).settle()
        assert not world.plan(group)
    assert world.verdict("x") is STARTS
    assert world.verdict(group) is WAITS
    assert not world.stood_whole(group)


def test_a_refused_eviction_leads_to_another_victim_and_is_not_capacity_taken_in_vain() -> None:
    """Each is refused once, as where a right is missing; a minute later they are tried again."""
    world, tried = borrowed().add(gang("x", 1, queue="a")).settle(), list[str]()
    while going := evicted(world):
        tried += going
        world.ledger.record_refused_eviction(Uid(world.pods[going[0]].metadata.uid))
        world.settle()
    assert len(tried) == len({*tried}) > 1
    assert not world.decision("x").spared
    world.pass_time(61.0)
    assert evicted(world.settle())


# ---- disruption budgets


def two_gangs(*budgets: Any) -> World:
    """Return a world whose queue b holds all with two gangs, `early` and `late`; `late` is evicted first."""
    world = World(node("n"), queue("a"), queue("b"), *budgets)
    for number, name in enumerate(("early", "late"), 1):
        created = f"2026-01-0{number}T00:00:00Z"
        world.add(gang(name, 2, queue="b", created=created, labels={"job": name, "team": "b"})).start(name)
    return world


def starve(world: World) -> list[str]:
    """Return the gangs that have to go for a group of queue a."""
    world.add(gang("x", 2, queue="a")).settle()
    return sorted({name.partition("-")[0] for name in evicted(world)})


@each_of(
    ([], ["late"]),
    ([budget("p", 0, job="late")], ["early"]),
    ([budget("p", 1, job="late")], ["early"]),  # half of it: it stays whole
    ([budget("p", 2, job="late")], ["late"]),
    ([budget("p", 2, stale=True, job="late")], ["early"]),  # no controller has counted by its spec yet
    ([budget("p", 9, job="late"), budget("q", 9, team="b", job="late")], ["early"]),  # never evicted
    ([budget("p", 0, job="other")], ["late"]),
    ([budget("p", 0)], []),  # an empty selector selects all pods
    ([budget("p", 1, team="b")], []),
    ([budget("p", 2, team="b")], ["late"]),
)
def test_a_budget_protects_gangs_that_it_does_not_allow_to_evict_whole(
    budgets: list[Any], gone: list[str]
) -> None:
    assert starve(two_gangs(*budgets)) == gone


def test_pods_that_are_evicted_together_count_together() -> None:
    world = relabelled(borrowed().add(budget("p", 1, team="b")), *(f"b{n}-0" for n in range(4)), team="b")
    world.add(gang("x", 2, queue="a")).settle()
    assert not evicted(world)
    world.add(budget("p", 2, team="b")).settle()
    assert len(evicted(world)) == 2


def test_a_victim_of_one_reclaim_is_not_available_to_another() -> None:
    world = borrowed(cpu="8").add(budget("p", 1, team="b"))
    relabelled(world, *(f"b{n}-0" for n in range(8)), team="b").add(gang("x", 1, queue="a")).settle()
    assert len(evicted(world)) == 1
    world.add(gang("y", 1, queue="a"), gang("z", 1, queue="a")).settle()
    (going,) = evicted(world)
    world.mark_deleted(going)
    world.add(budget("p", 0, team="b")).settle()  # the API server has counted it off
    assert not evicted(world)
    world.add(budget("p", 1, team="b")).settle()
    assert len(evicted(world)) == 1


def relabelled(world: World, *names: str, **labels: str) -> World:
    for name in names:
        before = world.pods[name]
        world.add(replace(before, metadata=replace(before.metadata, labels=labels)))
    return world


@each_of(
    lambda world: world.add(budget("p", 2, team="b")),
    lambda world: world.ledger.intake.drop_disruption_budget("team", "p"),
    lambda world: relabelled(world, *names("late", 2), job="late"),
)
def test_pods_may_go_once_their_budget_allows_it_is_gone_or_selects_others(change: Any) -> None:
    world = two_gangs(budget("p", 1, team="b"))
    assert not starve(world)
    assert not evicted(world.add(budget("p", 1, team="b")).settle())
    change(world)
    assert evicted(world.settle()) == [*names("late", 2)]


def half_gone() -> World:
    """Return a world where one member of a gang that makes way for a smaller group has gone.

    The next eviction is refused.
    """
    world = World(node("n"), queue("q"), gang("low", 4, queue="q")).start("low")
    world.add(important("high", 1, queue="q")).settle()
    assert evicted(world) == [*names("low", 4)]
    world.delete("low-0").ledger.record_refused_eviction(Uid(world.pods["low-1"].metadata.uid))
    return world.settle()


def test_a_gang_that_is_going_goes_even_if_an_eviction_is_refused() -> None:
    world = half_gone()
    assert evicted(world) == ["low-1", "low-2", "low-3"]
    assert world.reason("high") is Reason.RECLAIMING
    assert evicted(world.delete("low-2", "low-3").settle()) == ["low-1"]
    assert world.delete("low-1").settle().verdict("high") is STARTS


def test_the_group_starts_at_the_deadline_next_to_the_rest_of_a_gang() -> None:
    world = half_gone()
    world.pass_time(301.0)
    assert world.settle().verdict("high") is STARTS
    assert not evicted(world)


def test_minimum_runtime() -> None:
    rules = preemption(min_runtime="1h")
    world = borrowed(preemption=rules).add(gang("x", 1, queue="a"))
    for n in range(4):
        before = world.pods[f"b{n}-0"]
        world.add(replace(before, status=replace(before.status, start_time=timestamp(world.now))))
    assert not evicted(world.settle())
    world.pass_time(3601.0)
    assert len(evicted(world.settle())) == 1


@each_of((preemption(after="10m"), 600.0), (None, 120.0))
def test_groups_wait_for_a_while_before_others_are_evicted(
    rules: QueuePreemption | None, seconds: float
) -> None:
    world = borrowed()
    world.add(queue("a", preemption=rules))
    world.add(gang("x", 1, queue="a", created=timestamp(world.now)))
    assert not evicted(world.settle())
    world.pass_time(seconds - 1.0)
    assert not evicted(world.settle())
    world.pass_time(2.0)
    assert len(evicted(world.settle())) == 1


@each_of(
    (None, 10, []),
    (BorrowWithinCohort("Never"), 10, []),
    (BorrowWithinCohort("LowerPriority"), 10, ["low-0"]),
    (BorrowWithinCohort("LowerPriority"), 5, ["low-0"]),
    (BorrowWithinCohort("LowerPriority"), 1, []),  # no lower one
    (BorrowWithinCohort("LowerPriority", 1), 10, ["low-0"]),
    (BorrowWithinCohort("LowerPriority", 0), 10, []),  # low is too important
)
def test_a_queue_may_borrow_from_lower_priorities(rules: Any, priority: int, gone: list[str]) -> None:
    """Borrow from lower priorities, for queue a, which holds its 2 of 6 cpus.

    Queue b holds more than its 2, with a group of priority 5 and one of 1; c wants its 2, and takes them
    without evictions.
    """
    world = World(node("n", cpu="6"), queue("c", deserved={"cpu": "2"}))
    world.add(queue("a", deserved={"cpu": "2"}, preemption=preemption(borrow_within_cohort=rules)))
    world.add(queue("b", deserved={"cpu": "2"}))
    world.add(gang("own", 2, queue="a", priority=10), gang("high", 3, queue="b", priority=5)).start(
        "own", "high"
    )
    world.add(gang("low", 1, queue="b", priority=1)).start("low")
    world.add(peaceful(2, "c"), gang("x", 1, queue="a", priority=priority)).settle()
    assert evicted(world) == gone
    if gone:
        assert evict(world).verdict("x") is STARTS
        assert not evicted(world.start("x"))


def test_no_queue_borrows_from_a_queue_within_its_share() -> None:
    rules = preemption(borrow_within_cohort=BorrowWithinCohort("LowerPriority"))
    world = World(node("n"), queue("a", preemption=rules), queue("b"))
    world.add(gang("own", 2, queue="a", priority=10), gang("low", 2, queue="b")).start("own", "low")
    world.add(gang("x", 1, queue="a", priority=10)).settle()
    assert not evicted(world)


def test_a_queue_at_the_ceiling_of_its_parent_returns_what_it_borrowed_from_its_sibling() -> None:
    world = World(nodes("n0", "n1", cpu="8"), queue("above", capability={"cpu": "4"}), queue("elsewhere"))
    world.add(queue("a", parent="above"), queue("b", parent="above"))
    for n in range(4):
        world.add(gang(f"b{n}", 1, queue="b", created=f"2026-01-0{n + 1}"))
    world.start(*(f"b{n}" for n in range(4))).add(gang("e", 4, queue="elsewhere")).start("e")
    world.add(gang("x", 3, queue="a"), gang("y", 1, queue="a")).settle()
    assert world.reason("x") is Reason.QUEUE_CEILING, "it would bring its queue above its share"
    assert world.reason("y") is Reason.RECLAIMING
    assert evicted(world) == ["b3-0"]
    assert evict(world).verdict("y") is STARTS


# ---- inside a queue


def important(name: str, members: int, priority: int = 10, **more: Any) -> list[Any]:
    return gang(name, members, priority=priority, **more)


@each_of(
    (preemption(), 10, True),
    (preemption(), 0, False),  # the same as `low`
    (preemption(within_queue="Never"), 10, False),
    (QueuePreemption(after="0s"), 10, False),
)
def test_a_higher_priority_preempts_inside_its_queue_where_that_says_so(
    rules: QueuePreemption, priority: int, gives: bool
) -> None:
    world = World(node("n"), queue("q", preemption=rules), gang("low", 4, queue="q")).start("low")
    world.add(important("high", 2, priority, queue="q")).settle()
    assert evicted(world) == (sorted(names("low", 4)) if gives else [])
    assert (evict(world).verdict("high") is STARTS) is gives


def test_a_full_capability_preempts_inside_the_queue() -> None:
    world = World(node("n", cpu="8"), queue("q", capability={"cpu": "4"}))
    world.add(gang("l", 2, queue="q"), gang("m", 2, queue="q")).start("l", "m")
    world.add(important("high", 2, queue="q")).settle()
    assert len(evicted(world)) == 2
    assert evict(world).verdict("high") is STARTS


@each_of("Never", "PreemptLowerPriority")
def test_the_class_of_a_group_says_whether_it_evicts(policy: str) -> None:
    some = PriorityClass(Meta(name="some"), 0, preemption_policy=policy)
    world = World(node("n"), some, queue("a"), queue("b"), gang("rich", 4, queue="b")).start("rich")
    world.add(group("x", 2, "a", priority_class="some"), pod("x-0", "x"), pod("x-1", "x")).settle()
    assert len(evicted(world)) == (0 if policy == "Never" else 4)


def test_no_pod_is_evicted_for_elastic_members() -> None:
    """Queue a holds 1 of the 2 cpus that it deserves."""
    world = World(node("n"), queue("a"), queue("b"))
    world.add([gang(f"b{n}", 1, queue="b") for n in range(3)]).start("b0", "b1", "b2")
    world.add(gang("elastic", 3, min_member=1, queue="a")).start("elastic")
    assert world.verdict("elastic") is Verdict.RUNNING
    assert world.reason("elastic") is not None
    assert not evicted(world)


def test_a_group_that_never_preempts_evicts_no_pod() -> None:
    world = World(node("n"), queue("q"), gang("low", 4, queue="q")).start("low")
    world.add(important("high", 2, queue="q"))
    before = world.pods["high-0"]
    world.add(replace(before, spec=replace(before.spec, preemption_policy="Never"))).settle()
    assert not evicted(world)


@each_of(*product(("annotations", "labels"), (preemption(), preemption(honour=[]))))
def test_a_pod_may_refuse_to_be_a_victim_inside_a_queue(where: str, rules: QueuePreemption) -> None:
    world = World(node("n"), queue("q", preemption=rules))
    refuses: dict[str, Any] = {where: {"volcano.sh/preemptable": "false"}}
    world.add(gang("low", 4, queue="q", **refuses)).start("low")
    assert not evicted(world.add(important("high", 2, queue="q")).settle())


@each_of("", "of a DaemonSet", "kube-system", "priority")
def test_system_pods_are_no_victims(what: str) -> None:
    owners = (
        [OwnerReference("apps/v1", "DaemonSet", "d", "uid-d", True)] if what == "of a DaemonSet" else None
    )
    other = foreign_pod("other", on="n", cpu="4")
    meta = replace(other.metadata, owner_references=owners)
    if what == "kube-system":
        meta = replace(meta, namespace=what)
    spec = replace(other.spec, priority=2_000_000_000 if what == "priority" else 0)
    world = World(node("n"), queue("q"), replace(other, metadata=meta, spec=spec))
    world.add(important("high", 2, priority=2_000_000_001, queue="q")).settle()
    assert evicted(world) == ([] if what else ["other"])


# ---- inside a queue and from others, together


def shared(low: int, others: int, cpu: str = "8", **victims: Any) -> World:
    """Return a full world whose queues a and b deserve half of a node each; a has a gang of low priority."""
    world = World(node("n", cpu=cpu), queue("a"), queue("b", **victims))
    world.add(gang("low", low, queue="a")).start("low")
    for n in range(others):
        world.add(gang(f"b{n}", 1, queue="b", created=f"2026-01-0{n + 1}")).start(f"b{n}")
    return world


@each_of(
    (4, {}, ["b4-0", *names("low", 3)]),
    (3, {}, [*names("low", 3)]),
    (5, {}, []),
    (4, {"reclaimable": False}, []),
    (4, {"guarantee": {"cpu": "5"}}, []),
)
def test_reclaim_and_preemption_evict_for_one_group_together(
    members: int, victims: dict[str, Any], gone: list[str]
) -> None:
    world = shared(3, 5, **victims).add(important("high", members, queue="a")).settle()
    assert evicted(world) == gone


def test_a_reclaim_of_two_groups_evicts_pod_by_pod() -> None:
    """Evict on: until the last pod has gone, its queue holds more than it deserves with the group."""
    world = shared(3, 5).add(important("high", 4, queue="a")).settle()
    for name in ["b4-0", *names("low", 3)]:
        assert world.reason("high") is Reason.RECLAIMING
        world.mark_deleted(name)
        assert world.settle().reason("high") is Reason.RECLAIMING
        world.delete(name).settle()
    assert world.verdict("high") is STARTS
    assert world.start("high").verdicts("b0", "b3") == [RUNS, RUNS]


def test_a_ceiling_takes_both_as_well() -> None:
    world = World(node("n", cpu="8"), queue("p", capability={"cpu": "6"}))
    world.add(queue("a", parent="p"), queue("b", parent="p"))
    world.add(gang("low", 2, queue="a")).start("low")
    for n in range(4):
        world.add(gang(f"b{n}", 1, queue="b", created=f"2026-01-0{n + 1}")).start(f"b{n}")
    world.add(important("high", 3, queue="a")).settle()
    assert evicted(world) == ["b3-0", *names("low", 2)]
    assert evict(world).verdict("high") is STARTS


# ---- pods of others


@each_of((gang("high", 2, queue="q", priority=10), "high", 2), (pod("p", queue="q", priority=10), "pod:p", 1))
def test_pods_of_others_with_a_lower_priority_give_way_to_a_whole_gang(
    claimant: Any, name: str, count: int
) -> None:
    world = World(node("n"), queue("q"), *(foreign_pod(f"s{n}", on="n") for n in range(4)))
    world.add(claimant).settle()
    assert len(evicted(world)) == count
    assert {eviction.victim.cause for eviction in world.decisions.evictions.values()} == {
        EvictionCause.UNMANAGED
    }
    assert evict(world).verdict(name) is STARTS


def test_the_queue_may_leave_pods_of_others_alone() -> None:
    rules = preemption(unmanaged="Never")
    world = World(node("n"), queue("q", preemption=rules), *(foreign_pod(f"s{n}", on="n") for n in range(4)))
    assert not evicted(world.add(important("high", 2, queue="q")).settle())


def test_a_gang_stays_where_another_victim_makes_it_unnecessary() -> None:
    """Spare a gang half of whose pods are on a node that does not suit the claimant.

    Of the others one node is taken first, and then that of a foreign pod, which has enough for both
    members.
    """
    ssd = {"disk": "ssd"}
    world = World(node("a", cpu="2", labels=ssd), node("b", cpu="1", labels=ssd), node("c", cpu="1"))
    world.add(queue("q"), foreign_pod("s", on="a", cpu="2"), group("low", 4, "q", stood_whole=True))
    world.add([pod(f"low-{n}", "low", cpu="0.5", on="bbcc"[n]) for n in range(4)])
    assert evicted(world.add(important("high", 2, queue="q", selector=ssd)).settle()) == ["s"]


def test_not_where_the_gang_would_not_fit_after_it() -> None:
    world = World(node("n"), queue("q"), *(foreign_pod(f"s{n}", on="n") for n in range(3)))
    vital = foreign_pod("vital", on="n")
    world.add(replace(vital, spec=replace(vital.spec, priority=2_000_000_000)))
    assert not evicted(world.add(important("high", 4, queue="q")).settle())
    assert len(evicted(world.add(important("fits", 3, queue="q")).settle())) == 3


def test_pods_that_budgets_protect_from_others_stay() -> None:
    world = World(node("n"), queue("q"), budget("p", 1, app="web"))
    world.add(*(foreign_pod(f"s{n}", on="n", labels={"app": "web" if n else "job"}) for n in range(4)))
    world.add(important("high", 3, queue="q")).settle()
    assert not evicted(world)
    world.delete(*names("high", 3)).add(important("fits", 2, queue="q")).settle()
    assert len(evicted(world)) == 2
    assert "s0" in evicted(world)


# ---- guards


def test_a_group_gives_to_the_same_one_only_once() -> None:
    world = World(node("n"), queue("q"), gang("low", 4, queue="q")).start("low")
    world.add(important("high", 2, queue="q")).settle()
    evict(world)
    world.add(*(foreign_pod(f"s{n}", on="n") for n in range(4))).settle()  # foreign pods take the capacity
    world.pass_time(60.0)
    world.delete(*(f"s{n}" for n in range(4)))
    world.delete(*names("high", 2))
    world.add(*(pod(f"back-{n}", "low") for n in range(4))).settle().scheduler_takes(
        *(f"back-{n}" for n in range(4))
    ).run(*(f"back-{n}" for n in range(4)))
    world.add(*(pod(f"high-{n}", "high", priority=10) for n in range(2))).settle()
    assert not evicted(world)
    assert world.decision("high").spared.startswith(key("low"))


def test_a_full_drain_takes_groups_whole_and_lets_none_come_back() -> None:
    world = World(node("n"), queue("q"), gang("g", 2, queue="q")).start("g")
    world.add(queue("q", stop_policy="HoldAndDrain")).settle()
    assert evicted(world) == ["g-0", "g-1"]
    world.delete("g-0").add(pod("again", "g")).settle()
    assert evicted(world) == ["g-1"]
    assert not world.plan("g")


def test_affinity_is_planned_as_well() -> None:
    world = World(*nodes("m", "n", cpu="2"), queue("a"), queue("b"))
    for name in ("w", "x", "y", "z"):
        world.add(gang(name, 1, queue="b")).start(name)
    apart = builders.anti_affinity(app="claimant")
    world.add(gang("claimant", 2, queue="a", labels={"app": "claimant"}, affinity=apart)).settle()
    assert len(evicted(world)) == 2
    world = evict(world)
    assert world.verdict("claimant") is STARTS
    assert len(set(world.plan("claimant").values())) == 2


def test_a_pod_of_others_that_comes_later_is_noticed() -> None:
    """Evaluate the waiting group again: it lacks capacity as before, but now a pod could give it."""
    world = World(node("n"), queue("q"))
    vital = [replace(foreign_pod(f"v{n}", on="n"), metadata=_in_kube_system(f"v{n}")) for n in range(4)]
    world.add(vital, important("high", 1, queue="q")).settle()
    assert world.reason("high") is Reason.NO_ROOM
    assert not evicted(world)
    world.delete("v0").add(foreign_pod("s", on="n")).settle()
    assert evicted(world) == ["s"]


def _in_kube_system(name: str) -> Meta:
    return replace(foreign_pod(name).metadata, namespace="kube-system")


def test_a_claimant_whose_capacity_another_group_took_reports_it_at_once() -> None:
    """Nothing is left to wait for; the deadline would keep it waiting, and its queue idle, for minutes."""
    world = borrowed().add(gang("x", 2, queue="a")).settle()
    going = evicted(world)
    world.delete(*going).add(foreign_pod("s", on="n")).settle()
    assert world.reason("x") is Reason.BACKING_OFF
    assert "the victims are gone" in world.detail("x")


def test_a_node_that_is_cordoned_meanwhile_ends_a_reclaim() -> None:
    world = World(*nodes("m", "n", cpu="2"), queue("a"), queue("b"))
    for name in ("w", "x", "y", "z"):
        world.add(gang(name, 1, queue="b")).start(name)
    world.add(gang("claimant", 1, queue="a")).settle()
    (first,) = evicted(world)
    on = str(world.pods[first].spec.node_name)
    world.add(node(on, cpu="2", cordoned=True)).settle()
    (second,) = evicted(world)
    assert world.pods[second].spec.node_name != on


def test_decisions_that_count_terminating_pods_stay_valid() -> None:
    """Queue a is within its share once one of its pods has gone: that counts as gone, now and later."""
    world = shared(3, 5)
    world.mark_deleted("low-0")
    world.add(gang("x", 2, queue="a"), gang("y", 1, queue="a", created="2027-01-01")).settle()
    before = world.decisions.groups
    assert evicted(world)
    assert world.settle().decisions.groups == before


@each_of((), ("m",), ("m", "n"))
def test_no_pod_is_evicted_for_members_above_the_minimum(there: tuple[str, ...]) -> None:
    world = World(*nodes(*there, cpu="1"), queue("a"), queue("b"), gang("x", 1, min_member=0, queue="a"))
    holders = [pod(f"low-{n}", "low", on=each) for n, each in enumerate(there or ("gone",))]
    world.add(group("low", 1, queue="b"), holders).settle().pass_time(301.0)
    assert world.reason("x") is Reason.NO_ROOM
    assert world.decision("x").reclaim is None
