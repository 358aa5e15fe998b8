"""The second judge on short histories: each of its accusations, and histories that it accepts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rows import each_of
from tests.storm.facts import (
    BILLION,
    Fact,
    GroupFact,
    NodeFact,
    PodFact,
    QueueFact,
    amount,
    pod_fact,
    queue_fact,
)
from tests.storm.second_judge import LONG_RUN, REUSE_SECONDS, SecondJudge
from tests.storm.second_judge_state import AccusationCode, Purpose

DEADLINE, SIGHT = 30.0, 15.0
END = 1000.0


class History:
    """Events in the order in which they are said here, each at its second."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.node(0, "n", cpu=4)

    def node(self, at: float, name: str, *, gone: bool = False, rack: str = "", **has: int) -> None:
        amounts = {resource: count * BILLION for resource, count in {"pods": 99, **has}.items()}
        labels = {"rack": rack} if rack else {}
        self.facts.append(NodeFact(self._next(), at, name, gone, amounts, labels))

    def group(self, at: float, least: int, *, gone: bool = False, queue: str = "q", **tasks: int) -> None:
        self.facts.append(GroupFact(self._next(), at, "x/g", gone, least, tasks, queue))

    def queue(
        self, at: float, name: str = "q", parent: str = "", most: int = 0, is_reclaimable: bool = False
    ) -> None:
        ceiling = {"cpu": most * BILLION} if most else None
        self.facts.append(QueueFact(self._next(), at, name, False, parent, ceiling, is_reclaimable))

    def pod(self, at: float, name: str, node: str = "", *, cpu: int = 1, **said: Any) -> None:
        fact = PodFact(
            self._next(),
            at,
            f"x/{name}",
            gone=False,
            uid=name,
            scheduler="muster",
            group="x/g",
            queue="",
            task="",
            node=node,
            phase="Running" if node else "Pending",
            requests={"cpu": cpu * BILLION, "pods": BILLION},
            evicted=False,
        )
        self.facts.append(replace(fact, **said))

    def reviewed(self, clock: Any = lambda at: at) -> SecondJudge:
        review = SecondJudge(DEADLINE, SIGHT, clock)
        review.review(reversed(self.facts), END)
        return review

    def accusations(self) -> list[tuple[AccusationCode, str]]:
        return [(each.code, each.facts) for each in self.reviewed().accusations]

    def _next(self) -> int:
        return len(self.facts)


@pytest.fixture
def reported() -> History:
    return History()


# ---- never partial


def test_a_gang_that_fully_runs_in_time_is_no_violation(reported: History) -> None:
    reported.group(0, 2)
    reported.pod(1, "a", "n")
    reported.pod(1 + DEADLINE, "b", "n")
    assert reported.accusations() == []


def test_a_gang_that_never_fully_ran_must_hold_no_nodes(reported: History) -> None:
    reported.group(0, 2)
    reported.pod(1, "a", "n")
    assert reported.accusations() == [(AccusationCode.PARTIAL_GANG, "x/g for 999 s")]


def test_a_gang_that_was_undone_in_time_may_start_again(reported: History) -> None:
    reported.group(0, 2)
    for at in (0, 100, 200):
        reported.pod(at, f"a{at}", "n")
        reported.pod(at + DEADLINE, f"a{at}", "n", gone=True, evicted=True)
    assert reported.accusations() == []
    assert reported.reviewed().evictions == {Purpose.UNDONE_START: 3}


def test_a_gang_that_has_fully_run_may_lose_members(reported: History) -> None:
    reported.group(0, 2)
    for name in "ab":
        reported.pod(1, name, "n")
    reported.pod(2, "a", "n", gone=True)
    assert reported.accusations() == []


def test_each_role_of_a_gang_must_be_complete(reported: History) -> None:
    reported.group(0, 2, lead=1)
    for name in "ab":
        reported.pod(1, name, "n", task="work")
    assert reported.accusations() == [(AccusationCode.PARTIAL_GANG, "x/g for 999 s")]


def test_a_gang_without_a_record_is_not_checked(reported: History) -> None:
    reported.group(0, 2)
    reported.pod(1, "a", "n")
    reported.group(5, 2, gone=True)
    assert reported.accusations() == []
    reported.group(500, 2)
    assert reported.accusations() == [(AccusationCode.PARTIAL_GANG, "x/g for 500 s")]


def test_outages_do_not_count(reported: History) -> None:
    reported.group(0, 2)
    reported.pod(1, "a", "n")
    reported.pod(900, "a", "n", gone=True)
    assert reported.accusations() == [(AccusationCode.PARTIAL_GANG, "x/g for 899 s")]
    assert reported.reviewed(clock=lambda at: at / 100).accusations == []


def test_no_member_is_bound_after_the_deadline(reported: History) -> None:
    reported.group(0, 3)
    reported.pod(1, "a", "n")
    reported.pod(50, "b", "n")
    assert (AccusationCode.LATE_BINDING, "x/b after 49 s") in reported.accusations()


# ---- never over


def test_a_node_holds_at_most_its_capacity(reported: History) -> None:
    reported.pod(1, "a", "n", cpu=4, group="")
    assert reported.accusations() == []
    reported.pod(2, "b", "n", cpu=1, group="")
    assert reported.accusations() == [(AccusationCode.NODE_OVER, "n with x/b: cpu 5 of 4")]


@pytest.mark.parametrize("freed", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"gone": True}], ids=str)
def test_ended_pods_hold_no_capacity(reported: History, freed: Any) -> None:
    reported.pod(1, "a", "n", cpu=4, group="")
    reported.pod(2, "a", "n", cpu=4, group="", **freed)
    reported.pod(2, "b", "n", cpu=4, group="")
    assert reported.accusations() == []


def test_a_node_without_a_resource_has_none_of_it(reported: History) -> None:
    reported.pod(1, "a", "n", group="", requests={"example.com/gpu": BILLION})
    assert reported.accusations() == [(AccusationCode.NODE_OVER, "n with x/a: example.com/gpu 1 of 0")]


def test_a_node_that_just_shrank_counts_with_its_former_capacity(reported: History) -> None:
    reported.node(10, "n", cpu=1)
    reported.pod(10 + SIGHT, "a", "n", cpu=4, group="")
    assert reported.accusations() == []
    reported.pod(11 + SIGHT, "b", "n", cpu=1, group="")
    assert reported.accusations() == [(AccusationCode.NODE_OVER, "n with x/b: cpu 5 of 1")]


def test_a_deleted_node_takes_no_pod(reported: History) -> None:
    reported.node(10, "n", gone=True)
    reported.pod(11, "a", "n", group="")
    assert reported.accusations() == []
    reported.pod(30, "b", "n", group="")
    assert set(reported.accusations()) == {
        (AccusationCode.NODE_OVER, "n with x/b: cpu 2 of 0"),
        (AccusationCode.NODE_OVER, "n with x/b: pods 2 of 0"),
    }


def test_pods_of_others_are_no_violation_and_count_once_they_are_visible(reported: History) -> None:
    reported.pod(1, "s", "n", cpu=9, group="", scheduler="elsewhere")
    reported.pod(SIGHT, "a", "n", group="")
    assert reported.accusations() == []
    reported.pod(2 + SIGHT, "b", "n", group="")
    assert reported.accusations() == [(AccusationCode.NODE_OVER, "n with x/b: cpu 11 of 4")]


# ---- queues


def test_the_capability_of_a_queue_holds_for_its_groups_and_pods(reported: History) -> None:
    reported.queue(0, most=2)
    reported.group(0, 1)
    reported.pod(1, "a", "n")
    reported.pod(1, "b", "n", group="", queue="q")
    assert reported.accusations() == []
    reported.pod(2, "c", "n")
    assert reported.accusations() == [(AccusationCode.QUEUE_OVER, "q with x/c: cpu 3 of 2")]


def test_the_capability_of_a_parent_holds_for_all_below(reported: History) -> None:
    reported.queue(0, "top", most=2)
    reported.queue(0, parent="top")
    reported.queue(0, "other", parent="top")
    reported.group(0, 1)
    reported.pod(1, "a", "n", cpu=2)
    reported.pod(2, "b", "n", group="", queue="other")
    assert reported.accusations() == [(AccusationCode.QUEUE_OVER, "top with x/b: cpu 3 of 2")]


def test_a_new_capability_does_not_bind_at_once(reported: History) -> None:
    reported.queue(0)
    reported.group(0, 1)
    reported.queue(10, most=1)
    reported.pod(11, "a", "n", cpu=2)
    assert reported.accusations() == []
    reported.pod(11 + SIGHT, "b", "n", cpu=2)
    assert reported.accusations() == [(AccusationCode.QUEUE_OVER, "q with x/b: cpu 4 of 1")]


# ---- twice


def test_a_pod_is_bound_once(reported: History) -> None:
    reported.node(0, "m", cpu=4)
    reported.pod(1, "a", "n", group="")
    reported.pod(2, "a", "n", group="", phase="Running")
    assert reported.accusations() == []
    reported.pod(3, "a", "m", group="")
    assert reported.accusations() == [(AccusationCode.BOUND_TWICE, "x/a on n, m")]


# ---- domains


def in_racks() -> History:
    """Return a history with node n in rack a, m in rack b, and on n a member that shares its rack."""
    found = History()
    found.node(0, "n", rack="a", cpu=9)
    found.node(0, "m", rack="b", cpu=9)
    found.group(0, 1)
    found.pod(1, "one", "n", level="rack")
    return found


def test_members_that_share_a_rack_are_not_bound_in_two() -> None:
    racks = in_racks()
    racks.pod(2, "two", "n", level="rack")
    assert racks.accusations() == []
    racks.pod(3, "three", "m", level="rack")
    assert racks.accusations() == [(AccusationCode.TWO_DOMAINS, "x/three in b, others in a")]


@each_of({"level": ""}, {"level": "rack", "task": "work"}, {"level": "rack", "group": "x/other"})
def test_pods_of_no_rack_or_of_another_task_or_gang_go_anywhere(pod: Any) -> None:
    racks = in_racks()
    racks.pod(2, "two", "m", **pod)
    assert racks.accusations() == []


@each_of({"phase": "Succeeded"}, {"gone": True}, {"is_terminating": True})
def test_members_that_have_left_bind_no_newcomer_to_their_rack(change: Any) -> None:
    racks = in_racks()
    racks.pod(2, "one", "n", level="rack", **change)
    racks.pod(3, "two", "m", level="rack")
    assert racks.accusations() == []


@each_of(("n", 30 + SIGHT, True), ("n", 31 + SIGHT, False), ("m", 30 + SIGHT, True), ("m", 31 + SIGHT, False))
def test_the_rack_that_a_node_has_just_left_still_counts(moved: str, at: float, accepted: bool) -> None:
    """Either the node of the member that is there, or that of the newcomer, has left rack a."""
    racks = in_racks()
    racks.node(1, "m", rack="a", cpu=9)
    racks.node(30, moved, rack="c", cpu=9)
    racks.pod(at, "two", "m", level="rack")
    assert (racks.accusations() == []) is accepted


def test_a_node_that_moved_long_ago_counts_for_its_present_rack() -> None:
    racks = in_racks()
    racks.node(10, "m", rack="a", cpu=9)
    racks.pod(11 + SIGHT, "two", "m", level="rack")
    racks.node(40, "m", rack="b", cpu=9)
    racks.pod(60, "three", "m", level="rack")
    assert racks.accusations() == []


# ---- leaves


def evicted(reported: History, *, is_reclaimable: bool, stands: float, waits: bool = True) -> None:
    """Add a gang of one that stood so long when it was evicted; `waits`: another pod did meanwhile."""
    reported.queue(0, is_reclaimable=is_reclaimable)
    reported.group(0, 1)
    reported.pod(1, "a", "n", cpu=4)
    if waits:
        reported.pod(2, "other", group="", queue="r")
    reported.pod(1 + stands, "a", "n", cpu=4, gone=True, evicted=True)


def test_a_fully_running_gang_of_a_queue_that_lends_nothing_loses_no_pod(reported: History) -> None:
    evicted(reported, is_reclaimable=False, stands=LONG_RUN + 1)
    assert reported.accusations() == [(AccusationCode.NEEDLESS_EVICTION, "x/a")]


def test_no_pod_is_evicted_while_no_group_waits(reported: History) -> None:
    evicted(reported, is_reclaimable=True, stands=LONG_RUN + 1, waits=False)
    assert reported.accusations() == [(AccusationCode.NEEDLESS_EVICTION, "x/a")]


def test_each_eviction_needs_a_group_that_uses_the_capacity(reported: History) -> None:
    evicted(reported, is_reclaimable=True, stands=LONG_RUN + 1)
    reported.pod(20, "other", "n", group="", queue="r")
    assert reported.accusations() == []
    assert reported.reviewed().evictions == {Purpose.TAKEN: 1}


def test_unused_freed_capacity_is_reported(reported: History) -> None:
    evicted(reported, is_reclaimable=True, stands=LONG_RUN + 1)
    reported.pod(REUSE_SECONDS + 20, "other", "n", group="", queue="r")
    assert reported.reviewed().evictions == {Purpose.UNTAKEN: 1}


def test_an_eviction_of_a_short_run_is_reported_separately(reported: History) -> None:
    evicted(reported, is_reclaimable=False, stands=LONG_RUN - 1)
    assert reported.accusations() == []
    assert reported.reviewed().evictions == {Purpose.SHORT_LIVED: 1}


def test_a_gang_with_a_refused_member_has_not_fully_run(reported: History) -> None:
    reported.group(0, 2)
    reported.pod(1, "a", "n")
    reported.pod(2, "b", "n", phase="Pending")
    reported.pod(3, "b", "n", phase="Failed")
    reported.pod(4, "a", "n", gone=True, evicted=True)
    assert (reported.accusations(), reported.reviewed().evictions) == ([], {Purpose.UNDONE_START: 1})


def test_a_pod_deleted_by_its_owner_does_not_count(reported: History) -> None:
    reported.group(0, 1)
    reported.pod(1, "a", "n")
    reported.pod(100, "a", "n", gone=True)
    assert (reported.accusations(), reported.reviewed().evictions) == ([], {})


# ---- how objects are read


@each_of(("3", 3), ("1500m", 1.5), ("64Mi", 2**26), ("2k", 2000), (4, 4), ("1e3", 1000), ("0.5Gi", 2**29))
def test_amounts_are_read_with_their_suffixes(text: str, number: float) -> None:
    assert amount(text) == number * BILLION


def test_all_needed_fields_of_a_pod_are_read() -> None:
    body = {
        "metadata": {
            "namespace": "x",
            "name": "a",
            "uid": "u",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "scheduling.k8s.io/group-name": "g",
                "volcano.sh/task-spec": "lead",
                "kube-muster.io/required-topology": "rack",
            },
        },
        "spec": {
            "schedulerName": "muster",
            "nodeName": "n",
            "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    }
    fact = pod_fact(body, False, 3, 1.0)
    assert (fact.name, fact.group, fact.task, fact.node) == ("x/a", "x/g", "lead", "n")
    assert (fact.requests, fact.evicted) == ({"cpu": BILLION, "pods": BILLION}, True)
    assert (fact.is_ours, fact.has_run, fact.is_pending) == (True, True, False)
    assert (fact.level, fact.is_terminating) == ("rack", True)


@each_of(
    ({}, True),
    ({"reclaimable": False}, True),
    ({"preemption": {"withinQueue": "Never"}}, True),
    ({"reclaimable": False, "preemption": {"withinQueue": "Never"}}, False),
)
def test_a_queue_says_whether_it_lends(spec: Any, is_reclaimable: bool) -> None:
    assert queue_fact({"metadata": {"name": "q"}, "spec": spec}, False, 1, 0).is_reclaimable == is_reclaimable


def test_the_second_judge_imports_neither_the_first_judges_nor_muster() -> None:
    """Allow only the client that follows the watches."""
    here = Path(__file__).parent
    for name in ("second_judge", "second_judge_state", "facts", "event_recorder"):
        imported = re.findall(
            r"^(?:from|import) ((?:tests|extender)\S*)", (here / f"{name}.py").read_text(), re.M
        )
        allowed = {f"tests.storm.{other}" for other in ("second_judge_state", "second_judge", "facts")}
        if name == "event_recorder":
            allowed |= {
                f"tests.e2e.harness.{other}" for other in ("client", "follower", "resources", "waiting")
            }
        assert set(imported) <= allowed
