"""Leadership follows the Lease of the scheduler in the same pod."""

from threading import Event

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.api.objects.cluster import Lease, LeaseSpec
from extender.controllers import leader_election as module
from extender.controllers.leader_election import LeaderElection
from extender.kube.errors import Ambiguous, Forbidden, ServerFault, Unreachable
from tests.controllers.api import Api
from tests.rows import each_of

RENEW_DEADLINE = 10.0
PATIENCE = 10.0


class LeaseBench:
    """A Lease that the test writes, and that `host` reads."""

    def __init__(self, host: str = "node-1") -> None:
        self.now = 1000.0
        self.renewals = 0
        self.api = Api()
        self.leadership = LeaderElection(
            self.api, "kube-system", "muster-scheduler", host, clock=lambda: self.now
        )

    def renew(self, holder: str | None = "node-1_b1946ac9") -> "LeaseBench":
        self.renewals += 1
        self.api.spec = LeaseSpec(holder, 15, f"renewal {self.renewals}")
        return self

    def look(self) -> bool:
        with capture_logs():
            self.leadership.read_lease()
        return self.leadership.leads()

    def after(self, seconds: float) -> "LeaseBench":
        self.now += seconds
        return self


def test_a_replica_on_the_host_of_the_lease_holder_leads_after_its_first_look() -> None:
    bench = LeaseBench().renew()
    assert not bench.leadership.leads()
    assert bench.look()
    assert bench.api.calls == [("lease", "kube-system/muster-scheduler")]


@each_of("node-2_b1946ac9", "node-10_b1946ac9", "node-1", "", None)
def test_a_replica_on_another_host_does_not_lead(holder: str | None) -> None:
    assert not LeaseBench().renew(holder).look()


def test_the_leadership_lasts_while_the_lease_is_renewed() -> None:
    bench = LeaseBench()
    assert all(bench.renew().after(2).look() for _ in range(20))


def test_the_leadership_is_lost_at_the_deadline_with_and_without_a_look_until_a_renewal() -> None:
    for looks in (True, False):
        bench = LeaseBench().renew()
        assert bench.look()
        leads = bench.look if looks else bench.leadership.leads
        bench.after(RENEW_DEADLINE - 0.1)
        assert leads()
        bench.after(0.1)
        assert not leads()
        assert not bench.after(1000).look()
        assert bench.renew().look()


def test_a_lease_that_is_deleted_ends_it_at_once() -> None:
    bench = LeaseBench().renew()
    bench.look()
    bench.api.spec = None
    assert not bench.look()


@each_of(Unreachable("down"), Ambiguous("timed out"), ServerFault(500), Forbidden(403))
def test_a_failed_look_neither_ends_nor_prolongs_it(fault: Unreachable) -> None:
    bench = LeaseBench().renew()
    bench.look()
    bench.api.fail("lease", *[fault] * 3)
    assert bench.after(RENEW_DEADLINE - 1).look()
    assert not bench.after(1).look()


def test_time_counts_from_before_the_question() -> None:
    """A slow answer is no evidence for the time after the request."""
    bench = LeaseBench().renew()

    class Slow(Api):
        def lease(self, namespace: str, name: str, timeout: float = 10) -> Lease:
            lease = super().lease(namespace, name, timeout)
            bench.after(8)
            return lease

    slow = Slow()
    slow.spec = bench.api.spec
    leadership = LeaderElection(slow, "kube-system", "l", "node-1", clock=lambda: bench.now)
    with capture_logs():
        leadership.read_lease()
    assert leadership.leads()
    bench.after(2)
    assert not leadership.leads()


def test_stopping_ends_it() -> None:
    bench = LeaseBench().renew()
    bench.look()
    bench.leadership.stop()
    assert not bench.leadership.leads()


def test_a_change_of_leadership_is_logged_and_counted_once() -> None:
    bench = LeaseBench()
    with capture_logs() as logs:
        for _ in range(3):
            bench.renew().leadership.read_lease()
        assert REGISTRY.get_sample_value("muster_leader") == 1
        for _ in range(3):
            bench.renew("other_1").leadership.read_lease()
        assert REGISTRY.get_sample_value("muster_leader") == 0
    assert [line["event"] for line in logs] == ["leading", "not leading"]


def test_the_status_of_the_election_is_shown() -> None:
    bench = LeaseBench()
    bench.look()
    assert bench.leadership.status().text() == "does not lead; kube-system/muster-scheduler has no holder"
    bench.renew("node-2_1").look()
    assert bench.after(3).leadership.status().text() == "follows node-2_1, renewed 3 s ago"
    bench.renew().look()
    text = "leads; kube-system/muster-scheduler is held by node-1_b1946ac9, renewed 1 s ago"
    assert bench.after(1).leadership.status().text() == text


def test_a_lease_that_cannot_be_read_is_reported() -> None:
    bench = LeaseBench()
    bench.api.fail("lease", Forbidden(403, "Forbidden"))
    bench.look()
    assert "could not be read: 403 Forbidden" in bench.leadership.status().text()
    bench.renew().look()
    bench.api.fail("lease", Unreachable("down"))
    bench.look()
    assert bench.leadership.status().text().endswith(": down)")


def test_without_leader_election_a_replica_always_leads() -> None:
    assert module.NoElection().status().text() == "leads, by --leader-elect=off"


def test_metrics_have_the_changes_of_leadership_and_the_age_of_the_lease() -> None:
    def turns() -> float:
        return REGISTRY.get_sample_value("muster_leader_transitions_total") or 0.0

    bench, before = LeaseBench(), turns()
    bench.renew().look()
    bench.after(4).look()
    assert REGISTRY.get_sample_value("muster_lease_age_seconds") == 4
    bench.renew("other_1").look()
    assert turns() - before == 2


def test_the_thread_reads_the_lease_as_soon_as_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ_PERIOD", 1000.0)
    looked = Event()

    class Watched(Api):
        def lease(self, namespace: str, name: str, timeout: float = 10) -> Lease:
            looked.set()
            return super().lease(namespace, name, timeout)

    leadership = LeaderElection(Watched(), "kube-system", "l", "node-1")
    leadership.start()
    try:
        assert looked.wait(PATIENCE)
    finally:
        leadership.stop()
