"""Posting a binding: real requests to a scripted API server; the pod is read if the answer was unclear."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from extender.api import keys
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.verbs.barrier import ABANDONED, BOUND_ELSEWHERE, POD_GONE, POSTING_FAILED, TOO_LATE, Hold
from extender.verbs.posting import Binder
from tests.domain.builders import pod
from tests.domain.world import World
from tests.kube.conftest import write_kubeconfig
from tests.kube.server import Reply, Server, status
from tests.verbs.stage import PATIENCE, Patient

BOUND = Reply(201)
NO_ANSWER = Reply(raw=b"")  # the request was sent, and the connection is cut: the outcome is unknown


def read(node: str = "", uid: str = "uid-p", deleted: bool = False) -> Reply:
    """Return the answer to a read of the pod."""
    meta = {"name": "p", "uid": uid, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    return Reply(200, json.dumps({"metadata": meta, "spec": {"nodeName": node}}).encode())


class BinderBench:
    """A binder whose pauses move its clock, and a held call to node `a` that it may bind."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self.server, self.connection = server, connection
        self.now = 0.0
        self.pauses: list[float] = []
        self.released: list[Hold] = []
        self.caller = Patient()
        self.while_pausing: Callable[[], None] = lambda: None
        record = World(pod("p")).ledger.pods.find("team", "p")
        assert record is not None
        self.done = Event()
        self.hold = Hold(record, "a", self.caller, deadline=60.0, on_end=self.done.set)
        assert self.hold.begin_posting()
        self.binder = Binder(
            ApiClient(connection),
            self.released.append,
            {"team/pod:p": "uid-q"}.__getitem__,
            thread_count=1,
            clock=lambda: self.now,
            pause=self._pause,
        )

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.while_pausing()

    def bind(self, *replies: Reply, unclear: bool = False) -> str:
        """Return the result, once the API server has given these answers.

        The claim of a failed binding is freed, unless its outcome is `unclear`.
        """
        self.server.script.extend(replies)
        with capture_logs():
            self.binder.bind(self.hold)
        verdict = self.hold.result
        assert verdict is not None
        assert self.released == ([self.hold] if verdict and not unclear else [])
        assert not self.server.script
        return verdict

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.path.rpartition('/')[2]}" for request in self.server.requests]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def bench(server: Server, tmp_path: Path) -> Iterator[BinderBench]:
    connection = Connection.load(str(write_kubeconfig(tmp_path, server.url)))
    yield BinderBench(server, connection)
    connection.close()


def test_a_binding_names_the_node_and_the_uid(bench: BinderBench) -> None:
    assert bench.bind(BOUND) == ""
    (request,) = bench.server.requests
    recorded = {keys.QUEUE_UID: "uid-q/uid-p"}
    assert request.json["metadata"] == {
        "name": "p",
        "namespace": "team",
        "uid": "uid-p",
        "annotations": recorded,
    }
    assert request.json["target"]["name"] == "a"


CONFLICT, GONE = status(409, "Conflict"), status(404, "NotFound")


@pytest.mark.parametrize(
    ("replies", "verdict", "asked"),
    [
        pytest.param([CONFLICT, read("a")], "", "PG", id="bound to this node"),
        pytest.param([CONFLICT, read("b")], BOUND_ELSEWHERE, "PG", id="bound to another node"),
        pytest.param([CONFLICT, read(), BOUND], "", "PGP", id="not bound"),
        pytest.param([CONFLICT, read("a", uid="successor")], POD_GONE, "PG", id="another pod"),
        pytest.param([CONFLICT, read("", deleted=True)], POD_GONE, "PG", id="being deleted"),
        pytest.param([CONFLICT, GONE], POD_GONE, "PG", id="gone by then"),
        pytest.param([GONE], POD_GONE, "P", id="gone"),
        *(
            pytest.param([status(code), BOUND], "", "PP", id=f"{code} passes")
            for code in (500, 503, 429, 401)
        ),
        pytest.param([NO_ANSWER, read("a")], "", "PG", id="lost after success"),
        pytest.param([NO_ANSWER, read(), BOUND], "", "PGP", id="lost before success"),
        pytest.param([NO_ANSWER, status(500), CONFLICT, read("a")], "", "PGPG", id="a failed read"),
    ],
)
def test_an_unclear_answer_is_resolved_by_a_read_and_what_may_pass_is_tried_again(
    bench: BinderBench, replies: list[Reply], verdict: str, asked: str
) -> None:
    assert bench.bind(*replies) == verdict
    assert bench.asked == [{"P": "POST binding", "G": "GET p"}[each] for each in asked]


POLICY = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: site policy"


TERMINATING_NAMESPACE = (
    'pods "p" is forbidden: unable to create new content in namespace n because it is being terminated'
)
NO_RIGHT = 'pods "p" is forbidden: User "m" cannot create resource "pods/binding" in API group ""'


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (status(403, "Forbidden", POLICY), "refused: site policy"),
        (status(403, "Forbidden", TERMINATING_NAMESPACE), f"not allowed: {TERMINATING_NAMESPACE}"),
        (status(422, "Invalid"), "the API server refuses: 422 Invalid"),
    ],
    ids=["by a policy", "its namespace ends", "invalid"],
)
def test_a_permanent_refusal_is_not_retried(bench: BinderBench, refusal: Reply, words: str) -> None:
    assert bench.bind(refusal).startswith(REFUSAL_PREFIX)
    assert bench.hold.refusal == words, "the group reports the cause"


def test_missing_rights_are_retried_for_some_seconds(bench: BinderBench) -> None:
    """An API server that has just started does not know them."""
    assert bench.bind(*[status(403, "Forbidden", NO_RIGHT)] * 5, status(201)) == ""


def test_rights_that_stay_missing_are_a_final_refusal(bench: BinderBench) -> None:
    assert bench.bind(*[status(403, "Forbidden", NO_RIGHT)] * 8) == f"{REFUSAL_PREFIX}Forbidden"
    assert 5.0 <= bench.now < 8.0
    assert bench.hold.refusal == f"not allowed: {NO_RIGHT}"


def test_the_capacity_of_an_uncertain_binding_stays_assumed(bench: BinderBench) -> None:
    bench.now = 59.99
    assert bench.bind(NO_ANSWER, status(500), unclear=True) == TOO_LATE


def test_the_capacity_of_a_binding_that_is_known_to_have_failed_is_freed(bench: BinderBench) -> None:
    bench.while_pausing = lambda: setattr(bench, "now", 60.0)
    assert bench.bind(NO_ANSWER, read()) == TOO_LATE
    assert not bench.hold.may_be_bound


def test_nothing_is_retried_for_a_caller_that_left_meanwhile(bench: BinderBench) -> None:
    bench.while_pausing = lambda: setattr(bench.caller, "hung_up", True)
    assert bench.bind(status(500)) == ABANDONED
    assert bench.asked == ["POST binding"]


@pytest.mark.parametrize(("left", "now", "verdict"), [(True, 0.0, ABANDONED), (False, 60.0, TOO_LATE)])
def test_nothing_is_posted_for_a_caller_that_is_gone_or_after_the_deadline(
    bench: BinderBench, left: bool, now: float, verdict: str
) -> None:
    bench.caller.hung_up, bench.now = left, now
    assert bench.bind() == verdict
    assert bench.asked == []


def test_tries_go_on_until_the_deadline_with_growing_pauses(bench: BinderBench) -> None:
    assert bench.bind(*[status(500)] * 35) == TOO_LATE
    assert bench.pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert set(bench.pauses[7:]) == {2.0}
    assert bench.now - bench.pauses[-1] < 60.0 <= bench.now


def test_an_exception_is_an_answer_too(bench: BinderBench) -> None:
    bench.while_pausing = lambda: [][0]
    assert bench.bind(status(500)) == POSTING_FAILED


def test_a_release_that_fails_is_an_answer_too(bench: BinderBench) -> None:
    bench.binder = Binder(
        ApiClient(bench.connection),
        lambda hold: [][0],
        lambda group: "",
        thread_count=1,
        clock=lambda: bench.now,
        pause=bench.pauses.append,
    )
    with capture_logs():
        bench.server.script.append(status(422, "Invalid"))
        bench.binder.bind(bench.hold)
    assert bench.hold.result == f"{REFUSAL_PREFIX}Invalid"


def test_the_threads_of_the_binder_post_bindings(bench: BinderBench) -> None:
    bench.server.script.append(BOUND)
    bench.binder.post(bench.hold)
    bench.binder.start()
    assert bench.done.wait(PATIENCE)
    assert bench.hold.result == ""


def test_an_unclear_answer_at_the_deadline_is_still_resolved(bench: BinderBench) -> None:
    bench.now = 59.9
    assert bench.bind(NO_ANSWER, read("a")) == ""
