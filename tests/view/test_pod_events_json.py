"""Pods in JSON: what is read of them, and that nothing but the three edits changes."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.view.appearance import AS_IT_IS, Appearance, PodFacts
from extender.domain.view.events import PodEvent, UnwritablePod
from extender.view.pod_events.codec import LONGEST_FRAME, BrokenPods
from extender.view.pod_events.json import JsonPods
from tests.view.sample_pods import Json, expected, pod, without_kind

CODEC = JsonPods()
SEEN = PodFacts("uid-of-train-1", "team-a", "train-1", "kube-muster", "", 1001)  # type: ignore[arg-type]
BOOKMARK = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "resourceVersion": "77",
        "creationTimestamp": None,
        "annotations": {"k8s.io/initial-events-end": "true"},
    },
    "spec": {"containers": None},
    "status": {},
}


def line(type_: str, obj: Any) -> bytes:
    return json.dumps({"type": type_, "object": obj}, separators=(",", ":")).encode() + b"\n"


def events(data: bytes) -> list[PodEvent]:
    return CODEC.events().feed(data)


def only(data: bytes) -> PodEvent:
    (event,) = events(data)
    return event


def shown(obj: Json, version: int = 5000, appearance: Appearance = AS_IT_IS) -> Json:
    """The object of the frame that is written for a pod of a watch."""
    frame = CODEC.write("MODIFIED", only(line("ADDED", obj)).pod, version, appearance)
    assert frame.endswith(b"}\n")
    assert frame.count(b"\n") == 1
    event: Json = json.loads(frame)
    assert event["type"] == "MODIFIED"
    found: Json = event["object"]
    return found


def test_the_facts_of_a_pod() -> None:
    event = only(line("ADDED", pod()))
    assert (event.type, event.version, event.facts, event.ends_initial) == ("ADDED", 1001, SEEN, False)
    assert event.frame == line("ADDED", pod())
    bound = only(line("MODIFIED", pod(node="n-1"))).facts
    assert bound is not None
    assert bound.node == "n-1"


def test_bookmarks_and_errors() -> None:
    end = only(line("BOOKMARK", BOOKMARK))
    assert (end.version, end.facts, end.ends_initial, end.unreadable) == (77, None, True, False)
    plain = {**BOOKMARK, "metadata": {"resourceVersion": "78"}}
    assert only(line("BOOKMARK", plain))[:4] == ("BOOKMARK", 78, None, False)
    gone = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": 410, "reason": "Expired"}
    error = only(line("ERROR", gone))
    assert (error[:4], error.unreadable) == (("ERROR", 0, None, False), False)


@pytest.mark.parametrize(
    ("change", "version"),
    [
        ({"metadata": {"resourceVersion": "9"}}, 9),
        ({"metadata": {"uid": "u", "resourceVersion": "nine"}}, 0),
        ({"metadata": {"uid": "u", "resourceVersion": "-9"}}, 0),
        ({"metadata": {"uid": "u", "resourceVersion": "٩"}}, 0),
        ({"metadata": {"uid": "u", "resourceVersion": "9" * 5000}}, 0),
        ({"metadata": {"uid": "u", "resourceVersion": 9}}, 0),
        ({"metadata": {"uid": 5, "resourceVersion": "9"}}, 0),
        ({"metadata": None}, 0),
        ({"metadata": []}, 0),
        ({"spec": "text"}, 1001),
        ({"spec": {"nodeName": ["n"]}}, 1001),
        ({"spec": {"initContainers": {"name": "x"}}}, 1001),
        ({"status": 7}, 1001),
    ],
)
def test_a_pod_that_cannot_be_read_is_passed_on(change: Json, version: int) -> None:
    frame = line("ADDED", {**pod(), **change})
    event = only(frame)
    assert (event.facts, event.unreadable, event.version, event.frame) == (None, True, version, frame)


@pytest.mark.parametrize("inside", [b'"metadata":', b'{"a":' * 5000 + b"1" + b"}" * 5000, b'"\xff":\xff,'])
def test_bytes_that_are_no_json_cost_one_event_only(inside: bytes) -> None:
    bad = b'{"type":"ADDED","object":{' + inside + b"}}\n"
    broken, good = events(bad + line("ADDED", pod()))
    assert (broken.unreadable, broken.frame) == (True, bad)
    assert good.facts == SEEN


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", "503 Service Unavailable", '{"type":"ADDED"}', '{"type']
)
def test_what_is_no_event_ends_the_stream(text: str) -> None:
    with pytest.raises(BrokenPods):
        events(text.encode() + b"\n")


def test_a_line_without_end_is_an_error_before_it_is_memory() -> None:
    stream, piece = CODEC.events(), b"x" * (1 << 20)
    for _ in range(LONGEST_FRAME >> 20):
        assert stream.feed(piece) == []
    with pytest.raises(BrokenPods, match="longer than"):
        stream.feed(b"x")


def test_an_event_of_the_largest_pod_is_read() -> None:
    large = pod(**{f"label-{number}": "<" * 60 for number in range(20_000)})
    assert only(line("ADDED", large)).facts == SEEN
    assert shown(large, 5, Appearance("n-1")) == expected(large, 5, "n-1")


def test_json_in_another_form_is_read() -> None:
    odd = b'  {"object": ' + json.dumps(pod()).encode() + b', "type": "ADDED" }\r\n\n \n'
    assert only(odd).facts == SEEN


@pytest.mark.parametrize(
    ("appearance", "edits"),
    [
        (AS_IT_IS, {}),
        (Appearance("node-7"), {"node": "node-7"}),
        (Appearance(asks=True), {"asks": True}),
        (Appearance("node-7", asks=True), {"node": "node-7", "asks": True}),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"status": {}},
        {"status": {"nominatedNodeName": "elsewhere", "phase": "Pending"}},
        {"spec": {"schedulerName": "kube-muster", "containers": [], "initContainers": None}},
        {"spec": {"initContainers": [{"name": "first"}, {"name": "second"}], "nodeSelector": {"a": "b"}}},
        {"unknown": {"kept": [1, 2.5, None, "☃"]}},
    ],
)
def test_only_the_three_edits_change_a_pod(appearance: Appearance, edits: Json, change: Json) -> None:
    before = {**pod(), **change}
    assert shown(before, 5000, appearance) == expected(before, 5000, **edits)


def test_parts_that_are_missing_are_made() -> None:
    bare = {key: value for key, value in pod().items() if key not in ("spec", "status")}
    assert shown(bare, 9, Appearance("n", asks=True)) == expected(bare, 9, "n", asks=True)


def test_a_deleted_pod_has_its_names_and_the_version_of_the_stream() -> None:
    frame = CODEC.deleted(SEEN, 6000)
    event = only(frame)
    assert (event.type, event.facts) == ("DELETED", SEEN._replace(version=6000))
    assert json.loads(frame)["object"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "train-1",
            "namespace": "team-a",
            "uid": "uid-of-train-1",
            "resourceVersion": "6000",
        },
        "spec": {"containers": [], "schedulerName": "kube-muster"},
        "status": {},
    }


def listed(*pods: Any, **metadata: Any) -> bytes:
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods}
    return json.dumps(body).encode()


def test_a_page_of_a_list() -> None:
    page = CODEC.page(
        listed(without_kind(pod()), {"metadata": 7}, resourceVersion="900", **{"continue": "c"})
    )
    assert (page.version, page.more) == (900, "c")
    assert [item.facts for item in page.pods] == [SEEN, None]
    assert json.loads(page.metadata) == {"resourceVersion": "900", "continue": "c"}
    assert CODEC.page(b'{"kind":"PodList","metadata":{},"items":null}').pods == []


def test_a_pod_out_of_a_list_is_written_with_its_kind() -> None:
    item = CODEC.page(listed(without_kind(pod()))).pods[0].pod
    frame = json.loads(CODEC.write("ADDED", item, 1200, Appearance("n-1")))
    assert frame == {"type": "ADDED", "object": expected(pod(), 1200, "n-1")}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"busy"),
        b'{"kind":"PodList","items":[]}',
        b'{"kind":"Table","metadata":{},"rows":[]}',
        b'{"kind":"PodList","metadata":{},"items":{}}',
        b'{"kind":"PodList","metadata":{},"items":[{]}',
    ],
)
def test_what_is_no_list_of_pods(body: bytes) -> None:
    with pytest.raises(BrokenPods):
        CODEC.page(body)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_is_written_piece_by_piece(count: int) -> None:
    items = [without_kind(pod(f"p-{number}")) for number in range(count)]
    page = CODEC.page(listed(*items, resourceVersion="900", remainingItemCount=5, **{"continue": "c"}))
    for metadata, told in [
        (page.metadata, {"resourceVersion": "900", "remainingItemCount": 5, "continue": "c"}),
        (CODEC.list_metadata(page.version), {"resourceVersion": "900"}),
    ]:
        writer = CODEC.list_writer(metadata)
        pieces = [writer.start(), *(writer.item(item.pod, AS_IT_IS) for item in page.pods), writer.end()]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": told, "items": items}
        assert json.loads(b"".join(pieces)) == body


def test_a_pod_of_a_list_keeps_its_own_version() -> None:
    item = CODEC.page(listed(without_kind(pod()))).pods[0].pod
    writer = CODEC.list_writer(b"{}")
    body = json.loads(writer.start() + writer.item(item, Appearance("n-1", asks=True)) + writer.end())
    assert body["items"] == [expected(pod(), node="n-1", asks=True)]


def test_a_pod_that_cannot_be_changed_says_so() -> None:
    twisted = only(line("ADDED", pod()).replace(b'"status":{', b'"status":{"\xff":1,'))
    assert twisted.facts == SEEN
    with pytest.raises(UnwritablePod):
        CODEC.write("ADDED", twisted.pod, 5, Appearance("n-1"))


@given(st.data())
def test_wherever_the_bytes_are_cut_the_events_are_the_same(data: st.DataObject) -> None:
    stream = line("ADDED", pod()) + line("BOOKMARK", BOOKMARK) + b"\n" + line("ADDED", {"metadata": 7})
    stream += line("MODIFIED", pod("☃", node="n")) + line("ERROR", {}) + b'{"type":"ADDED","obj'
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    splitter = CODEC.events()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = [event for piece in pieces for event in splitter.feed(piece)]
    assert found == events(stream)
    assert len(found) == 5


TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(["resourceVersion", "nodeName", "uid", "metadata", "type", "object", "annotations"])
STRANGE = st.dictionaries(TEXTS | FIELDS, VALUES, max_size=5)


@given(
    strange=STRANGE,
    names=st.dictionaries(TEXTS | FIELDS, TEXTS, max_size=5),
    node=TEXTS,
    asks=st.booleans(),
    version=st.integers(1, 2**63),
)
def test_any_pod_is_the_same_but_for_the_edits(
    strange: Json, names: Json, node: str, asks: bool, version: int
) -> None:
    obj = {**strange, **pod()}
    obj["metadata"] = {**strange, **obj["metadata"], "annotations": names}
    obj["spec"] = {**obj["spec"], "nodeSelector": names, "containers": [strange]}
    event = only(line("ADDED", obj))
    assert event.facts == SEEN
    assert shown(obj, version, Appearance(node, asks)) == expected(obj, version, node, asks)


@given(st.binary(max_size=200) | STRANGE.map(lambda obj: json.dumps(obj).encode()))
def test_hostile_bytes_raise_the_declared_errors_alone(data: bytes) -> None:
    for body in (data, data + b"\n", b'{"type":"ADDED","object":{' + data + b"}}\n"):
        with suppress(BrokenPods, UnwritablePod):
            for event in events(body):
                CODEC.write("ADDED", event.pod, 1, Appearance("n", asks=True))
    with suppress(BrokenPods):
        CODEC.page(data)
