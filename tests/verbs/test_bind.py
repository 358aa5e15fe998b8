"""Bind before it reaches the barrier: what is refused at once, and pods that the watch has not shown."""

from extender.api.protocol import BindingArgs
from extender.domain.cache.claims import Stage as ClaimStage
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.kube.errors import Forbidden, Unreachable
from extender.verbs.messages import (
    ALREADY_BOUND,
    ANOTHER_UID,
    LEFT,
    POD_GONE,
    UNKNOWN_NODE,
    UNREADABLE,
)
from tests.domain.builders import SCHEDULER, node, pod, stranger
from tests.domain.world import gang, nodes
from tests.verbs.stage import Patient, Stage, started


def refusal(stage: Stage, name: str = "p", on: str = "a", uid: str = "uid-p") -> str:
    """What a bind call that does not wait is answered."""
    return stage.verbs.bind(BindingArgs(name, "team", uid, on), Patient()).error


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


def test_a_node_without_room_is_refused() -> None:
    stage = Stage(nodes("a", "b"), stranger("s", on="b", cpu="4"), pod("p"))
    assert refusal(stage, on="b") == f"{REFUSAL_PREFIX}{Reason.NO_ROOM}"


# ---- a pod that the watch has not shown is looked up


def test_an_unknown_pod_is_looked_up_and_waits_for_its_decision() -> None:
    stage = Stage(node("a"))
    stage.api.pods["p"] = pod("p", gated=False)
    assert refusal(stage) == f"{REFUSAL_PREFIX}{Reason.NOT_READY}"
    stage.settle()
    with stage.calls():
        stage.pods["p"] = stage.api.pods["p"]
        assert started(stage.call("p", "a")) == [""]
    assert stage.api.calls == [("pod", "p")]


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
    stage.api.pods["p"] = pod("p", cpu="a lot")
    assert refusal(stage) == UNREADABLE


def test_a_pod_that_is_not_ours_is_bound_whatever_we_think_of_the_node() -> None:
    stage = Stage(node("a"), gang("g", 4), stranger("s"))
    assert stage.plan("g")
    assert refusal(stage, "s", uid="uid-s") == ""
    assert [(hold.pod.name, hold.node) for hold in stage.posted] == [("s", "a")]
    assert (stage.stage("s"), stage.barrier.held()) == (ClaimStage.BOUND, [])


def test_a_pod_that_is_not_ours_is_told_when_its_binding_failed() -> None:
    with Stage(node("a"), stranger("s"), withholds=True).calls() as stage:
        call = stage.call("s", "a")
        stage.wait_for(lambda: len(stage.posted) == 1)
        stage.posted[0].finish("no")
        assert started(call) == ["no"]


def test_a_pod_that_is_left_to_another_scheduler_is_refused() -> None:
    stage = Stage(node("a"), pod("p"))
    stage.ledger.leave(frozenset({SCHEDULER}))
    assert refusal(stage) == LEFT
