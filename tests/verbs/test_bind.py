"""Bind before it reaches the barrier: what is refused at once, and pods that the watch has not shown."""

import asyncio
from typing import Any

from extender.api.objects.cluster import Node, Taint
from extender.api.objects.pods import Pod, Toleration
from extender.api.protocol import BindingArgs
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.kube.errors import Forbidden, Unreachable
from extender.verbs.barrier import (
    ALREADY_BOUND,
    ANOTHER_UID,
    LEFT_TO_VOLCANO,
    NOT_OURS,
    NOT_SEEN,
    POD_GONE,
    UNKNOWN_NODE,
    UNREADABLE,
    UNSUITABLE_NODE,
)
from tests.domain.builders import SCHEDULER, ZONE, foreign_pod, node, pod
from tests.domain.world import gang, nodes
from tests.rows import each_of
from tests.verbs.stage import Patient, Stage, started


def refusal(stage: Stage, name: str = "p", on: str = "a", uid: str = "uid-p") -> str:
    """Return the answer to a bind call that does not wait."""
    return asyncio.run(stage.verbs.bind(BindingArgs(name, "team", uid, on), Patient())).error


def test_a_group_of_one_is_bound_at_once() -> None:
    with Stage(nodes("a", "b"), pod("p")).calls() as stage:
        assert started(stage.call("p", "b")) == [""]
        assert [(hold.pod.name, hold.node) for hold in stage.posted] == [("p", "b")]


@each_of(
    ([pod("p")], {"on": "nowhere"}, UNKNOWN_NODE),
    ([pod("p", on="a")], {}, ALREADY_BOUND),
    ([pod("p")], {"name": "other"}, ANOTHER_UID),
    (gang("g", 5), {"name": "g-0", "uid": "uid-g-0"}, f"{REFUSAL_PREFIX}{Reason.NEVER_FITS}"),
    ([foreign_pod("s", on="b", cpu="4"), pod("p")], {"on": "b"}, f"{REFUSAL_PREFIX}{Reason.NO_ROOM}"),
)
def test_calls_that_are_refused_at_once(objects: list[Any], call: dict[str, str], said: str) -> None:
    assert refusal(Stage(nodes("a", "b", cpu="2"), objects), **call) == said


# ---- a pod that the watch has not shown is looked up


@each_of(
    (pod("p", gated=False), NOT_SEEN),
    (pod("p", uid="successor"), ANOTHER_UID),
    (pod("p", on="a"), ALREADY_BOUND),
    (None, POD_GONE),
)
def test_a_pod_that_no_watch_has_shown_is_refused(there: Pod | None, said: str) -> None:
    stage = Stage(node("a"))
    if there is not None:
        stage.api.pods["p"] = there
    assert refusal(stage) == said
    assert (stage.api.calls, stage.settle().ledger.pods.find("team", "p")) == ([("pod", "p")], None)


def test_an_unknown_pod_that_cannot_be_read_is_refused() -> None:
    stage = Stage(node("a"))
    stage.api.pods["p"] = pod("p")
    stage.api.fail("pod", Unreachable(), Forbidden(403))
    assert [refusal(stage), refusal(stage)] == [UNREADABLE, UNREADABLE]


def test_a_pod_that_is_not_ours_is_refused() -> None:
    """Refuse it: otherwise any caller of the port could bind any pod of the cluster to any node."""
    stage = Stage(node("a"), foreign_pod("s"))
    assert refusal(stage, "s", uid="uid-s") == NOT_OURS
    assert (stage.posted, stage.stage("s")) == ([], None)


NO_SCHEDULE, PREFER_NO_SCHEDULE = (
    Taint(key="k", effect="NoSchedule"),
    Taint(key="x", effect="PreferNoSchedule"),
)


@each_of(node("b"), node("b", zone="z", taints=[NO_SCHEDULE]), node("b", zone="z", cordoned=True))
def test_a_node_that_does_not_match_is_refused(where: Node) -> None:
    stage = Stage(node("a", zone="z"), where, pod("p", selector={ZONE: "z"}))
    stage.filtered("p", ["a"])
    assert refusal(stage, on="b") == UNSUITABLE_NODE
    with stage.calls():
        assert started(stage.call("p", "a")) == [""]


def test_a_taint_that_the_pod_tolerates_is_no_hindrance() -> None:
    tolerant = pod("p", tolerations=[Toleration(key="k", operator="Exists")])
    stage = Stage(node("a", taints=[NO_SCHEDULE, PREFER_NO_SCHEDULE]), tolerant)
    with stage.calls():
        assert started(stage.call("p", "a")) == [""]


def test_a_pod_that_is_left_to_another_scheduler_is_refused() -> None:
    stage = Stage(node("a"), pod("p"))
    stage.ledger.pods.set_unmanaged(frozenset({SCHEDULER}))
    assert refusal(stage) == LEFT_TO_VOLCANO
