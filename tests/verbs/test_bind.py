"""Bind before it reaches the barrier: what is refused at once, and pods that the watch has not shown."""

import asyncio

from extender.api.objects.cluster import Node, Taint
from extender.api.objects.pods import Toleration
from extender.api.protocol import BindingArgs
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.kube.errors import Forbidden, Unreachable
from extender.verbs.barrier import (
    ALREADY_BOUND,
    ANOTHER_UID,
    LEFT,
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


def test_an_unknown_node_is_refused() -> None:
    assert refusal(Stage(node("a"), pod("p")), on="nowhere") == UNKNOWN_NODE


def test_a_bound_pod_is_refused() -> None:
    assert refusal(Stage(node("a"), pod("p", on="a"))) == ALREADY_BOUND


def test_a_uid_that_belongs_to_another_name_is_refused() -> None:
    assert refusal(Stage(node("a"), pod("p")), name="other") == ANOTHER_UID


def test_a_pod_whose_group_waits_is_refused_with_its_reason() -> None:
    stage = Stage(node("a"), gang("g", 5))
    assert refusal(stage, "g-0", uid="uid-g-0") == f"{REFUSAL_PREFIX}{Reason.NEVER_FITS}"


def test_a_node_without_capacity_is_refused() -> None:
    stage = Stage(nodes("a", "b"), foreign_pod("s", on="b", cpu="4"), pod("p"))
    assert refusal(stage, on="b") == f"{REFUSAL_PREFIX}{Reason.NO_ROOM}"


# ---- a pod that the watch has not shown is looked up


def test_a_pod_that_no_watch_has_shown_is_refused() -> None:
    stage = Stage(node("a"))
    stage.api.pods["p"] = pod("p", gated=False)
    assert refusal(stage) == NOT_SEEN
    assert (stage.api.calls, stage.settle().ledger.pods.find("team", "p")) == ([("pod", "p")], None)


def test_an_unknown_pod_that_was_replaced_is_refused() -> None:
    stage = Stage(node("a"))
    stage.api.pods["p"] = pod("p", uid="successor")
    assert refusal(stage) == ANOTHER_UID


def test_an_unknown_pod_that_is_gone_is_refused() -> None:
    assert refusal(Stage(node("a"))) == POD_GONE


def test_an_unknown_pod_that_is_bound_already_is_refused() -> None:
    stage = Stage(node("a"))
    stage.api.pods["p"] = pod("p", on="a")
    assert refusal(stage) == ALREADY_BOUND


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


SHUT, DISLIKED = Taint(key="k", effect="NoSchedule"), Taint(key="x", effect="PreferNoSchedule")


@each_of(node("b"), node("b", zone="z", taints=[SHUT]), node("b", zone="z", cordoned=True))
def test_a_node_that_does_not_match_is_refused(where: Node) -> None:
    stage = Stage(node("a", zone="z"), where, pod("p", selector={ZONE: "z"}))
    stage.filtered("p", ["a"])
    assert refusal(stage, on="b") == UNSUITABLE_NODE
    with stage.calls():
        assert started(stage.call("p", "a")) == [""]


def test_a_taint_that_the_pod_tolerates_is_no_hindrance() -> None:
    tolerant = pod("p", tolerations=[Toleration(key="k", operator="Exists")])
    stage = Stage(node("a", taints=[SHUT, DISLIKED]), tolerant)
    with stage.calls():
        assert started(stage.call("p", "a")) == [""]


def test_a_pod_that_is_left_to_another_scheduler_is_refused() -> None:
    stage = Stage(node("a"), pod("p"))
    stage.ledger.pods.set_unmanaged(frozenset({SCHEDULER}))
    assert refusal(stage) == LEFT
