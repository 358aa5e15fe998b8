"""Pods in JSON that only JSON can write."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.model.versioned_pod_watch import (
    AS_STORED,
    Appearance,
    BrokenPods,
    PodEvent,
    UnwritablePod,
)
from tests.proxy.pod_forms import JSON
from tests.proxy.sample_pods import Json, expected, pod
from tests.rows import each_of

CODEC = JSON.codec


def line(type_: str, obj: Any) -> bytes:
    return JSON.frame(type_, obj)


def events(data: bytes) -> list[PodEvent]:
    return CODEC.events().feed(data)


def only(data: bytes) -> PodEvent:
    (event,) = events(data)
    return event


def view_of(obj: Json, version: int, appearance: Appearance) -> Json:
    return JSON.read(CODEC.write("MODIFIED", only(line("ADDED", obj)).pod, version, appearance))[1]


@each_of(
    ({"metadata": {"resourceVersion": "9"}}, 9),
    ({"metadata": {"uid": "u", "resourceVersion": 9}}, 0),
    ({"metadata": {"uid": 5, "resourceVersion": "9"}}, 0),
    ({"metadata": None}, 0),
    ({"metadata": []}, 0),
    ({"spec": "text"}, 1001),
    ({"spec": {"nodeName": ["n"]}}, 1001),
    ({"spec": {"initContainers": {"name": "x"}}}, 1001),
    ({"status": 7}, 1001),
)
def test_a_pod_that_cannot_be_read_is_passed_on(change: Json, version: int) -> None:
    frame = line("ADDED", {**pod(), **change})
    event = only(frame)
    assert (event.facts, event.is_unreadable, event.version, event.frame) == (None, True, version, frame)


@each_of(b'"metadata":', b'"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5000, b'"\xff":\xff,')
def test_invalid_json_costs_one_event_only(inside: bytes) -> None:
    bad = b'{"type":"ADDED","object":{' + inside + b"}}\n"
    broken, good = events(bad + line("ADDED", pod()))
    assert (broken.is_unreadable, broken.frame) == (True, bad)
    assert good.facts is not None


@each_of("{}", "[]", "null", "503 Service Unavailable", '{"type":"ADDED"}', '{"type')
def test_a_malformed_event_ends_the_stream(text: str) -> None:
    with pytest.raises(BrokenPods):
        events(text.encode() + b"\n")


def test_json_in_another_form_is_read() -> None:
    odd = b'  {"object": ' + json.dumps(pod()).encode() + b', "type": "ADDED" }\r\n\n \n'
    facts = only(odd).facts
    assert facts is not None
    assert facts.name == "train-1"


@each_of(
    {"spec": {"schedulerName": "kube-muster", "containers": [], "initContainers": None}},
    {"unknown": {"kept": [1, 2.5, None, "☃"]}},
)
def test_only_the_three_edits_change_a_pod(change: Json) -> None:
    before = {**pod(), **change}
    assert view_of(before, 5000, Appearance("n-1", has_marker=True)) == expected(
        before, 5000, "n-1", asks=True
    )


@each_of(
    *(b"", b"{}", b"[]", b"busy"),
    b'{"kind":"PodList","items":[]}',
    b'{"kind":"PodList","metadata":{},"items":{}}',
    b'{"kind":"PodList","metadata":{},"items":[{]}',
)
def test_malformed_lists_of_pods(body: bytes) -> None:
    with pytest.raises(BrokenPods):
        CODEC.page(body)


def test_a_list_without_items() -> None:
    assert CODEC.page(b'{"kind":"PodList","metadata":{},"items":null}').pods == []


def test_an_indented_list_becomes_events_of_one_line_each() -> None:
    body = json.dumps(json.loads(JSON.listed({"resourceVersion": "9"}, [pod()])), indent=2) + "\n"
    (item,) = CODEC.page(body.encode()).pods
    for looks in (AS_STORED, Appearance("n", has_marker=True)):
        frame = CODEC.write("ADDED", item.pod, 5, looks)
        assert JSON.read(frame) == ("ADDED", expected(pod(), 5, looks.node, looks.has_marker))


def test_a_pod_that_cannot_be_changed_is_reported() -> None:
    twisted = only(line("ADDED", pod()).replace(b'"status":{', b'"status":{"\xff":1,'))
    assert twisted.facts is not None
    with pytest.raises(UnwritablePod):
        CODEC.write("ADDED", twisted.pod, 5, Appearance("n-1"))


TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
STRANGE = st.dictionaries(
    TEXTS | st.sampled_from(["resourceVersion", "nodeName", "uid", "metadata", "type", "object"]),
    VALUES,
    max_size=5,
)


@given(strange=STRANGE, node=TEXTS, asks=st.booleans())
def test_all_other_fields_of_a_pod_stay(strange: Json, node: str, asks: bool) -> None:
    obj = {**strange, **pod()}
    obj["metadata"] = {**strange, **obj["metadata"]}
    obj["spec"] = {**obj["spec"], "containers": [strange]}
    assert view_of(obj, 7, Appearance(node, asks)) == expected(obj, 7, node, asks)


@given(STRANGE)
def test_any_object_is_passed_on(obj: Json) -> None:
    assert only(line("ADDED", obj)).frame == line("ADDED", obj)
