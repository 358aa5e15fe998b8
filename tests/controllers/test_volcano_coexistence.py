"""Pods of Volcano are left to it while a pod of its scheduler runs, or its Lease is renewed."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api.objects.cluster import LeaseSpec
from extender.api.objects.pods import Pod
from extender.controllers.coexistence import VOLCANO, VolcanoCoexistence
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import Uid
from extender.kube.errors import Forbidden, NotFound, Unreachable
from tests.controllers.api import Call
from tests.controllers.bench import Bench
from tests.domain.builders import NAMESPACE, node, pod
from tests.rows import each_of

DURATION = 15.0
SCHEDULER = {"app": "volcano-scheduler"}


class Yielding(Bench):
    """A pod of ours, and one of Volcano's that has our gate."""

    def __init__(self) -> None:
        super().__init__(node("a"))
        self.ledger.pods.ownership = Ownership(frozenset({"muster", VOLCANO}))
        self.add(pod("ours"), pod("theirs", scheduler=VOLCANO)).settle()
        self.yielder = VolcanoCoexistence(self.means(), NAMESPACE)

    def renew(self, holder: str | None = "volcano-1", age: float = 0.0) -> "Yielding":
        at = datetime.now(UTC) - timedelta(seconds=age)
        self.api.spec = LeaseSpec(holder, int(DURATION), at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        return self

    def after(self, seconds: float) -> "Yielding":
        self.advance(seconds)
        return self

    def yields(self) -> bool:
        """Return whether Muster yields after a look at the Lease."""
        with capture_logs():
            self.yielder.scheduler.look_at_lease()
        return self.ledger.pods.is_unmanaged(VOLCANO)

    def gates(self) -> list[Call]:
        self.api.calls = []
        self.yielder.on_decisions(self.decisions)
        self.flush()
        return self.api.done("open")


@contextmanager
def yielding(*_: Any) -> Iterator[Yielding]:
    bench = Yielding()
    with bench.writing():
        yield bench


def test_while_volcano_renews_its_lease_its_pods_are_left_to_it() -> None:
    with yielding() as bench:
        assert all(bench.renew().after(5).yields() for _ in range(5))
        assert (
            bench.yielder.text() == "pods of schedulerName volcano are left to its own scheduler (volcano-1)"
        )
        assert not bench.after(DURATION).yields()
        assert bench.yielder.text() == "no scheduler of Volcano is at work"
        assert bench.renew().yields()


def test_without_a_lease_volcanos_pods_are_ours() -> None:
    with yielding() as bench:
        assert not bench.yields()
        assert bench.gates() == []


@each_of("", None)
def test_a_lease_without_a_holder_counts_as_absent(holder: str | None) -> None:
    with yielding() as bench:
        assert not bench.renew(holder).yields()


def test_an_expired_lease_of_volcano_counts_as_absent() -> None:
    with yielding() as bench:
        assert not bench.renew(age=3600).yields()
        assert not bench.after(5).yields()
        assert bench.renew(age=3500).yields()


def test_a_deleted_lease_returns_volcanos_pods_to_muster() -> None:
    with yielding() as bench:
        assert bench.renew().yields()
        bench.api.fail("lease", NotFound(404))
        assert not bench.yields()


def test_a_failed_read_changes_nothing() -> None:
    with yielding() as bench:
        assert bench.renew().yields()
        bench.api.fail("lease", Unreachable("down"))
        assert bench.after(3 * DURATION).yields()


def test_an_unreadable_lease_is_reported_and_counts_as_absent() -> None:
    with yielding() as bench, capture_logs() as logs:
        bench.api.fail("lease", Forbidden(403))
        bench.yielder.scheduler.look_at_lease()
        assert not bench.ledger.pods.is_unmanaged(VOLCANO)
    assert any(line["log_level"] == "warning" for line in logs)


def test_our_gate_is_removed_from_volcanos_pods_once() -> None:
    with yielding() as bench:
        bench.renew().yields()
        assert bench.gates() == [("theirs",)]
        assert bench.after(2).gates() == []


def test_a_gate_that_did_not_open_is_tried_again() -> None:
    with yielding() as bench, capture_logs():
        bench.renew().yields()
        bench.api.fail("open", Forbidden(403))
        assert bench.gates() == [("theirs",)]
        assert bench.after(2).gates() == [("theirs",)]


def test_only_the_leader_opens_gates() -> None:
    with yielding() as bench:
        bench.renew().yields()
        bench.leading = False
        assert bench.gates() == []


def test_changes_of_the_responsible_scheduler_are_logged() -> None:
    with yielding() as bench, capture_logs() as logs:
        bench.renew().yielder.scheduler.look_at_lease()
        bench.after(DURATION).yielder.scheduler.look_at_lease()
    assert [line["event"] for line in logs] == [
        "Volcano's pods are left to Volcano",
        "Volcano's pods are served by Muster",
    ]


@each_of("Pending", "Running", "Unknown")
def test_while_volcanos_scheduler_has_a_pod_on_a_node_its_pods_are_left_to_it(phase: str) -> None:
    """Rely on the pod: as installed, Volcano's scheduler elects no leader, so there is no Lease."""
    with yielding() as bench, capture_logs():
        assert not bench.yields()
        bench.yielder.scheduler.see_pod(pod("volcano-scheduler-1", labels=SCHEDULER, on="a", phase=phase))
        assert bench.ledger.pods.is_unmanaged(VOLCANO)
        assert bench.yielder.text().endswith("(volcano-scheduler-1)")
        assert bench.after(5 * DURATION).yields()
        bench.yielder.scheduler.forget_pod(Uid("uid-volcano-scheduler-1"), NAMESPACE)
        assert not bench.ledger.pods.is_unmanaged(VOLCANO)


@each_of(
    pod("waits", labels=SCHEDULER),
    pod("ended", labels=SCHEDULER, on="a", phase="Failed"),
    pod("another", labels={"app": "volcano-controller"}, on="a", phase="Running"),
)
def test_other_pods_are_no_sign_of_volcano(not_at_work: Pod) -> None:
    with yielding() as bench, capture_logs():
        assert not bench.yields()
        bench.yielder.scheduler.see_pod(not_at_work)
        assert not bench.ledger.pods.is_unmanaged(VOLCANO)


def test_pods_of_other_namespaces_are_no_sign_of_volcano() -> None:
    """Ignore other namespaces: otherwise any tenant who may create pods could stop all of ours."""
    with yielding() as bench, capture_logs():
        assert not bench.yields()
        found = pod("volcano-scheduler-1", labels=SCHEDULER, on="a", phase="Running")
        elsewhere = replace(found, metadata=replace(found.metadata, namespace="elsewhere"))
        bench.yielder.scheduler.see_pod(elsewhere)
        assert not bench.ledger.pods.is_unmanaged(VOLCANO)


def test_the_end_of_volcanos_pod_returns_its_pods_to_muster() -> None:
    with yielding() as bench, capture_logs():
        assert not bench.yields()
        for phase, left in (("Running", True), ("Failed", False)):
            bench.yielder.scheduler.see_pod(pod("volcano-scheduler-1", labels=SCHEDULER, on="a", phase=phase))
            assert bench.ledger.pods.is_unmanaged(VOLCANO) is left


def test_before_the_first_look_volcanos_pods_are_left_unchanged() -> None:
    bench = Yielding()
    bench.api.fail("lease", *[Unreachable("down")] * 10)
    bench.yielder.start()
    try:
        assert bench.ledger.pods.is_unmanaged(VOLCANO)
        assert "not known yet" in bench.yielder.text()
    finally:
        bench.yielder.stop()
