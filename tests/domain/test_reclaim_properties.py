"""Evictions in any cluster: none against the rules, and none for nothing.

`SharedWorld` checks each decision.
"""

from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.api.objects.queues import BorrowWithinCohort, QueuePreemption
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.placement.planner import Planner
from tests.domain.builders import AT_ONCE, budget, foreign_pod, node, preemption, queue
from tests.domain.shared_world import SharedWorld, units
from tests.domain.world import LIMITS, World, gang
from tests.property_examples import examples

QUEUES = ("a", "b", "c")

jobs = st.tuples(
    st.sampled_from(QUEUES),
    st.integers(1, 4),  # members
    st.integers(0, 3),  # of which so many are not needed
    st.sampled_from(["1", "2"]),  # cpus of each
    st.sampled_from([0, 5]),  # priority
)
clusters = st.tuples(
    st.integers(1, 3),  # nodes
    st.tuples(*(st.integers(1, 3) for _ in QUEUES)),  # weights
    st.integers(0, 3),  # pods of others
    st.lists(jobs, min_size=1, max_size=6),  # what runs, as far as it fits
    st.lists(jobs, min_size=1, max_size=3),  # what comes after that
)


def ran(cluster: Any, *more: Any, rules: QueuePreemption = AT_ONCE) -> SharedWorld:
    """Start all groups that fit; then add more."""
    count, weights, strangers, first, later = cluster
    world = SharedWorld([node(f"n{number}") for number in range(count)], queue("root"), *more)
    of_queue = zip(QUEUES, weights, strict=True)
    world.add([queue(name, weight=weight, preemption=rules) for name, weight in of_queue])
    world.add([foreign_pod(f"s{number}", on=f"n{number % count}") for number in range(strangers)])
    for number, job in enumerate(first):
        world.add(_gang(f"r{number}", job))
        run_what_is_planned(world)
    world.add([_gang(f"x{number}", job) for number, job in enumerate(later)])
    return world


def _gang(name: str, job: tuple[str, int, int, str, int]) -> list[Any]:
    where, members, spare, cpu, priority = job
    return gang(
        name, members, max(members - spare, 1), where, cpu=cpu, priority=priority, labels={"queue": where}
    )


def run_what_is_planned(world: World) -> None:
    world.settle()
    for _ in range(20):
        planned = [name for key in world.decisions.groups for name in world.plan(key.partition("/")[2])]
        if not planned:
            return
        world.scheduler_takes(*planned).run(*planned).settle()


@settings(max_examples=examples(15), deadline=None)
@given(clusters)
def test_a_group_for_which_pods_are_evicted_starts(cluster: Any) -> None:
    """Start the group once all its victims are gone, and nothing else has happened."""
    world = ran(cluster).settle()
    claimants = [key for key, each in world.decisions.groups.items() if each.reclaim is not None]
    going = [eviction.victim.name for eviction in world.decisions.evictions.values()]
    world.delete(*going).settle()
    for key in claimants:
        assert world.decisions.groups[key].verdict is Verdict.STARTING, key


@example((1, (1, 1, 1), 0, [("b", 3, 0, "1", 0), ("b", 1, 0, "1", 0)], [("a", 1, 0, "1", 0)]))
@example((2, (1, 1, 1), 2, [("a", 2, 0, "2", 0)], [("b", 4, 2, "1", 0), ("c", 1, 0, "1", 0)]))
@settings(max_examples=examples(20), deadline=None)
@given(clusters)
def test_no_eviction_is_superfluous(cluster: Any) -> None:
    """Check that without any one of the units, the others that go free too little capacity."""
    world = ran(cluster).settle()
    snapshot = world.ledger.snapshot()
    pods = {pod.uid: pod for group in snapshot.groups.values() for pod in group.placed_pods}
    begun = [group for key, group in snapshot.groups.items() if world.decisions.groups[key].reclaim]
    if len(begun) != 1:  # the evictions of several groups are not separated here
        return
    reclaim = world.decisions.groups[begun[0].key].reclaim
    assert reclaim is not None
    if any(victim.cause is not EvictionCause.RECLAIM for victim in reclaim.victims):
        return  # its own queue may lose more than capacity
    victims = [pods[victim.uid] for victim in reclaim.victims]
    waiting = {pod.uid: pod for group in snapshot.groups.values() for pod in group.waiting_pods}
    plans = [decision.plan for decision in world.decisions.groups.values()]
    promised = [(waiting[uid], where) for plan in plans for uid, where in plan.items() if uid in waiting]
    for unit in units(snapshot, victims):
        planner = Planner.from_snapshot(snapshot)
        planner.free(pod for pod in victims if pod not in unit)
        planner.allocate(promised)
        assert planner.place(begun[0].waiting_pods) is None, [pod.name for pod in unit]


@example(
    (
        *(2, (2, 1, 1), 0, [("a", 4, 0, "2", 0), ("a", 1, 0, "1", 0), ("c", 1, 0, "2", 0)]),
        [("a", 1, 0, "1", 0), ("a", 1, 0, "1", 0), ("c", 1, 0, "1", 0)],
    ),
    [],
)
@example((1, (1, 1, 1), 0, [("c", 2, 1, "2", 0), ("c", 1, 0, "2", 5)], [("a", 1, 0, "2", 0)]), [])
@settings(max_examples=examples(25), deadline=None)
@given(clusters, st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 4)), max_size=4))
def test_no_more_pods_go_than_budgets_allow_and_every_reclaim_ends(cluster: Any, budgets: Any) -> None:
    """The Eviction API counts off what goes; each gang goes whole."""
    allowed = dict(budgets)
    world = ran(cluster, *(budget(name, allow, queue=name) for name, allow in allowed.items()))
    for _ in range(40):
        run_what_is_planned(world)
        going = sorted(eviction.victim.name for eviction in world.decisions.evictions.values())
        if not going:
            break
        covered = {name: world.pods[name].metadata.labels or {} for name in going}
        counts = Counter(labels.get("queue", "") for labels in covered.values())
        assert all(counts[name] <= allow for name, allow in allowed.items()), (counts, allowed)
        where = covered[going[0]].get("queue", "")
        world.delete(going[0])
        if where in allowed:
            allowed[where] -= 1
            world.add(budget(where, allowed[where], queue=where))
    else:
        raise AssertionError("evictions do not end")
    assert not [group for group in world.decisions.groups.values() if group.reason is Reason.RECLAIMING]
    for group in world.ledger.snapshot().groups.values():
        if group.has_fully_run and not group.start.reclaim and group.has_live_members:
            assert group.is_whole, group.key


large = st.tuples(
    st.sampled_from(QUEUES),
    st.integers(1, 4),
    st.just(0),
    st.sampled_from(["1", "2", "3", "4"]),
    st.sampled_from([0, 5]),
)
contended = st.tuples(
    st.integers(1, 4),
    st.tuples(*(st.integers(1, 3) for _ in QUEUES)),
    st.just(0),
    st.lists(large, min_size=2, max_size=6),
    st.lists(large, min_size=1, max_size=5),
)


@settings(max_examples=examples(20), deadline=None)
@given(contended, st.sampled_from(["", "LowerPriority"]))
def test_queues_do_not_take_turns(cluster: Any, borrow: str) -> None:
    """End evictions by the shares alone.

    Nothing ever ends, evicted pods come again at once, and hours pass, so that no guard remembers
    anything.
    """
    world = ran(cluster, rules=preemption(borrow_within_cohort=BorrowWithinCohort(borrow)))
    for turn in range(24):
        run_what_is_planned(world)
        victims = [eviction.victim for eviction in world.decisions.evictions.values()]
        if not victims:
            break
        for number, victim in enumerate(victims):
            before = world.pods[victim.name]
            again = replace(before.metadata, name=f"again-{turn}-{number}", uid=f"again-{turn}-{number}")
            spec = replace(before.spec, node_name="")
            world.delete(victim.name).add(Pod(again, spec))
        world.advance(2 * LIMITS.reclaim_memory)
    else:
        raise AssertionError("queues take turns")
