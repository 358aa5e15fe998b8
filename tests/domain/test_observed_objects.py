"""Records of queues, groups and nodes, made of API objects alone."""

from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.keys import GROUP_ANNOTATION, HOLD, SUBMITTER
from extender.api.objects.cluster import Node
from extender.api.objects.pods import Pod
from extender.domain.explain.observed_objects import (
    ObservedGroup,
    ObservedQueue,
    RequestSums,
    group_summary,
    node_summaries,
    queue_summaries,
)
from extender.domain.model.reasons import Verdict
from extender.domain.queues.tree import Queues
from tests.rows import each_of


def group(phase: str, reason: str) -> ObservedGroup:
    conditions = [{"type": "Scheduled", "status": "False", "reason": reason, "message": "numbers"}]
    meta = {"name": "g", "namespace": "team", "uid": "u", "annotations": {SUBMITTER: "ann", HOLD: "true"}}
    status = {"phase": phase, "conditions": conditions if reason else [], "waiting": {"position": 2}}
    return msgspec.convert({"metadata": meta, "spec": {"minMember": 2}, "status": status}, ObservedGroup)


def pod(name: str, cpu: str = "2", phase: str = "Pending", node: str = "", nominated: str = "") -> Pod:
    meta = {"name": name, "namespace": "team", "uid": name, "annotations": {GROUP_ANNOTATION: "g"}}
    spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    status = {"phase": phase, "nominatedNodeName": nominated, "startTime": "2026-01-02T00:00:00Z"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def queue(name: str, spec: Any = None, **status: Any) -> ObservedQueue:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec or {}, "status": status}, ObservedQueue)


@each_of(
    ("", "", Verdict.UNKNOWN),
    ("Running", "", Verdict.UNKNOWN),  # of another scheduler
    ("Pending", "NoRoom", Verdict.WAITING),
    ("Inqueue", "Starting", Verdict.STARTING),
    ("Inqueue", "NotEnoughMembers", Verdict.WAITING),  # its operator then creates them
    ("Running", "Running", Verdict.RUNNING),
    ("Unknown", "NoRoom", Verdict.RUNNING),
    ("Completed", "Completed", Verdict.ENDED),
    ("Suspended", "Running", Verdict.UNKNOWN),  # a phase that another controller made up
)
def test_the_verdict_behind_a_status(phase: str, reason: str, verdict: Verdict) -> None:
    assert group(phase, reason).verdict is verdict


def test_a_group_info_has_the_requests_and_the_usage_of_its_pods() -> None:
    pods = [pod("a", node="n", phase="Running"), pod("b", cpu="500m"), pod("c", phase="Failed", node="n")]
    summary = group_summary(group("Pending", "NoRoom"), "q", pods, 5, RequestSums(), is_job=True)
    assert (summary.verdict, summary.members, summary.placed, summary.needed) == ("Waiting", 2, 1, 2)
    assert (summary.asks["cpu"], summary.holds["cpu"]) == (0.5, 2.0)
    assert (summary.user, summary.held, summary.is_job, summary.started) == (
        "ann",
        True,
        True,
        "2026-01-02T00:00:00Z",
    )
    assert summary.wait is not None
    assert (summary.wait.reason, summary.wait.detail, summary.wait.position, summary.wait.line) == (
        "NoRoom",
        "numbers",
        2,
        5,
    )


def test_a_job_that_waits_without_pods_asks_for_the_resources_of_its_podgroup() -> None:
    waits = group("Pending", "NoRoom")
    waits = replace(waits, spec=replace(waits.spec, min_resources={"cpu": "8", "nvidia.com/gpu": "4"}))
    summary = group_summary(waits, "q", [], 1, RequestSums(), is_job=True)
    assert (summary.asks, summary.devices) == ({"cpu": 8.0, "nvidia.com/gpu": 4.0}, {"nvidia.com/gpu": 4.0})


def test_a_job_that_its_user_stopped_is_flagged() -> None:
    rows = (("Aborted", True, True), ("Aborted", False, False), ("NoRoom", True, False))
    for reason, is_job, stopped in rows:
        summary = group_summary(group("Pending", reason), "q", [], 0, RequestSums(), is_job)
        assert summary.stopped is stopped


def test_amounts_that_make_no_sense_count_as_none() -> None:
    summary = group_summary(
        group("Running", "Running"), "q", [pod("a", cpu="many")], 0, RequestSums(), is_job=False
    )
    assert (summary.asks, summary.wait) == ({}, None)


def test_queues_stand_below_their_parents_with_their_shares() -> None:
    spec = {"parent": "dept", "capability": {"cpu": "8", "memory": "much"}, "deserved": {"cpu": "4"}}
    status = {
        "state": "Closing",
        "allocated": {"cpu": "6"},
        "deserved": {"cpu": "4"},
        "share": 1.5,
        "pending": 3,
    }
    faulty = {"conditions": [{"type": "Valid", "status": "False"}]}
    found = [*queue_summaries([queue("team", spec, **status), queue("root"), queue("dept", **faulty)])]
    assert [(each.name, each.parent, each.depth) for each in found] == [
        ("root", "", 0),
        ("dept", "root", 1),
        ("team", "dept", 2),
    ]
    assert (found[1].fault != "", found[2].fault) == (True, "")
    assert (found[2].state, found[2].share, found[2].waiting) == ("Closing", 1.5, 3)
    cpu = next(share for share in found[2].shares if share.resource == "cpu")
    assert (cpu.allocated, cpu.deserved, cpu.ceiling, cpu.borrowed) == (6.0, 4.0, 8.0, 2.0)
    assert next(share.ceiling for share in found[2].shares if share.resource == "memory") == 0.0


def test_described_nodes_list_their_running_and_planned_pods() -> None:
    taints = [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]
    spec, status = {"unschedulable": True, "taints": taints}, {"allocatable": {"cpu": "8"}}
    node = msgspec.convert({"metadata": {"name": "n"}, "spec": spec, "status": status}, Node)
    pods = [pod("a", node="n"), pod("b", cpu="1", nominated="n"), pod("c", phase="Succeeded", node="n")]
    (summary,) = node_summaries([node], pods, RequestSums(), Queues().pools)
    assert (summary.allocatable, summary.used["cpu"], summary.claimed["cpu"]) == ({"cpu": 8.0}, 2.0, 1.0)
    assert (summary.groups, summary.taken) == (["team/g"], False)
    assert summary.health == ["memory pressure", "cordoned"]
