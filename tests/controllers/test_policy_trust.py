"""Marks on PodGroups and notes of rights are trusted while the API server enforces the policy for them."""

from structlog.testing import capture_logs

from extender.api.keys import MAY_USE, SUBMITTER
from extender.controllers.coexistence import AuthorTrust, MarkerTrust, UseTrust
from extender.domain.model.reasons import Reason, Verdict
from extender.kube.calls import AUTHORS_POLICIES, MARKERS_POLICY, USES_POLICY
from extender.kube.errors import Unreachable
from tests.controllers.bench import Bench
from tests.domain.builders import group, node, pod, queue
from tests.domain.world import key, nodes


class Trusting(Bench):
    """Bench with a group recorded as fully running, with one of two members on a node."""

    def __init__(self) -> None:
        members = [pod("g-0", "g", on="a"), pod("g-1", "g")]
        super().__init__(nodes("a"), group("g", 2, stood_whole=True), members, records_trusted=False)
        self.trust = MarkerTrust(self.ledger, self.api)

    def believes(self, reserved: bool | None) -> bool:
        """Return whether records count after a look at the policy; None: the API server cannot be reached."""
        if reserved is None:
            self.api.fail("policy", Unreachable("away"))
        else:
            self.api.enforced = {MARKERS_POLICY} if reserved else {USES_POLICY}
        with capture_logs():
            self.trust.poll()
        return self.stood_whole("g")


def test_records_are_trusted_while_the_policy_exists() -> None:
    bench = Trusting()
    assert bench.trust.text() == "not known yet whether the API server protects them"
    assert not bench.believes(False)
    assert "not protected" in bench.trust.text()
    assert bench.believes(True)
    assert bench.trust.text() == "protected by the API server: only Muster can write them"


def test_a_failed_read_changes_nothing() -> None:
    bench = Trusting()
    assert not bench.believes(None)
    assert bench.believes(True)
    assert bench.believes(None)


def test_policies_are_read_at_the_start() -> None:
    bench = Trusting()
    bench.api.enforced = {MARKERS_POLICY}
    bench.trust.start()
    bench.trust.stop()
    assert bench.stood_whole("g")


def test_records_of_rights_are_trusted_while_their_own_policy_exists() -> None:
    recorded = group("g", 1, queue="vip", annotations={MAY_USE: "vip/PodGroup"})
    bench = Bench(node("n"), queue("vip", restricted=True), recorded, pod("g-0", "g"))
    bench.ledger.intake.review_users()
    trust = UseTrust(bench.ledger, bench.api)
    bench.api.enforced = {MARKERS_POLICY}
    trust.poll()
    assert bench.settle().reason("g") is Reason.QUEUE_NOT_ALLOWED
    bench.api.enforced = {USES_POLICY}
    trust.poll()
    bench.api.fail("policy", Unreachable("away"))
    trust.poll()
    assert bench.settle().verdict("g") is Verdict.STARTING


def test_authors_are_trusted_while_all_policies_for_them_exist() -> None:
    bench = Bench(group("g", 1, annotations={SUBMITTER: "ann"}), records_trusted=False)
    trust = AuthorTrust(bench.ledger, bench.api)
    first, second = AUTHORS_POLICIES
    for enforced, user in (([first], ""), ([second], ""), ([first, second], "ann")):
        bench.api.enforced = {MARKERS_POLICY, *enforced}
        trust.poll()
        view = bench.settle().ledger.registry.groups[key("g")].info
        assert view is not None
        assert view.spec.submitter == user
