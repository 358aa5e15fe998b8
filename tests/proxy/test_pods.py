"""List and watch of pods through the proxy, before a scripted API server."""

import json
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any
from unittest.mock import ANY

import pytest

from extender.domain.model.versioned_pod_watch import Appearance
from extender.proxy import pods as sending
from tests.e2e.harness.waiting import wait_for
from tests.proxy.conftest import SECRET, Start
from tests.proxy.pod_forms import PROTOBUF
from tests.proxy.raw import CHUNKED, RawConnection, RawServer, chunk, dial
from tests.proxy.releases import DrivenAppearances
from tests.proxy.sample_pods import INITIAL_EVENTS_END, Json, bookmark, pod, without_kind

HEAD_END = b"\r\n\r\n"
SELECTOR = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
N1, N2 = Appearance("n1"), Appearance("n2")


def line(type_: str, obj: Json) -> bytes:
    return json.dumps({"type": type_, "object": obj}, separators=(",", ":")).encode() + b"\n"


def answer(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def pod_list(version: str, *pods: Json, more: str = "") -> bytes:
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    items = [without_kind(each) for each in pods]
    return answer(
        json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).encode()
    )


class Client:
    """A scheduler's connection to the proxy."""

    def __init__(self, port: int) -> None:
        self.connection = dial(port)
        self._read = b""

    def ask(self, query: str, path: str = "/api/v1/pods", accept: str = "application/json") -> None:
        head = f"GET /{SECRET}{path}?{query} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
        self.connection.send(head.encode())

    def head(self) -> bytes:
        return self.connection.read_until(HEAD_END)

    def piece(self) -> bytes:
        """Return one write of the proxy; empty at the end."""
        size = int(self.connection.read_until(b"\r\n"), 16)
        data = self.connection.read(size)
        assert self.connection.read(2) == b"\r\n"
        return data

    def events(self, number: int) -> list[tuple[str, Json]]:
        while self._read.count(b"\n") < number:
            self._read += self.piece()
        *lines, self._read = self._read.split(b"\n", number)
        return [(event["type"], event["object"]) for event in map(json.loads, lines)]

    def body(self) -> Any:
        data = b""
        while piece := self.piece():
            data += piece
        return json.loads(data)


class Stage:
    """A view with one watch through it, and what is behind."""

    def __init__(self, raw: RawServer, start: Start) -> None:
        self.raw = raw
        self.released = DrivenAppearances()
        self.bench = start(raw.url, handlers=self.released.handlers)
        self.clients: list[Client] = []

    def client(self) -> Client:
        client = Client(self.bench.port)
        self.clients.append(client)
        return client

    def watch(self, query: str = "resourceVersion=1000", known: bool = True) -> tuple[RawConnection, Client]:
        """Open a watch. `known`: no pods were unbound when this process began."""
        client = self.client()
        client.ask(f"watch=true&fieldSelector={SELECTOR}&{query}")
        upstream = self.raw.accept(HEAD_END)
        upstream.send(CHUNKED)
        if known:
            self.answer_list(pod_list("1000"))
            assert b"200 OK" in client.head()
        return upstream, client

    def answer_list(self, *pages: bytes) -> list[str]:
        """Return the requests that were made for the list."""
        upstream = self.raw.accept()
        asked = []
        for page in pages:
            asked.append(upstream.read_until(HEAD_END).split(b" ")[1].decode())
            upstream.send(page)
        return asked


@pytest.fixture
def stage(raw: RawServer, start: Start) -> Iterator[Stage]:
    stage = Stage(raw, start)
    yield stage
    for client in stage.clients:
        client.connection.close()


def facts(event: tuple[str, Json]) -> tuple[str, str, str, str]:
    type_, obj = event
    status = obj.get("status", {})
    meta = obj["metadata"]
    return type_, meta.get("name", ""), meta["resourceVersion"], status.get("nominatedNodeName", "")


def test_a_pod_appears_when_it_may_start_and_disappears_again(stage: Stage) -> None:
    upstream, client = stage.watch()
    upstream.send(chunk(line("ADDED", pod("a", "1001")) + line("ADDED", pod("b", "1002"))))
    upstream.send(chunk(line("ADDED", pod("c", "1003", node="n3"))))
    assert facts(client.events(1)[0]) == ("ADDED", "c", "1003", "")
    stage.released.change(("a", N1), ("b", N2))
    gang = client.piece()
    assert gang.count(b"\n") == 2, "a gang is one write"
    events = [json.loads(each) for each in gang.splitlines()]
    assert [facts((event["type"], event["object"])) for event in events] == [
        ("ADDED", "a", "1003", "n1"),
        ("ADDED", "b", "1003", "n2"),
    ]
    assert events[0]["object"]["spec"] == pod("a", "1001")["spec"]
    stage.released.change(("a", None), ("b", None))
    assert [facts(event)[:3] for event in client.events(2)] == [
        ("DELETED", "a", "1003"),
        ("DELETED", "b", "1003"),
    ]


def test_the_debug_page_says_how_many_are_shown_and_when_the_last_event_came(stage: Stage) -> None:
    upstream, client = stage.watch()
    upstream.send(chunk(line("ADDED", pod("a", "1001")) + line("ADDED", pod("b", "1002"))))
    upstream.send(chunk(line("ADDED", pod("c", "1003", node="n3"))))
    client.events(1)
    stage.released.change(("a", N1))
    client.events(1)
    (reader,) = stage.released.pods.debug_state()
    assert (reader["shown"], reader["hidden"], reader["version"]) == (1, 1, 1003)
    assert reader["watches"] == [{"seconds": ANY, "secondsSinceEvent": ANY}]
    (open_one,) = stage.released.pods.readers()
    before = open_one.open_time - open_one.silent_time
    assert before >= 0, "an event came after it was opened"
    upstream.send(chunk(line("ADDED", pod("d", "1004", node="n3"))))
    client.events(1)
    (open_one,) = stage.released.pods.readers()
    assert open_one.open_time - open_one.silent_time > before
    client.connection.close()
    wait_for(lambda: stage.released.pods.readers() == [], what="no reader")


def test_no_event_is_added_before_the_initial_events_have_ended(stage: Stage) -> None:
    upstream, client = stage.watch("sendInitialEvents=true&resourceVersion=", known=False)
    client.head()
    upstream.send(chunk(line("ADDED", pod("a", "1001")) + line("ADDED", pod("s", "1000", node="n3"))))
    assert facts(client.events(1)[0])[1] == "s"
    stage.released.change(("a", N1))
    upstream.send(chunk(line("ADDED", pod("t", "1002", node="n3"))))
    assert facts(client.events(1)[0])[1] == "t"
    upstream.send(chunk(line("BOOKMARK", bookmark("1005", INITIAL_EVENTS_END))))
    end, shown = client.events(2)
    assert facts(end)[0] == "BOOKMARK"
    assert facts(shown) == ("ADDED", "a", "1005", "n1")
    assert stage.released.fresh_starts == 1


def test_a_page_has_few_large_pods(stage: Stage) -> None:
    stage.watch(known=False)
    large = pod("a", "990", record="x" * 4 * 2**20)
    asked = stage.answer_list(pod_list("1001", large, more="next"), pod_list("1001", pod("b", "995")))
    assert asked[1].endswith("&continue=next&limit=3")


def test_a_new_process_sends_the_difference_to_a_resumed_watch(stage: Stage) -> None:
    stage.released.change(("a", N1))
    _, client = stage.watch(known=False)
    asked = stage.answer_list(
        pod_list("1001", pod("a", "990"), pod("b", "991"), more="next"), pod_list("1001", pod("c", "995"))
    )
    assert asked[0] == f"/api/v1/pods?fieldSelector={SELECTOR}%2Cspec.nodeName%3D&limit=50"
    assert asked[1].endswith("&continue=next&limit=500")
    client.head()
    assert [facts(event)[:3] for event in client.events(4)] == [
        ("DELETED", "a", "1000"),
        ("ADDED", "a", "1000"),
        ("DELETED", "b", "1000"),
        ("DELETED", "c", "1000"),
    ]


def test_a_resumed_watch_gets_only_the_missed_events(stage: Stage) -> None:
    upstream, client = stage.watch()
    upstream.send(chunk(line("ADDED", pod("a", "1001")) + line("ADDED", pod("b", "1002"))))
    upstream.send(chunk(line("BOOKMARK", bookmark("1003"))))
    client.events(1)
    stage.released.change(("a", N1))
    client.events(1)
    upstream.send(chunk(line("BOOKMARK", bookmark("1004"))))
    client.events(1)
    client.connection.close()
    upstream.read_to_end()
    stage.released.change(("b", N2))
    again = stage.client()
    again.ask(f"watch=true&fieldSelector={SELECTOR}&resourceVersion=1004")
    resumed = stage.raw.accept(HEAD_END)
    resumed.send(CHUNKED + chunk(line("BOOKMARK", bookmark("1005"))))
    again.head()
    assert [facts(event)[:3] for event in again.events(2)] == [
        ("ADDED", "b", "1004"),
        ("BOOKMARK", "", "1005"),
    ]


def test_a_second_watch_ends_the_first(stage: Stage) -> None:
    upstream, client = stage.watch()
    other = stage.client()
    other.ask(f"watch=true&fieldSelector={SELECTOR}&resourceVersion=1000")
    second = stage.raw.accept(HEAD_END)
    second.send(CHUNKED)
    other.head()
    assert client.connection.read_to_end() == b""
    assert upstream.read_to_end() == b""


def test_wherever_the_bytes_are_cut_events_are_whole(stage: Stage) -> None:
    """Keep events whole where the API server's connection ends, too: the client sees that data is missing."""
    stage.released.change(("a", N1))
    data = (
        line("ADDED", pod("a", "1001"))
        + line("ADDED", pod("h", "1002"))
        + line("ADDED", pod("s", "1003", "n3"))
    )
    for cut in range(1, len(data), 7):
        upstream, client = stage.watch("sendInitialEvents=true", known=False)
        client.head()
        upstream.send(chunk(data[:cut]) + chunk(data[cut:]))
        assert [facts(event)[1] for event in client.events(2)] == ["a", "s"]
        upstream.send(chunk(data[:cut]))
        upstream.close()
        assert not client.connection.read_to_end().endswith(b"0\r\n\r\n")


def test_pods_in_protobuf_are_edited_as_well(stage: Stage) -> None:
    stage.released.change(("a", N1))
    form = "application/vnd.kubernetes.protobuf"
    client = stage.client()
    client.ask("watch=1&sendInitialEvents=true", accept=f"{form},application/json")
    upstream = stage.raw.accept(HEAD_END)
    upstream.send(CHUNKED.replace(b"application/json", f"{form};stream=watch".encode()))
    hidden = PROTOBUF.frame("ADDED", pod("b", "1002"))
    upstream.send(chunk(hidden + PROTOBUF.frame("ADDED", pod("a", "1001"))))
    assert f"{form};stream=watch".encode() in client.head()
    assert facts(PROTOBUF.read(client.piece())) == ("ADDED", "a", "1001", "n1")


def test_an_unknown_media_type_is_passed_on(stage: Stage) -> None:
    client = stage.client()
    client.ask("watch=1&resourceVersion=7", accept="application/cbor")
    upstream = stage.raw.accept(HEAD_END)
    upstream.send(CHUNKED.replace(b"application/json", b"application/cbor-seq") + chunk(b"whatever"))
    client.head()
    assert client.piece() == b"whatever"


def test_a_pod_that_cannot_be_read_is_shown_as_it_is(stage: Stage) -> None:
    upstream, client = stage.watch()
    odd = {"kind": "Pod", "metadata": {"resourceVersion": "1001"}, "spec": {"schedulerName": ["kube-muster"]}}
    upstream.send(chunk(line("ADDED", odd)))
    assert client.events(1) == [("ADDED", odd)]


def test_without_an_api_server_a_watch_is_429(stage: Stage) -> None:
    """Answer 429, so that the client keeps its version."""
    stage.raw.close()
    client = stage.client()
    client.ask("watch=1&resourceVersion=7")
    head = client.head()
    assert b" 429 " in head
    assert b"Retry-After: 1" in head


def test_a_watch_whose_pods_cannot_be_read_first_is_429(stage: Stage) -> None:
    """A new process has to know them before it can go on."""
    _, client = stage.watch(known=False)
    stage.answer_list(answer(b"{}", "500 Internal Server Error"))
    assert b" 429 " in client.head()


def test_errors_are_passed_on(stage: Stage) -> None:
    upstream, client = stage.watch()
    expired = {"kind": "Status", "code": 410, "reason": "Expired"}
    upstream.send(chunk(line("ERROR", expired)) + b"0\r\n\r\n")
    assert client.events(1) == [("ERROR", expired)]
    assert client.piece() == b""
    client.ask("watch=true&resourceVersion=1")
    upstream.read_until(HEAD_END)
    upstream.send(answer(json.dumps(expired).encode(), "410 Gone"))
    assert b"410 Gone" in client.head()


def test_unreadable_bytes_end_the_watch(stage: Stage) -> None:
    upstream, client = stage.watch()
    upstream.send(chunk(b"this is no event\n"))
    assert not client.connection.read_to_end().endswith(b"0\r\n\r\n")


def test_a_client_that_does_not_read_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MAX_UNSENT", 3)
    upstream, client = stage.watch()
    names = [f"p{number}" for number in range(8)]
    pods = [pod(name, str(1001 + number)) for number, name in enumerate(names)]
    upstream.send(chunk(b"".join(line("ADDED", each) for each in pods)))
    upstream.send(chunk(line("BOOKMARK", bookmark("1010"))))
    client.events(1)
    stage.released.change(*((name, N1) for name in names))
    assert upstream.read_to_end() == b""


def test_a_list_has_all_pods_but_hidden_ones(stage: Stage) -> None:
    stage.released.change(("a", N1))
    client = stage.client()
    client.ask(f"limit=500&resourceVersion=0&fieldSelector={SELECTOR}")
    pages = (
        pod_list("1000", pod("a", "990"), pod("b", "991"), more="next"),
        pod_list("1000", pod("s", "992", "n3")),
    )
    asked = stage.answer_list(*pages)
    assert asked[0] == f"/api/v1/pods?fieldSelector={SELECTOR}&limit=50"
    assert b"Content-Length" not in client.head()
    body = client.body()
    assert body["metadata"] == {"resourceVersion": "1000"}
    names = [(each["metadata"]["name"], each["status"].get("nominatedNodeName")) for each in body["items"]]
    assert names == [("a", "n1"), ("s", None)]
    assert stage.released.fresh_starts == 1
    stage.released.change(("b", N2))
    client.ask(f"watch=true&fieldSelector={SELECTOR}&resourceVersion=1000")
    upstream = stage.raw.accept(HEAD_END)
    upstream.send(CHUNKED)
    client.head()
    assert [facts(event) for event in client.events(2)] == [
        ("ADDED", "a", "1000", "n1"),
        ("ADDED", "b", "1000", "n2"),
    ]


@pytest.mark.parametrize("query", ["limit=500", "watch=true"])
def test_a_body_that_is_not_read_is_not_announced(stage: Stage, query: str) -> None:
    """The API server would take the next request on that connection for it."""
    client = stage.client()
    head = f"GET /{SECRET}/api/v1/pods?{query} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    client.connection.send(head.encode())
    upstream = stage.raw.accept()
    asked = upstream.read_until(HEAD_END).lower()
    assert b"content-length" not in asked
    upstream.send(answer(b"{}", "404 Not Found"))
    assert b"404" in client.head()


def test_a_list_whose_second_page_fails_is_cut_off(stage: Stage) -> None:
    client = stage.client()
    client.ask("")
    stage.answer_list(pod_list("1000", pod("s", "990", "n3"), more="next"), answer(b"{}", "410 Gone"))
    client.head()
    assert not client.connection.read_to_end().endswith(b"0\r\n\r\n")


def test_a_list_is_not_continued(stage: Stage) -> None:
    client = stage.client()
    client.ask("continue=x")
    assert b"400 Bad Request" in client.head()


@pytest.mark.parametrize("form", ["Table", "PartialObjectMetadata"])
def test_other_representations_of_pods_are_passed_on(stage: Stage, form: str) -> None:
    client = stage.client()
    client.ask("limit=500", accept=f"application/json;as={form};v=v1;g=meta.k8s.io,application/json")
    stage.answer_list(answer(b'{"kind":"Table"}'))
    assert b"Content-Length: 16" in client.head()


Patch = Callable[[str, Json | bytes], tuple[int, bytes]]


@pytest.fixture
def patch(stage: Stage) -> Patch:
    def sent(name: str, body: Json | bytes) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        client = stage.bench.client()
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        client.request("PATCH", f"/{SECRET}/api/v1/namespaces/team-a/pods/{name}/status", data, headers)
        got = client.getresponse()
        return got.status, got.read()

    return sent


def condition(reason: str, message: str) -> Json:
    refused = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}], "conditions": [refused]}}


def test_status_patches_of_our_pods_are_not_passed_on(stage: Stage, patch: Patch) -> None:
    stage.released.ours["team-a/a"] = "uid-of-a"  # type: ignore[assignment]
    status, body = patch("a", condition("Unschedulable", "0/3 nodes are available"))
    assert (status, json.loads(body)["metadata"]["name"]) == (200, "a")
    patch("a", condition("SchedulerError", "refused"))
    patch("a", {"status": {"nominatedNodeName": None, "padding": "x" * 100_000}})
    assert stage.released.refusals == [("a", "0/3 nodes are available"), ("a", ""), ("a", "")]


def test_a_refusal_is_read_from_a_patch_without_the_known_reason(stage: Stage, patch: Patch) -> None:
    """A merge patch leaves out what the scheduler's copy of the pod has: Muster had said Unschedulable."""
    stage.released.ours["team-a/a"] = "uid-of-a"  # type: ignore[assignment]
    patch("a", {"status": {"conditions": [{"type": "PodScheduled", "message": "0/3 nodes are available"}]}})
    assert stage.released.refusals == [("a", "0/3 nodes are available")]


NODE_FOUND: Json = {"status": {"nominatedNodeName": "n1"}}
CLAIM_MADE: Json = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "made"}}}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("b", condition("Unschedulable", "x")),
        ("a", b"no patch at all"),
        ("a", NODE_FOUND),
        ("a", CLAIM_MADE),
    ],
)
def test_other_status_patches_are_passed_on(
    stage: Stage, patch: Patch, name: str, body: Json | bytes
) -> None:
    """Pass on patches of foreign pods, patches for the API server alone, and those that end no attempt."""
    stage.released.ours["team-a/a"] = "uid-of-a"  # type: ignore[assignment]
    sent: list[bytes] = []

    def serve() -> None:
        upstream = stage.raw.accept()
        sent.append(upstream.read_until(HEAD_END))
        upstream.send(answer(b"{}", "404 Not Found"))

    serving = Thread(target=serve)
    serving.start()
    assert patch(name, body)[0] == 404
    serving.join()
    assert sent[0].startswith(b"PATCH /api/v1/namespaces/team-a/pods/%b/status" % name.encode())
    assert not stage.released.refusals


def test_a_patch_that_is_too_large_is_413(stage: Stage, patch: Patch) -> None:
    stage.released.ours["team-a/a"] = "uid-of-a"  # type: ignore[assignment]
    path = f"/{SECRET}/api/v1/namespaces/team-a/pods/a/status"
    head = f"PATCH {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {17 << 20}\r\n\r\n".encode()
    assert b" 413 " in stage.bench.dial(head).read_until(HEAD_END)
    assert not stage.released.refusals
