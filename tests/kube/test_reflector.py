"""Events at a sink, cycle by cycle, when the API server behaves and when it does not.

A cycle is one list (if needed) and one watch. The tests run the cycles and record the pauses between
them; only those about the thread itself start it.
"""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api.objects.pods import Pod
from extender.domain.snapshot.jobs import AnyJob
from extender.kube.connection import Connection
from extender.kube.reflector import Reflector, Removed
from extender.kube.resources import PODS
from extender.kube.writers import Backoff
from tests.e2e.harness.waiting import wait_for
from tests.kube.server import Lines, Reply, Server, status

Received = list[str | Removed]


class Listener:
    """A sink that records what it gets, and raises for the pods named in `poison`."""

    def __init__(self, *poison: str) -> None:
        self.received: Received = []
        self.poison = set(poison)
        self.changed = threading.Condition()

    def upsert(self, obj: Pod) -> None:
        if obj.metadata.name in self.poison:
            raise ValueError("indigestible")
        self._record(f"{obj.metadata.name}@{obj.metadata.resource_version}")

    def remove(self, gone: Removed) -> None:
        if gone.name in self.poison:
            raise ValueError("indigestible")
        self._record(gone)

    def drain(self) -> Received:
        received, self.received = self.received, []
        return received

    def _record(self, what: str | Removed) -> None:
        with self.changed:
            self.received.append(what)
            self.changed.notify_all()


class Cycles:
    """A reflector whose cycles a test runs, on a clock that only its pauses advance."""

    def __init__(self, server: Server, connection: Connection, **options: Any) -> None:
        self.answers, self.requests = server.answers, server.requests
        self.now = 0.0
        self.pauses: list[float] = []
        self.sink = options.pop("sink", None) or Listener()
        self.reflector = Reflector(
            connection,
            PODS,
            options.pop("kind", Pod),
            self.sink,
            backoff=Backoff(random_share=lambda: 0.0),
            clock=lambda: self.now,
            wait=self.pauses.append,
            watch_seconds=lambda: 400,
            **{"max_silence": 5.0, **options},
        )

    def run(self, cycles: int = 1) -> Received:
        for _ in range(cycles):
            self.reflector.list_and_watch()
        return self.sink.drain()


Started = Callable[..., Cycles]


@pytest.fixture
def started(server: Server, connection: Connection) -> Started:
    return partial(Cycles, server, connection)


@pytest.fixture
def cycles(started: Started) -> Cycles:
    return started()


def pod(name: str, version: int, uid: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, **more}


def page(version: int, *pods: dict[str, Any], following: str = "") -> Reply:
    head = {"resourceVersion": str(version), "continue": following}
    return Reply(200, json.dumps({"kind": "PodList", "metadata": head, "items": list(pods)}).encode())


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def deepened(body: bytes) -> bytes:
    """Nest the body as deeply as the API server accepts, which no encoder of ours writes."""
    return body.replace(b'"DEEP"', b"[" * 9000 + b"]" * 9000)


EXPIRED_EVENT = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
BAD: dict[str, Any] = {"spec": {"nodeName": 7}}
END = Lines([bookmark(99)])


def test_a_repeated_event_is_not_passed_on(cycles: Cycles) -> None:
    """Ignore repeated and older events, as from a proxy or a server that is behind.

    Deleted objects stay deleted, and changes do not change back.
    """
    again = [event("ADDED", pod("a", 8)), event("DELETED", pod("b", 9)), event("ADDED", pod("c", 10))]
    news = event("MODIFIED", pod("a", 11))
    cycles.answers(page(7, pod("b", 5)), Lines([*again, *again, news]))
    gone = Removed("ns", "b", "uid-b")
    assert cycles.run() == ["b@5", "a@8", gone, "c@10", "a@11"]
    retold = [*again, news, event("DELETED", pod("c", 12))]
    cycles.answers(Lines(retold), Lines([*retold, bookmark(13)]))
    assert cycles.run(2) == [Removed("ns", "c", "uid-c")]
    assert [each.query["resourceVersion"] for each in cycles.requests[1:]] == ["7", "11", "12"]


def test_a_watch_with_only_old_events_causes_a_list(cycles: Cycles) -> None:
    cycles.answers(page(100, pod("a", 99)), Lines([event("MODIFIED", pod("a", 98))]))
    cycles.answers(page(50, pod("a", 49)), Lines([event("MODIFIED", pod("a", 51))]))
    assert cycles.run(2) == ["a@99", "a@49", "a@51"], "as after a backup of etcd was put back"


def test_a_list_comes_in_pages_and_the_watch_starts_at_its_version(cycles: Cycles) -> None:
    cycles.answers(page(7, pod("a", 1), following="t1"), page(7, pod("b", 2)), END)
    assert cycles.run() == ["a@1", "b@2"]
    first, second, watch = cycles.requests
    assert first.path == "/api/v1/pods"
    assert first.query == {"limit": "50"}
    assert second.query == {"limit": "500", "continue": "t1"}
    assert watch.query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "400",
    }


@pytest.mark.parametrize(
    ("megabytes", "limit"), [(4.0, "3"), (1.0, "15"), (0.1, "159"), (0.01, "500"), (20.0, "1")]
)
def test_a_page_has_few_large_objects(cycles: Cycles, megabytes: float, limit: str) -> None:
    """One tenant can write thousands of more than a megabyte; two pages are held at a time."""
    large = "x" * int(megabytes * 2**20)
    first = page(7, *(pod(name, 1, record=large) for name in "ab"), following="t1")
    cycles.answers(first, page(7, pod("c", 2)), END)
    assert cycles.run() == ["a@1", "b@1", "c@2"]
    assert cycles.requests[1].query == {"limit": limit, "continue": "t1"}


def test_the_next_page_is_requested_while_one_is_processed(server: Server, started: Started) -> None:
    class Slow(Listener):
        def upsert(self, obj: Pod) -> None:
            wait_for(lambda: len(server.requests) > len(self.received) + 1)
            super().upsert(obj)

    pages = [page(7, pod("a", 1), following="t1"), page(7, pod("b", 2), following="t2"), page(7)]
    server.answers(*pages, END)
    assert started(sink=Slow()).run() == ["a@1", "b@2"]


def test_selectors_and_namespace_are_sent_in_list_and_watch(started: Started) -> None:
    cycles = started(namespace="ns", label_selector="a=b", field_selector="metadata.name=x")
    cycles.answers(page(1), END)
    cycles.run()
    for request in cycles.requests:
        assert request.path == "/api/v1/namespaces/ns/pods"
        assert request.query["labelSelector"] == "a=b"
        assert request.query["fieldSelector"] == "metadata.name=x"


def test_events_are_passed_on_in_order(cycles: Cycles) -> None:
    news = [
        event("ADDED", pod("b", 8)),
        event("MODIFIED", pod("a", 9)),
        event("DELETED", pod("b", 10)),
        event("DELETED", pod("never-seen", 11)),
    ]
    cycles.answers(page(7, pod("a", 1)), Lines(news))
    assert cycles.run() == ["a@1", "b@8", "a@9", Removed("ns", "b", "uid-b")]
    assert len(cycles.reflector.inventory) == 1


def test_a_bookmark_moves_the_version_on(cycles: Cycles) -> None:
    cycles.answers(page(7), Lines([bookmark(50)], then="cut"), END)
    cycles.run(2)
    assert [request.query.get("resourceVersion") for request in cycles.requests] == [None, "7", "50"]


def test_a_cut_watch_continues_at_its_version(cycles: Cycles) -> None:
    cycles.answers(page(7), Lines([event("ADDED", pod("a", 8))], then="cut"))
    cycles.answers(Lines([event("ADDED", pod("b", 9))], then="cut"))
    assert cycles.run(2) == ["a@8", "b@9"]
    assert cycles.requests[-1].query["resourceVersion"] == "8"
    assert cycles.reflector.relist_count == 0


@pytest.mark.parametrize("refusal", [Lines([bookmark(8), EXPIRED_EVENT]), status(410, "Expired")])
def test_a_version_too_old_is_followed_by_the_difference(cycles: Cycles, refusal: Reply | Lines) -> None:
    cycles.answers(page(7, pod("a", 1), pod("b", 2), pod("c", 3)), refusal)
    cycles.run()
    cycles.answers(page(20, pod("a", 1), pod("c", 15), pod("d", 16)), END)
    assert cycles.run() == ["c@15", "d@16", Removed("ns", "b", "uid-b")]
    assert cycles.reflector.relist_count == 1


def test_a_new_object_of_the_same_name_is_added_after_the_old_one_is_deleted(cycles: Cycles) -> None:
    cycles.answers(page(7, pod("a", 1, "old")), Lines([EXPIRED_EVENT]))
    cycles.run()
    cycles.answers(page(9, pod("a", 8, "new")), END)
    assert cycles.run() == [Removed("ns", "a", "old"), "a@8"]


def test_pages_that_expired_are_listed_again_from_the_first(cycles: Cycles) -> None:
    cycles.answers(page(7, pod("a", 1), following="t1"), status(410, "Expired"))
    assert cycles.run() == ["a@1"]
    assert not cycles.reflector.is_synced
    cycles.answers(page(9, pod("b", 8)), END)
    assert cycles.run() == ["b@8", Removed("ns", "a", "uid-a")]
    assert cycles.requests[2].query == {"limit": "50"}


def test_synced_means_that_every_page_was_delivered(cycles: Cycles) -> None:
    cycles.answers(page(7, following="t1"), status(500))
    cycles.run()
    assert not cycles.reflector.is_synced
    cycles.answers(page(7, following="t1"), page(7), END)
    cycles.run()
    assert cycles.reflector.is_synced


def test_a_malformed_object_is_skipped_counted_and_logged_once(cycles: Cycles) -> None:
    again = event("MODIFIED", pod("bad", 8, **BAD))
    cycles.answers(page(7, pod("a", 1), pod("bad", 2, **BAD), pod("b", 3)), Lines([again, bookmark(9)]))
    with capture_logs() as logs:
        assert cycles.run() == ["a@1", "b@3"]
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "an object cannot be read and is skipped"
    ]
    assert cycles.reflector.inventory.bad_count == 2
    assert cycles.reflector.inventory.faults == {
        ("ns", "bad"): "Expected `str`, got `int` - at `$.spec.nodeName`"
    }


def test_an_object_that_is_nested_too_deeply_costs_only_itself(started: Started) -> None:
    """Brackets and quotes in texts do not count. Decoders of newer Pythons read it, and refuse it then."""
    cycles = started(kind=AnyJob)
    text: dict[str, Any] = {"spec": {"text": '}]"\\'}}
    deep: dict[str, Any] = {"spec": {"more": "DEEP"}}
    listed = page(7, pod("a", 1, **text), pod("deep", 2, **deep), pod("b", 3, **text))
    cycles.answers(
        Reply(200, deepened(listed.body)),
        Lines([deepened(event("MODIFIED", pod("deep", 8, **deep))), event("ADDED", pod("c", 9))]),
        Lines([deepened(event("DELETED", pod("deep", 10, **deep))), bookmark(11)]),
    )
    assert cycles.run() == ["a@1", "b@3", "c@9"]
    inventory = cycles.reflector.inventory
    assert inventory.faults.keys() == {("ns", "deep")}
    assert "nested" in inventory.faults["ns", "deep"]
    assert inventory.bad_count == 2
    assert cycles.run() == []
    assert inventory.faults == {}
    assert cycles.reflector.relist_count == 0


def test_an_object_that_became_malformed_keeps_its_last_valid_state_until_its_deletion(
    cycles: Cycles,
) -> None:
    cycles.answers(page(7, pod("a", 1)), Lines([event("MODIFIED", pod("a", 8, **BAD)), EXPIRED_EVENT]))
    assert cycles.run() == ["a@1"]
    cycles.answers(page(9, pod("a", 8, **BAD)), Lines([event("DELETED", pod("a", 10, **BAD))]))
    assert cycles.run() == [Removed("ns", "a", "uid-a")]
    assert cycles.reflector.inventory.faults == {}


def test_a_malformed_object_that_was_corrected_is_forgotten(cycles: Cycles) -> None:
    cycles.answers(page(7, pod("a", 1, **BAD)), Lines([event("MODIFIED", pod("a", 8))]))
    assert cycles.run() == ["a@8"]
    assert cycles.reflector.inventory.faults == {}


def test_the_memory_for_malformed_objects_is_bounded(cycles: Cycles) -> None:
    cycles.answers(page(7, *(pod(f"p{n}", n, **BAD) for n in range(1, 300))), END)
    cycles.run()
    assert cycles.reflector.inventory.bad_count == 299
    assert len(cycles.reflector.inventory.faults) == 100


def test_a_sink_that_raises_gets_the_object_again(started: Started) -> None:
    cycles = started(sink=Listener("a"))
    cycles.answers(page(7, pod("a", 1), pod("b", 2)), Lines([EXPIRED_EVENT]))
    with capture_logs() as logs:
        assert cycles.run() == ["b@2"]
    assert cycles.reflector.inventory.bad_count == 1
    assert "ValueError: indigestible" in logs[0]["error"]
    assert [key[1] for key in cycles.reflector.inventory.faults] == ["a"]
    cycles.answers(page(8, pod("a", 1), pod("b", 2)), Lines([EXPIRED_EVENT]))
    with capture_logs() as logs:
        assert cycles.run() == []
    assert not [line for line in logs if "error" in line and "indigestible" in line["error"]]
    cycles.sink.poison.clear()
    cycles.answers(page(9, pod("a", 1), pod("b", 2)), END)
    assert cycles.run() == ["a@1"]
    assert not cycles.reflector.inventory.faults


def test_a_deletion_that_makes_the_sink_raise_is_passed_on_again(started: Started) -> None:
    cycles = started(sink=Listener())
    cycles.answers(page(7, pod("a", 1), pod("b", 2)), Lines([EXPIRED_EVENT]))
    cycles.run()
    cycles.sink.poison.add("a")
    cycles.answers(page(8, pod("b", 2)), Lines([EXPIRED_EVENT]))
    assert cycles.run() == []
    cycles.sink.poison.clear()
    cycles.answers(page(9, pod("b", 2)), END)
    assert [received.name for received in cycles.run() if isinstance(received, Removed)] == ["a"]


def test_an_object_that_the_sink_refuses_is_logged_once(started: Started) -> None:
    """A tenant's pod changes as often as the tenant likes."""
    cycles = started(sink=Listener("a"))
    changes = [event("MODIFIED", pod("a", version)) for version in range(8, 40)]
    cycles.answers(page(7, pod("a", 1)), Lines(changes))
    with capture_logs() as logs:
        cycles.run()
    assert cycles.reflector.inventory.bad_count == 33
    assert len(logs) == 1


def test_a_silent_half_open_watch_ends_and_causes_a_list(started: Started) -> None:
    cycles = started(max_silence=0.05)
    cycles.answers(page(7), Lines([], then="silence"), page(9))
    cycles.run(2)
    assert [request.query.get("watch") for request in cycles.requests] == [None, "1", None, "1"]


def test_a_watch_that_falls_silent_after_events_continues_at_its_version(started: Started) -> None:
    cycles = started(max_silence=1.0)  # the bookmark has to come before that, however busy the machine
    cycles.answers(page(7), Lines([bookmark(8)], then="silence"), END)
    cycles.run(2)
    assert cycles.requests[-1].query["resourceVersion"] == "8"


def test_garbage_on_the_watch_is_a_fault_of_the_connection(cycles: Cycles) -> None:
    cycles.answers(page(7), Lines([bookmark(8), b'{"type": "ADD']))
    cycles.answers(Lines([event("ADDED", pod("a", 9))]))
    assert cycles.run(2) == ["a@9"]
    assert cycles.requests[-1].query["resourceVersion"] == "8"


def test_pauses_double_up_to_a_limit_and_start_again_after_an_event(cycles: Cycles) -> None:
    cycles.answers(*[status(500)] * 8)
    cycles.run(8)
    assert cycles.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    cycles.answers(page(7), END, status(503))
    cycles.run(2)
    assert cycles.pauses[8:] == [0.5, 1.0]


def test_a_watch_that_ends_at_once_is_not_opened_again_at_once(cycles: Cycles) -> None:
    cycles.answers(page(7), Lines([]), page(7), Lines([]), page(7), Lines([]))
    cycles.run(3)
    assert cycles.pauses == [0.5, 1, 2]
    assert [request.query.get("watch") for request in cycles.requests] == [None, "1"] * 3


def test_a_forbidden_watch_does_not_list_in_a_hot_loop(cycles: Cycles) -> None:
    cycles.answers(page(7), status(403), page(7), status(403))
    cycles.run(2)
    assert cycles.pauses == [0.5, 1]


def test_a_watch_that_had_events_is_opened_again_without_a_pause(cycles: Cycles) -> None:

    def five_minutes_of_news() -> Any:
        cycles.now += 300
        yield bookmark(8)

    cycles.answers(page(7), Lines(five_minutes_of_news()), END)
    cycles.run(2)
    assert cycles.pauses == [0.5]


def test_a_server_that_sends_retry_after_is_not_asked_for_a_list(cycles: Cycles) -> None:
    cycles.answers(page(7), status(429), status(503), END)
    cycles.run(3)
    assert [request.query.get("resourceVersion") for request in cycles.requests] == [None, "7", "7", "7"]


FAULT = event("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"})


@pytest.mark.parametrize("answer", [Lines([FAULT]), status(503)], ids=["as an event", "at once"])
def test_a_watch_with_only_server_errors_is_replaced_by_a_list(cycles: Cycles, answer: Lines | Reply) -> None:
    cycles.answers(page(7), answer, answer, answer, page(9, pod("a", 8)), END)
    assert cycles.run(4) == ["a@8"]
    assert [request.query.get("watch") for request in cycles.requests] == [None, "1", "1", "1", None, "1"]


def test_server_errors_between_events_do_not_cause_a_list(cycles: Cycles) -> None:
    cycles.answers(page(7))
    for version in range(8, 13):
        cycles.answers(Lines([FAULT]), Lines([FAULT]), Lines([bookmark(version)]))
    cycles.run(15)
    assert [request.query.get("watch") for request in cycles.requests] == [None, *["1"] * 15]


def test_a_resource_that_does_not_exist_yet_is_waited_for_quietly(cycles: Cycles) -> None:
    cycles.answers(status(404), status(404), page(7, pod("a", 1)), END)
    with capture_logs() as logs:
        cycles.run(2)
        assert cycles.reflector.is_absent
        assert not cycles.reflector.is_synced
        assert cycles.run() == ["a@1"]
    assert len(logs) == 1
    assert not cycles.reflector.is_absent


@pytest.mark.parametrize(("removable", "gone"), [(True, [Removed("ns", "a", "uid-a")]), (False, [])])
def test_objects_of_a_kind_that_is_no_longer_served_are_dropped(
    started: Started, removable: bool, gone: Received
) -> None:
    """The events of their end may have been missed. A kind that Muster cannot be without stays."""
    cycles = started(is_removable=removable)
    cycles.answers(page(7, pod("a", 1)), status(404), *[status(404)] * 3)
    assert cycles.run() == ["a@1"]
    assert cycles.run(2) == [], "a short absence is no removal"
    assert cycles.run() == gone
    cycles.answers(page(9, pod("b", 8)), END)
    assert set(cycles.run()) >= {"b@8"}


def test_last_heard_is_the_time_of_the_last_sign_of_life(cycles: Cycles) -> None:
    assert cycles.reflector.last_contact_at is None
    cycles.answers(status(500))
    cycles.run()
    assert cycles.reflector.last_contact_at is None
    cycles.now = 42
    cycles.answers(page(7), Lines([]))
    cycles.run()
    assert cycles.reflector.last_contact_at == 42


def test_a_stuck_thread_is_reported(started: Started) -> None:
    """Report a thread that waits, as for a thread that could not start; an absent API server is no reason."""
    taken, resumed = threading.Event(), threading.Event()

    class Slow(Listener):
        def upsert(self, obj: Pod) -> None:
            taken.set()
            assert resumed.wait(60)

    cycles = started(sink=Slow())
    assert cycles.reflector.why_stuck() is None, "it has not been started"
    cycles.answers(status(500))
    cycles.run()
    cycles.now = 8
    cycles.answers(page(7, pod("a", 1)), Lines([]))
    thread = threading.Thread(target=cycles.run)
    thread.start()
    assert taken.wait(60)
    cycles.now = 18
    assert cycles.reflector.why_stuck() is None, "twice its patience"
    cycles.now = 19
    assert cycles.reflector.why_stuck() == "pods: reading them has been stuck for 11 s"
    resumed.set()
    thread.join()
    cycles.answers(status(500))
    cycles.run()
    assert cycles.reflector.why_stuck() is None


def test_a_list_that_comes_slowly_is_not_stuck(cycles: Cycles) -> None:
    reported: list[str | None] = []

    def slowly() -> Iterator[bytes]:
        for piece in (b"", b"", page(7, pod("a", 1)).body):
            cycles.now += 9
            yield piece
            wait_for(lambda: cycles.reflector._last_step_at == cycles.now, what="the piece is read")
            reported.append(cycles.reflector.why_stuck())

    cycles.answers(Lines(slowly()), END)
    assert cycles.run() == ["a@1"]
    assert reported == [None] * 3


def test_the_thread_delivers_and_stops_out_of_a_silent_watch(server: Server, connection: Connection) -> None:
    sink = Listener()
    reflector = Reflector(connection, PODS, Pod, sink)
    server.answers(page(7, pod("a", 1)), Lines([event("ADDED", pod("b", 8))], then="silence"))
    reflector.start()
    with sink.changed:
        assert sink.changed.wait_for(lambda: sink.received == ["a@1", "b@8"], timeout=10)
    with capture_logs() as logs:
        reflector.stop()
    assert not any(thread.name == "reflect-pods" for thread in threading.enumerate())
    assert logs == []


def test_a_reflector_that_pauses_stops_at_once(server: Server, connection: Connection) -> None:
    pausing = threading.Event()

    class Long(Backoff):
        def delay(self) -> float:
            pausing.set()
            return 3600

    reflector = Reflector(connection, PODS, Pod, Listener(), backoff=Long())
    server.answers(status(500))
    reflector.start()
    assert pausing.wait(10)
    reflector.stop()
    assert not any(thread.name == "reflect-pods" for thread in threading.enumerate())
