"""Limits on what a queue runs at once: in all, for each user, for each namespace."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.api import keys
from extender.api.objects.queues import QueueLimits, RunningLimit
from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import group, node, pod, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import World, gang
from tests.rows import each_of

STARTS, WAITS = Verdict.STARTING, Verdict.WAITING


def limited(strategy: str = "", **limits: Any) -> World:
    """Return a world of a large node, and a queue with these limits."""
    return World(node("n", cpu="99"), queue("q", strategy=strategy, limits=QueueLimits(**limits)))


def gang_of(user: str, name: str, members: int = 1, created: str = "") -> list[object]:
    """Return a group that a user made."""
    notes = {keys.SUBMITTER: user} if user else {}
    return gang(name, members, queue="q", created=created, notes=notes)


def verdicts(world: World, *names: str) -> str:
    """Return a letter for each group: S for one that starts, R for one that runs, w for one that waits."""
    letters = {Verdict.STARTING: "S", Verdict.RUNNING: "R", Verdict.WAITING: "w"}
    return "".join(letters[world.verdict(name)] for name in names)


def test_starting_groups_count_for_a_limit() -> None:
    world = limited(groups=2).add(gang_of("", "a"), gang_of("", "b"), gang_of("", "c")).settle()
    assert verdicts(world, "a", "b", "c") == "SSw"
    assert world.reason("c") is Reason.QUEUE_CEILING
    assert world.figures("c") == ["2", "1", "2"]


def test_the_next_group_of_a_limited_queue_starts_when_one_has_ended() -> None:
    world = limited(groups=1).add(gang_of("", "a"), gang_of("", "b")).start("a")
    assert verdicts(world, "a", "b") == "Rw"
    assert world.finish("a-0").settle().verdict("b") is STARTS


def test_a_limit_that_is_lowered_ends_nothing() -> None:
    world = limited(groups=2).add(gang_of("", "a"), gang_of("", "b"), gang_of("", "c")).start("a", "b")
    world.add(queue("q", limits=QueueLimits(groups=0))).settle()
    assert verdicts(world, "a", "b", "c") == "RRw"
    assert not world.decisions.evictions


def test_pods_count_whole_gangs() -> None:
    world = limited(pods=4).add(gang_of("", "a", 3), gang_of("", "b", 2), gang_of("", "c", 1)).settle()
    assert verdicts(world, "a", "b", "c") == "SwS"
    assert world.figures("b") == ["4", "2", "4"]


def test_a_gang_larger_than_a_limit_never_fits() -> None:
    world = limited(pods=2).add(gang_of("", "a", 3)).settle()
    assert world.reason("a") is Reason.NEVER_FITS
    assert world.figures("a") == ["0", "3", "2"]
    assert limited(groups=0).add(gang_of("", "a")).settle().reason("a") is Reason.NEVER_FITS


def test_each_user_has_a_separate_limit() -> None:
    world = limited(per_user=RunningLimit(groups=1))
    world.add(
        gang_of("ann", "a"), gang_of("ann", "b"), gang_of("bob", "c"), gang_of("", "d"), gang_of("", "e")
    ).settle()
    assert verdicts(world, "a", "b", "c", "d", "e") == "SwSSS"
    assert world.detail("b") == "user ann in queue q: groups: 1 run or start + 1 asked > 1"


def test_the_recorded_author_of_pods_without_a_group_is_their_user() -> None:
    world = limited(per_user=RunningLimit(groups=1))
    for name, author in (("a", "Pod/ann"), ("b", "Pod/ann"), ("c", "Pod/bob"), ("d", "Job/ann")):
        world.add(pod(name, queue="q", annotations={keys.AUTHOR: author}))
    world.settle()
    assert verdicts(world, *(f"pod:{name}" for name in "abcd")) == "SwSS"  # copies from a Job do not count


def test_the_recorded_author_of_a_job_is_the_user_of_its_pods() -> None:
    world = JobWorld(node("n", cpu="99"), queue("q", limits=QueueLimits(per_user=RunningLimit(groups=1))))
    users = {"a": "ann", "b": "ann", "c": "bob"}
    notes = {name: {keys.AUTHOR: f"Job/{user}"} for name, user in users.items()}
    world.submit(*(job(name, queue="q", annotations=notes[name]) for name in users)).work()
    assert [name for name in users if world.suspended(name)] == ["b"]
    assert world.detail(podgroup_name("b")).startswith("user ann ")


def test_each_namespace_has_a_separate_limit() -> None:
    world = (
        limited(per_namespace=RunningLimit(pods=2)).add(gang_of("ann", "a", 2), gang_of("bob", "b")).settle()
    )
    assert verdicts(world, "a", "b") == "Sw"
    assert world.detail("b").startswith("namespace team in queue q: pods: 2 run ")


def test_a_user_at_their_limit_blocks_no_other_user_of_a_fifo_queue() -> None:
    world = limited("fifo", per_user=RunningLimit(groups=1))
    names = "abcd"
    for n, (user, name) in enumerate(zip(["ann", "ann", "ann", "bob"], names, strict=True)):
        world.add(gang_of(user, name, created=f"2026-01-0{n + 1}"))
    assert verdicts(world.settle(), *names) == "SwwS"
    assert [world.reason(name) for name in "bc"] == [Reason.QUEUE_CEILING, Reason.BEHIND_OTHERS]


def test_elastic_members_and_replacements_stay_within_it() -> None:
    world = limited(pods=3).add(gang("a", 5, 2, queue="q")).settle()
    assert len(world.start("a").plan("a")) == 1
    assert world.start("a").reason("a") is Reason.QUEUE_CEILING
    assert sum(bool(each.spec.node_name) for each in world.pods.values()) == 3
    world.pass_time(60)
    world.add(queue("q", limits=QueueLimits(pods=1))).delete("a-0").settle()
    assert not world.plan("a")


@each_of(
    ({"groups": -1}, "spec.limits.groups is -1; it must be 0 or more"),
    ({"per_user": RunningLimit(pods=-2)}, "spec.limits.perUser.pods is -2; it must be 0 or more"),
    ({"per_namespace": RunningLimit(groups=-3)}, "spec.limits.perNamespace.groups is -3"),
)
def test_negative_limits_are_reported(limits: dict[str, Any], fault: str) -> None:
    world = limited(**limits).add(gang_of("", "a")).settle()
    assert world.reason("a") is Reason.INVALID_SPEC
    assert fault in world.detail("a")


@each_of(("1", Reason.NOT_ENOUGH_MEMBERS), ("3", Reason.NEVER_FITS))
def test_without_pods_and_min_resources_the_default_request_counts(cpu: str, reason: Reason) -> None:
    """Operators make no members of a group that could never start."""
    capped = queue("q", capability={"cpu": "4"}, default_request={"cpu": cpu})
    world = World(node("n", cpu="99"), capped, group("g", 2, "q")).settle()
    assert world.reason("g") is reason
    if reason is Reason.NEVER_FITS:
        detail = "spec.defaultRequest for 2 members is above the capability of queue q: cpu: 6 > 4"
        assert world.detail("g") == detail
    world.add([pod(f"g-{n}", "g") for n in range(2)]).settle()
    assert world.verdict("g") is STARTS


limit = st.builds(RunningLimit, groups=st.sampled_from([None, 0, 1, 2]), pods=st.sampled_from([None, 1, 3]))
gangs = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", ""]), st.integers(1, 3), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@given(everyone=limit, user=limit, namespace=limit, asked=gangs)
def test_no_limit_is_ever_exceeded(
    everyone: RunningLimit, user: RunningLimit, namespace: RunningLimit, asked: list[tuple[str, int, int]]
) -> None:
    limits: dict[str, Any] = {
        "groups": everyone.groups,
        "pods": everyone.pods,
        "per_user": user,
        "per_namespace": namespace,
    }
    world = limited(**limits)
    for n, (name, members, more) in enumerate(asked):
        notes = {keys.SUBMITTER: name} if name else {}
        world.add(group(f"g{n}", members, "q", annotations=notes))
        world.add([pod(f"g{n}-{m}", f"g{n}") for m in range(members + more)])
    world.settle()
    planned = {n: len(world.plan(f"g{n}")) for n in range(len(asked))}
    users = {n: name for n, (name, _, _) in enumerate(asked)}
    of_each = [{n for n in users if users[n] == name} for name in set(users.values()) - {""}]
    parts = [(everyone, set(users)), (namespace, set(users)), *((user, part) for part in of_each)]
    for most, part in parts:
        assert most.pods is None or sum(planned[n] for n in part) <= most.pods
        assert most.groups is None or sum(planned[n] > 0 for n in part) <= most.groups
