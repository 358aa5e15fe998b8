"""The read model of a running Muster says what was decided, and what has not changed is not cluster again."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant
from msgspec.structs import replace

from extender.api.keys import STARTED
from extender.api.objects.cluster import Taint
from extender.api.objects.queues import Estimate
from extender.api.summaries import EstimateSummary, GroupSummary, NodeSummary, Overview, QueueSummary
from extender.dashboard.overviews import DecidedOverviews, DecisionSource
from extender.domain.explain.explain import WhyGroup, explain_group
from extender.domain.model.reasons import Reason, Verdict, sentence
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.decisions import Decisions
from extender.host.dashboard import local_queue_summaries
from tests.clock import Clock
from tests.domain.builders import flavor, group, node, on_flavor, pod, preemption, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.test_local_queues import labelled, local
from tests.domain.test_price import evicted_once
from tests.domain.test_stateful import Events
from tests.domain.test_topologies import topology
from tests.domain.world import World, gang, key
from tests.property_examples import examples

NEVER = preemption(within_queue="Never", unmanaged="Never")


def world(*objects: Any) -> World:
    cluster = World(node("n", cpu="4"), queue("q", preemption=NEVER, capability={"cpu": "3500m"}))
    cluster.add(gang("runs", 1, queue="q", cpu="3", created="2026-01-01")).start("runs")
    return cluster.add(gang("waits", 2, queue="q", cpu="2", created="2026-01-02"), *objects).settle()


def overview_of(cluster: World) -> Overview:
    return DecidedOverviews().overview(cluster.decisions)


def group_of(cluster: World, name: str) -> GroupSummary:
    return next(group for group in overview_of(cluster).groups if group.name == name)


def queue_of(cluster: World, name: str) -> QueueSummary:
    return next(queue for queue in overview_of(cluster).queues if queue.name == name)


def test_a_group_that_runs_and_one_that_waits() -> None:
    runs, waits = group_of(world(), "runs"), group_of(world(), "waits")
    assert (runs.verdict, runs.needed, runs.placed, runs.holds, runs.wait) == (
        "Running",
        1,
        1,
        {"cpu": 3},
        None,
    )
    assert (waits.verdict, waits.members, waits.placed, waits.asks) == ("Waiting", 2, 0, {"cpu": 4})
    assert waits.wait is not None
    assert waits.wait.reason == "NeverFits"
    assert waits.wait.sentence == sentence(Reason.NEVER_FITS)


def test_the_wait_of_a_group_that_runs_again_begins_when_all_its_pods_exist() -> None:
    created, again = "2026-01-02T00:00:00Z", "2026-01-05T00:00:00Z"
    late = [pod("late-0", "late", created=created), pod("late-1", "late", created=again)]
    waits = group_of(world(group("late", 2, "q", created=created), *late), "late").wait
    assert waits is not None
    assert waits.since == again


def test_a_queue_has_its_amounts_by_resource_in_a_tree() -> None:
    cluster = world(queue("below", parent="q"), queue("a"), node("m", cpu="4"))
    tree = [(queue.name, queue.depth) for queue in overview_of(cluster).queues]
    assert tree == [("a", 0), ("default", 0), ("q", 0), ("below", 1)]
    [cpu] = [share for share in queue_of(cluster, "q").shares if share.resource == "cpu"]
    assert (cpu.allocated, cpu.ceiling, cpu.guarantee, cpu.borrowed) == (3, 3.5, 0, 0)
    assert cpu.deserved == 3.5


def test_a_deserved_but_unrequested_amount_is_shown_as_lent() -> None:
    cluster = World(node("n", cpu="4"), queue("q", deserved={"cpu": "1"}), queue("r", deserved={"cpu": "3"}))
    cluster.add(gang("runs", 1, queue="q", cpu="3")).start("runs").settle()
    [of_q], [of_r] = ([s for s in queue_of(cluster, name).shares if s.resource == "cpu"] for name in "qr")
    assert (of_q.deserved, of_q.lent) == (3, 0)
    assert (of_r.deserved, of_r.lent) == (0, 3)


def node_of(cluster: World, name: str) -> NodeSummary:
    return next(node for node in overview_of(cluster).nodes if node.name == name)


def test_a_node_shows_its_running_and_its_planned_pods() -> None:
    cluster = World(node("n", cpu="4"), queue("q"), gang("runs", 1, queue="q", cpu="1")).start("runs")
    cluster.add(gang("comes", 2, queue="q", cpu="1", created="2026-01-02")).settle()
    found = node_of(cluster, "n")
    assert (found.allocatable["cpu"], found.used, found.claimed) == (4, {"cpu": 1}, {"cpu": 2})
    assert found.groups == [key("comes"), key("runs")]


def test_nodes_are_in_the_domains_of_the_topologies_that_exist() -> None:
    cluster = World(node("n", labels={"rack": "1", "zone": "a"}), queue("q")).settle()
    overviews = DecidedOverviews()
    before = overviews.overview(cluster.settle().decisions)
    assert (before.topologies, before.nodes[0].domains) == ((), {})
    now = overviews.overview(cluster.add(topology("racks", "block", "rack")).settle().decisions)
    assert (now.topologies, now.nodes[0].domains) == ((("block", "rack"),), {"rack": "1"})


def test_a_node_has_its_problems() -> None:
    taint = Taint("node.kubernetes.io/not-ready", "NoExecute")
    cluster = World(node("n"), node("ill", taints=[taint]), node("shut", cordoned=True), queue("q")).settle()
    assert {node.name: node.health for node in overview_of(cluster).nodes} == {
        "n": [],
        "ill": ["not ready"],
        "shut": ["cordoned"],
    }


def test_an_evicted_group_has_the_cause() -> None:
    cluster = evicted_once()
    evicted = group_of(cluster.add(pod("again-0", "g")).settle(), "g").evicted
    assert evicted is not None
    assert evicted.cause == "Reclaim"
    assert "team/x" in evicted.why
    assert evicted.at == cluster.ledger.snapshot().timestamp(cluster.now)
    assert group_of(cluster, "kept").evicted is None


def test_a_job_is_stopped_while_its_user_keeps_it_suspended() -> None:
    cluster = JobWorld(node("n"), queue("q")).submit(job("train", queue="q")).work().work()
    assert not group_of(cluster, podgroup_name("train")).stopped
    cluster.submit(job("train", queue="q", annotations={STARTED: "2026-01-01T00:00:00Z"})).work().work()
    group = group_of(cluster, podgroup_name("train"))
    assert (group.called, group.is_job, group.stopped) == ("job/train", True, True)


def test_local_queues_have_the_numbers_of_their_statuses() -> None:
    cluster = World(node("n"), queue("q"), local("way", "q"), local("lost", "none"))
    cluster.add(labelled("waits", 9, "way"), labelled("runs", 1, "way")).start("runs").settle()
    found = [*local_queue_summaries(cluster.ledger)]
    assert [(each.key, each.waiting, each.admitted, each.problem) for each in found] == [
        ("team/lost", 0, 0, "queue none does not exist"),
        ("team/way", 1, 1, ""),
    ]


def test_a_node_is_of_the_flavors_of_queues() -> None:
    small = flavor("small", capability={"cpu": "4"})
    cluster = World(node("n", labels=on_flavor("small")), node("m"), queue("q", flavors=[small])).settle()
    assert [(node.name, node.flavors) for node in overview_of(cluster).nodes] == [("m", []), ("n", ["small"])]


def test_details_name_the_holders_of_the_missing_capacity() -> None:
    cluster = world(gang("small", 1, queue="q", cpu="2", created="2026-01-03")).settle()
    found = DecidedOverviews().details(cluster.decisions, key("small"))
    assert found is not None
    assert found.group.wait is not None
    assert [holder.name for holder in found.group.wait.holders] == ["runs"]
    assert "ends" in found.group.wait.remedy
    assert [(each.resource, each.asked, each.free) for each in found.shortfall] == [("cpu", 2, 1)]
    assert [(member.pod, member.stage) for member in found.members] == [("small-0", "")]
    assert DecidedOverviews().details(cluster.decisions, key("nothing")) is None


def test_an_unchanged_cluster_is_the_same_overview() -> None:
    cluster, views = world(), DecidedOverviews()
    before = views.overview(cluster.decisions)
    cluster.settle()
    assert views.overview(cluster.decisions) is before
    cluster.finish("runs-0").settle()
    after = views.overview(cluster.decisions)
    assert after.version != before.version


class Overviews(Events):
    """Events after which cached overviews equal new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.views = DecidedOverviews()

    @invariant()
    def equals_one_made_from_nothing(self) -> None:
        decisions = self.world.decisions
        plain = {"version": "", "at": ""}
        reserved, fresh = self.views.overview(decisions), DecidedOverviews().overview(decisions)
        assert replace(reserved, **plain) == replace(fresh, **plain)


Overviews.TestCase.settings = settings(max_examples=examples(8), stateful_step_count=40)
TestOverviews = Overviews.TestCase


def test_all_viewers_share_one_overview_and_are_notified_of_the_next() -> None:
    cluster, now = world(), [0.0]
    source = DecisionSource(lambda: cluster.decisions, list, min_period=1.5, clock=lambda: now[0])
    before = source.overview()
    now[0] += 1
    cluster.finish("runs-0").settle()
    assert source.overview() is before
    assert source.is_current(before.version)
    assert source.seconds_to_next_change() == 0.5
    now[0] += source.seconds_to_next_change()
    assert not source.is_current(before.version)
    after = source.overview()
    assert after is not before
    assert source.is_current(after.version)
    assert not source.is_current(before.version)
    now[0] += 7
    assert source.is_current(after.version)
    assert source.seconds_to_next_change() == 1.5


def test_an_estimate_is_shown_once_it_is_published() -> None:
    """Show it without any other change in the decisions."""
    cluster, now = world(), [0.0]
    reported: dict[str, Estimate] = {}
    source = DecisionSource(
        lambda: cluster.decisions,
        list,
        clock=lambda: now[0],
        estimate_of=reported.get,
        read_estimate_version=lambda: len(reported),
    )

    def shown() -> EstimateSummary | None:
        now[0] += 2
        waits = next(group for group in source.overview().groups if group.name == "waits")
        return waits.wait.estimate if waits.wait else None

    assert shown() is None
    reported[key("waits")] = Estimate(unknown_because="why")
    assert shown() == EstimateSummary(unknown_because="why")


def test_a_replica_that_does_not_lead_says_so() -> None:
    cluster, leading = world(), [False]
    source = DecisionSource(lambda: cluster.decisions, list, min_period=0.0, leads=lambda: leading[0])
    [record] = source.overview().notes
    assert "does not lead" in record
    leading[0] = True
    assert source.overview().notes == ()


def test_an_overview_before_the_first_decision_says_so() -> None:
    decided = [Decisions()]
    source = DecisionSource(lambda: decided[0], list, min_period=0.0)
    [record] = source.overview().notes
    assert "not decided anything yet" in record
    decided[0] = world().decisions
    assert source.overview().notes == ()


def test_known_explanations_are_not_computed_again() -> None:
    cluster = world(gang("small", 1, queue="q", cpu="2", created="2026-01-03")).settle()
    why = WhyGroup(key("small"), "q", Verdict.WAITING, reason="NoRoom", why_not_reclaimed="it is known")
    found = DecidedOverviews(why_of=lambda _: why).details(cluster.decisions, key("small"))
    assert found is not None
    assert found.group.wait is not None
    assert (found.group.wait.remedy, found.group.wait.holders) == ("it is known", [])


@pytest.mark.parametrize(("took", "at_least", "at_most"), [(0.01, 55, 61), (2.0, 5, 7)])
def test_blockers_are_computed_in_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch, took: float, at_least: int, at_most: int
) -> None:
    cluster = world(*(gang(f"small-{at}", 1, queue="q", cpu="2", created="2026-01-03") for at in range(3)))
    clock, looks = Clock(), 0

    def explained(decisions: Decisions, name: GroupKey) -> WhyGroup | None:
        nonlocal looks
        looks += 1
        clock.now += took
        return explain_group(decisions, name)

    monkeypatch.setattr("extender.dashboard.overviews.explain_group", explained)
    views, until = DecidedOverviews(clock=clock), clock.now + 200
    while clock.now < until:
        for at in range(3):
            assert views.details(cluster.decisions, key(f"small-{at}")) is not None
        clock.now += 1
    assert at_least <= looks <= at_most


def test_the_share_of_the_last_hour_is_sampled_without_viewers() -> None:
    cluster, decided = world(queue("goes")), [Decisions()]
    source = DecisionSource(lambda: decided[0], list)
    assert source.sample(0.0) == 1.0, "soon again: nothing is decided yet"
    decided[0] = cluster.decisions
    for minute in range(200):
        assert source.sample(60.0 * minute) is None
    share = round(cluster.decisions.queues["q"].share, 3)
    assert source.usages.samples_of("cpu", 60.0 * 199)[-1] == (60.0 * 199, 0.75)
    assert list(source.shares.samples_of("q", 12000.0)) == [(60.0 * each, share) for each in range(140, 200)]
    assert len(source.shares.samples_of("q", 60.0 * 199)) == 61, "samples of an hour are kept"
    cluster.ledger.intake.drop_queue("goes")
    decided[0] = cluster.settle().decisions
    source.sample(12000.0)
    assert list(source.shares.samples_of("goes", 12000.0)) == []
    assert [source.shares.is_due(at) for at in (12059.0, 12060.0)] == [False, True]
    assert source.shares.is_due(11999.0), "the clock was put back"
    source.sample(6000.0)
    assert list(source.shares.samples_of("q", 6000.0)) == [(6000.0, share)]
