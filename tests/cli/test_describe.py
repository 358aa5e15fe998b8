"""`muster queue describe` and `muster podgroup describe`: everything about one object."""

import re

import pytest

from extender.apimachinery.kinds import EVENTS, Json
from extender.cli.why.explanation import Statement
from tests.cli.cluster import Cluster, ago

NUMBERS = "cpu: 8 needed, 2 left on suitable nodes"


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Return a cluster: sweep waits in research behind fit, which runs; reports is above its share."""
    closed = {"type": "Closed", "status": "False", "reason": "Opened", "lastTransitionTime": ago(days=3)}
    held: Json = {
        "allocated": {"cpu": "4", "pods": "2"},
        "deserved": {"cpu": "6", "memory": "0"},
        "share": 0.667,
    }
    spec = {
        "weight": 2,
        "capability": {"cpu": "16"},
        "guarantee": {"resource": {"cpu": "1"}},
        "parent": "root",
    }
    cluster.queue("research", spec, state="Open", **held, pending=1, running=1, conditions=[closed])
    cluster.queue("reports", state="Open", allocated={"cpu": "6"}, deserved={"cpu": "4"}, share=1.5)
    cluster.gang("fit", 2, node="n0", phase="Running", reason="Running", queue="research")
    cluster.gang("sweep", 4, message=NUMBERS, queue="research", days=10)
    return cluster


def event(cluster: Cluster, name: str, kind: str, of: str, namespace: str, **rest: object) -> None:
    meta = {"name": name, "namespace": namespace}
    about = {"kind": kind, "name": of}
    cluster._put(EVENTS, meta, {"involvedObject": about, **rest})


def part(text: str, heading: str) -> list[str]:
    """Return the lines below a heading."""
    (found,) = [each for each in text.split("\n\n") if each.startswith(heading)]
    return found.splitlines()[1:]


def test_a_described_queue_lists_its_groups_and_what_blocks_them(sample: Cluster) -> None:
    output = sample.output("queue", "describe", "research")
    assert output.startswith("queue/research\n\nWeight:       2\n")
    for line in ("Parent:       root", "Reclaimable:  yes", "Guarantee:    cpu 1", "Age:          20d"):
        assert line in output.splitlines()
    assert part(output, "Shares:")[1].split() == ["cpu", "4", "6", "16"]
    assert part(output, "Groups that wait (1):") == [
        f"  podgroup/team/sweep: NoRoom ({NUMBERS})",
        "    behind queue/reports, podgroup/team/fit",
    ]
    assert part(output, "Groups that run (1):") == ["  podgroup/team/fit: needs 2, for 30m"]
    assert part(output, "Queues above their share:") == [
        "  queue/reports uses 150% of what it deserves (cpu 6 of 4): cpu 6"
    ]
    assert part(output, "Conditions:")[1].split() == ["Closed", "False", "Opened", "3d", "-"]
    assert "Events:" not in output


def test_view_is_describe_with_the_total_of_all_groups(sample: Cluster) -> None:
    sample.queue("many", {}, pending=5, running=4, unknown=1)
    output = sample.output("queue", "view", "--name", "many")
    assert output == sample.output("queue", "describe", "many")
    assert "Groups:       10 in all: 5 pending, 4 running, 1 unknown" in output.splitlines()


def test_a_phase_that_another_controller_made_up_is_unknown(sample: Cluster) -> None:
    sample.group("custom", "Suspended", "Running", queue="research")
    output = sample.output("queue", "describe", "research")
    assert part(output, "Groups whose state is unknown (1):") == ["  podgroup/team/custom: needs 2, for 30m"]


def test_a_described_queue_shows_its_flavors(sample: Cluster) -> None:
    flavors = [{"name": "spot", "capability": {"cpu": "8"}}, {"name": "rest"}]
    used = [
        {"name": "spot", "allocated": {"cpu": "2", "pods": "1"}},
        {"name": "rest", "allocated": {"cpu": "4"}, "deserved": {"cpu": "3"}, "borrowed": {"cpu": "1"}},
    ]
    sample.queue("divided", {"flavors": flavors}, state="Open", flavors=used)
    output = sample.output("queue", "describe", "divided")
    assert part(output, "Flavors:") == [
        "  spot: holds cpu 2 of cpu 8",
        "  rest: holds cpu 4, deserves cpu 3, borrows cpu 1",
    ]


def test_the_local_queues_and_namespaces_of_a_queue(sample: Cluster) -> None:
    selector = {
        "matchLabels": {"field": "ai"},
        "matchExpressions": [{"key": "stage", "operator": "In", "values": ["a", "b"]}],
    }
    sample.queue("chosen", {"namespaceSelector": selector}, state="Open")
    sample.local_queue("door", "chosen", waiting=2, admitted=1)
    sample.local_queue("gate", "chosen", "Stopped")
    sample.local_queue("other", "research")
    sample.group("by-label", more_metadata={"labels": {"kube-muster.io/local-queue": "door"}})
    output = sample.output("queue", "describe", "chosen")
    assert "Namespaces:   field=ai, stage In (a, b)" in output.splitlines()
    assert part(output, "LocalQueues:") == [
        "  team/door: 2 waiting, 1 admitted",
        "  team/gate: 0 waiting, 0 admitted, not active: Stopped",
    ]
    assert part(output, "Groups that wait (1):")[0].startswith("  podgroup/team/by-label: NoRoom")


def test_a_described_queue_shows_its_settings_and_its_usage(sample: Cluster) -> None:
    spec = {
        "fairShare": "Historical",
        "borrowingLimit": {"cpu": "4"},
        "limits": {"pods": 9, "perUser": {"groups": 2}},
        "preemption": {"after": "5m", "borrowWithinCohort": {"policy": "LowerPriority"}},
    }
    usage = {"at": "", "share": 0.25, "users": [{"name": "ann", "share": 0.2}], "namespaces": []}
    sample.queue("set", spec, state="Open", usage=usage)
    output = sample.output("queue", "describe", "set")
    assert {
        "Order below it:   Historical",
        "Borrows at most:  cpu 4",
        "Limits:           pods=9, perUser.groups=2",
        "Preemption:       after=5m, borrowWithinCohort.policy=LowerPriority",
    } <= {*output.splitlines()}
    assert part(output, "Held lately, of the cluster:") == ["  the queue: 25%", "  user ann: 20%"]


def test_a_guarantee_that_is_not_met_in_full(sample: Cluster) -> None:
    says = "nodes offer less cpu than queues are guaranteed: each has the same part of its guarantee"
    unmet = {"type": "GuaranteeUnmet", "status": "True", "reason": "TooFewNodes", "message": says}
    sample.queue("kept", {"guarantee": {"resource": {"cpu": "99"}}}, state="Open", conditions=[unmet])
    assert says in " ".join(sample.output("queue", "describe", "kept").split())


def test_several_queues_by_one_command(sample: Cluster) -> None:
    output = sample.output("q", "describe", "research", "reports")
    assert [line for line in output.splitlines() if line.startswith("queue/")] == [
        "queue/research",
        "queue/reports",
    ]


def test_a_described_queue_names_only_some_of_many_groups(sample: Cluster) -> None:
    for number in range(12):
        sample.group(f"g{number:02}", queue="reports", reason="QueueNotOpen")
    lines = part(sample.output("queue", "describe", "reports"), "Groups that wait (12):")
    assert (len(lines), lines[-1]) == (11, "  and 2 more")


def test_events_of_a_queue_are_shown_the_latest_last(sample: Cluster) -> None:
    event(
        sample,
        "b",
        "Queue",
        "research",
        "default",
        type="Normal",
        reason="Opened",
        lastTimestamp=ago(hours=5),
    )
    series = {"count": 4, "lastObservedTime": ago(minutes=20)}
    event(
        sample,
        "a",
        "Queue",
        "research",
        "default",
        type="Normal",
        reason="Closed",
        series=series,
        message="m",
    )
    event(sample, "c", "Queue", "other", "default", type="Normal", reason="Opened")
    head, *rows = part(sample.output("queue", "describe", "research"), "Events:")
    assert head.split() == ["TYPE", "REASON", "AGE", "MESSAGE"]
    assert [re.split(r" {2,}", row.strip()) for row in rows] == [
        ["Normal", "Opened", "5h"],
        ["Normal", "Closed", "20m (4 times)", "m"],
    ]


def test_a_group_with_its_members_and_events(sample: Cluster) -> None:
    event(
        sample,
        "a",
        "PodGroup",
        "sweep",
        "team",
        type="Warning",
        reason="NoRoom",
        count=2,
        eventTime=ago(hours=3),
    )
    output = sample.output("podgroup", "describe", "sweep")
    assert output.startswith("podgroup/sweep ")
    assert "\n\nQueue:     research\nNeeds:     4 pods\n" in output
    assert "Waiting for 30m: NoRoom\n" in output
    assert part(output, "Pods:")[1].split() == ["sweep-0", "Gated", "-"]
    assert part(output, "Conditions:")[1].startswith("  Scheduled   False    NoRoom   30m")
    assert part(output, "Events:")[1].split() == ["Warning", "NoRoom", "3h", "(2", "times)"]
    assert "What helps:" in output


def test_members_that_run_have_their_node(sample: Cluster) -> None:
    assert part(sample.output("pg", "describe", "fit"), "Pods:")[1].split() == ["fit-0", "Running", "n0"]


def test_events_that_may_not_be_read_are_mentioned(sample: Cluster) -> None:
    sample.lock(("events", "default"))
    assert part(sample.output("queue", "describe", "research"), "Events:") == [
        "  not shown: you may not list events"
    ]


def test_without_rights_in_other_namespaces_it_says_so(sample: Cluster) -> None:
    sample.lock(("podgroups", ""))
    output = sample.output("queue", "describe", "research")
    assert Statement("OtherGroupsNotShown").text in " ".join(output.split())
    assert "Groups that wait" not in output


def test_a_terminal_gets_bars(sample: Cluster) -> None:
    shown = sample.on_a_terminal("queue", "describe", "research", COLUMNS="80", NO_COLOR="1")
    assert "  cpu  ████████████████░░░░░░░░  4 of 6, at most 16" in shown


@pytest.mark.parametrize("command", [("queue", "describe"), ("podgroup", "describe")])
def test_a_name_is_needed(cluster: Cluster, command: tuple[str, ...]) -> None:
    assert cluster.muster(*command).exit_code == 2
