"""The read model made of objects alone: what statuses, pods and nodes say, as far as they may be read."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.api.summaries import GroupSummary, Overview
from extender.cli.access import Flags, open_access
from extender.cli.overview import ObservedSource
from tests.cli.cluster import Cluster


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    cluster.node("n0")
    for namespace in ("team", "other"):
        cluster.namespace(namespace)
    cluster.queue(
        "q", {"guarantee": {"resource": {"cpu": "6"}}}, state="Open", allocated={"cpu": "4"}, pending=1
    )
    cluster.queue("below", {"parent": "q"})
    cluster.group("runs", "Running", "Running", queue="q")
    for number in range(2):
        cluster.pod(f"runs-{number}", "runs", node="n0")
    cluster.group("waits", "Pending", "NoRoom", queue="q", message="cpu: 8 needed, 4 left")
    cluster.pod("waits-0", "waits", spec={"priority": 7})
    cluster.local_queue("way", "q", waiting=1, admitted=1, reserved={"cpu": "4"})
    cluster.local_queue("shut", "q", reason="Stopped")
    cluster.event(
        "waits", "Preempted", "waits-0 was evicted: team/other has a higher priority", 3, "PodGroup"
    )
    return cluster


Source = Callable[..., ObservedSource]


@pytest.fixture
def source(sample: Cluster) -> Iterator[Source]:
    sources: list[ObservedSource] = []
    with open_access(Flags(str(sample.kubeconfig), None, "team")) as place:

        def start(**more: Any) -> ObservedSource:
            sources.append(ObservedSource(place, **more))
            return sources[-1]

        yield start
        for each in sources:
            each.stop()


def group_of(overview: Overview, name: str) -> GroupSummary:
    return next(group for group in overview.groups if group.name == name)


def test_an_overview_is_made_of_statuses_pods_and_nodes(source: Source) -> None:
    seen = source().overview()
    runs, waits = group_of(seen, "runs"), group_of(seen, "waits")
    assert (runs.verdict, runs.placed, runs.members, runs.wait) == ("Running", 2, 2, None)
    assert (waits.verdict, waits.placed, waits.members, waits.queue) == ("Waiting", 0, 1, "q")
    assert waits.wait is not None
    assert (waits.wait.reason, waits.wait.detail) == ("NoRoom", "cpu: 8 needed, 4 left")
    assert [(queue.name, queue.depth) for queue in seen.queues] == [("q", 0), ("below", 1)]
    [cpu] = seen.queues[0].shares
    assert (cpu.allocated, cpu.guarantee, cpu.lent) == (4, 6, 2)
    assert (waits.priority, runs.priority) == (7, 0)
    assert [
        (each.key, each.queue, each.waiting, each.reserved, each.problem) for each in seen.local_queues
    ] == [
        ("team/shut", "q", 0, {}, "Stopped"),
        ("team/way", "q", 1, {"cpu": 4}, ""),
    ]
    [only] = seen.nodes
    assert (only.name, only.allocatable["cpu"], only.groups) == ("n0", 8, ["team/runs"])
    assert not seen.notes


def test_a_change_is_another_version_and_nothing_else_is(source: Source, sample: Cluster) -> None:
    looking = source()
    before = looking.overview()
    assert looking.overview() is before
    sample.group("comes", "Pending", "NoRoom", queue="q")
    until = time.monotonic() + 60
    while (after := looking.overview()).version == before.version and time.monotonic() < until:
        time.sleep(0.01)
    assert group_of(after, "comes").verdict == "Waiting"


def test_the_share_of_the_last_hour_is_known_from_the_first_look_on(source: Source, sample: Cluster) -> None:
    sample.queue("known", state="Open", share=0.75)
    looking = source(clock=lambda: 1000.0)
    looking.overview()
    assert list(looking.shares.samples_of("known", 1000.0)) == [(1000.0, 0.75)]
    assert list(looking.shares.samples_of("q", 1000.0)) == [], "Muster has said nothing of it"
    assert list(looking.usages.samples_of("cpu", 1000.0)) == [(1000.0, 0.5)]


def test_an_overview_reports_a_silent_api_server(source: Source) -> None:
    assert not source().overview().notes
    [record] = source(max_silence=0.0).overview().notes
    assert record.startswith("No event of the API server came since 20")


def test_an_overview_reports_that_muster_never_decided(cluster: Cluster) -> None:
    cluster.group("waits", "", "")
    with open_access(Flags(str(cluster.kubeconfig), None, "team")) as place:
        looking = ObservedSource(place)
        seen = looking.overview()
        looking.stop()
    assert [group.verdict for group in seen.groups] == ["Unknown"]
    assert "Muster has decided on none of these jobs" in seen.notes[0]


def test_only_a_namespace_may_be_read(source: Source, sample: Cluster) -> None:
    sample.group("theirs", "Running", "Running", queue="q", namespace="other")
    sample.lock(
        *((plural, "") for plural in ("podgroups", "pods", "nodes", "queues", "namespaces", "localqueues"))
    )
    seen = source().overview()
    assert {group.name for group in seen.groups} == {"runs", "waits"}
    assert (seen.queues, seen.nodes) == ([], [])
    assert "Only namespace team is shown: you may list no others." in seen.notes
    assert "You may not list nodes: they are not shown." in seen.notes


def test_details_are_those_of_why(source: Source) -> None:
    looking = source()
    looking.overview()
    found = looking.details("team", "waits")
    assert found is not None
    assert [(member.pod, member.node) for member in found.members] == [("waits-0", "")]
    assert found.timeline[0].reason == "Created"
    assert [each.resource for each in found.shortfall] == sorted(found.group.asks)
    assert looking.details("team", "nothing") is None
    assert found.group.evicted is not None
    assert found.group.evicted.cause == "Preempted"
    assert found.group.evicted.why.endswith("team/other has a higher priority")
