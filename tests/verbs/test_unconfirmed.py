"""Posted claims that are never shown as bound: their pods are read, and every claim ends."""

from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.pods import Pod
from extender.domain.ledger.claims import ClaimStage
from extender.kube.errors import Unreachable
from extender.verbs.posting import UnclearClaims
from tests.domain.builders import node, pod
from tests.domain.world import gang
from tests.rows import each_of
from tests.verbs.stage import Stage

PATIENCE = 150.0


class UnconfirmedStage(Stage):
    """A gang of two whose bindings were posted and have not been confirmed since."""

    def __init__(self) -> None:
        super().__init__(node("a"), gang("g", 2))
        self.unconfirmed = UnclearClaims(self.ledger, self.api, PATIENCE, clock=lambda: self.now)
        for name in ("g-0", "g-1"):
            self.answer(name)
            self.hold(name, "a")
        self.confirm("g")

    def look(self, after: float = PATIENCE + 1) -> "UnconfirmedStage":
        self.advance(after)
        self.unconfirmed.read_due(self.decisions)
        with capture_logs():
            self.unconfirmed.resolve_queued()
        return self

    def reads(self) -> list[Any]:
        return self.api.done("pod")


def bound(name: str) -> Pod:
    return pod(name, "g", on="a")


def test_a_posting_is_not_read_before_its_time() -> None:
    assert UnconfirmedStage().look(after=PATIENCE).reads() == []


@each_of(None, pod("g-0", "g"), replace(bound("g-0"), metadata=pod("x").metadata))
def test_an_assumed_pod_that_is_gone_or_unbound_is_dropped(found: Pod | None) -> None:
    stage = UnconfirmedStage()
    stage.api.pods = {"g-1": bound("g-1"), **({"g-0": found} if found else {})}
    stage.look()
    assert [stage.stage(name) for name in ("g-0", "g-1")] == [None, ClaimStage.POSTED]


def test_a_failed_read_is_retried_after_a_pause() -> None:
    stage = UnconfirmedStage()
    stage.api.fail("pod", Unreachable(), Unreachable())
    assert len(stage.look().look(after=1).reads()) == 2
    assert stage.stage("g-0") is ClaimStage.POSTED
    assert len(stage.look(after=10).reads()) == 4
    assert stage.stage("g-0") is None


def test_a_pod_that_is_no_longer_posted_is_not_read() -> None:
    stage = UnconfirmedStage()
    stage.bind("g-0", "a")
    stage.release("g-1")
    assert stage.look().reads() == []


def test_all_bindings_of_a_pod_have_ended_by_the_time_of_the_read() -> None:
    """The scheduler was restarted and called again; both requests were cut off."""
    stage = UnconfirmedStage()
    stage.hold("g-0", "a")
    stage.confirm("g")
    stage.look()
    assert stage.stage("g-0") is None


def test_later_calls_do_not_prolong_the_wait_for_confirmation() -> None:
    """The scheduler tries the pod again every few seconds, while its group backs off."""
    stage = UnconfirmedStage()
    for _ in range(10):
        stage.look(after=PATIENCE / 9)
        stage.hold("g-0", "a")
        stage.release("g-0")
    assert stage.look(after=0).stage("g-0") is None


def test_the_assumed_pod_of_a_newer_call_stays() -> None:
    stage = UnconfirmedStage()
    stage.advance(PATIENCE + 1)
    stage.unconfirmed.read_due(stage.decisions)
    stage.hold("g-0", "a")
    stage.unconfirmed.resolve_queued()
    assert stage.stage("g-0") is ClaimStage.HELD
    assert stage.reads() == [("g-1",)]
