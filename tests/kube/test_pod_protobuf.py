"""Pods in protobuf are the pods that JSON has, and bad bytes cost what they cost in JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest

from extender.api.objects.pods import Pod
from extender.api.protobuf import ENVELOPES, KUBERNETES_PREFIX
from extender.kube.connection import Connection, Stream
from extender.kube.decoding import Undecodable, WatchEvent
from extender.kube.errors import Ambiguous, Gone, parse_refusal
from extender.kube.pod_protobuf import MESSAGES, PodDecoders
from extender.kube.reflector import Removed
from tests.kube.server import Lines, Reply, Server
from tests.kube.test_reflector import Cycles, event, pod
from tests.kube.test_reflector import page as json_page
from tests.rows import each_of

META = {"name": "p", "namespace": "ns", "uid": "u", "resource_version": "7"}
NAMED = {**META, "resourceVersion": "7"}
del NAMED["resource_version"]


def closed(kind: str, raw: bytes) -> bytes:
    unknown = ENVELOPES["Unknown"](type_meta={"api_version": "v1", "kind": kind}, raw=raw)
    return KUBERNETES_PREFIX + bytes(unknown.SerializeToString())


def message(**fields: Any) -> bytes:
    return bytes(MESSAGES["Pod"](**{"metadata": META, **fields}).SerializeToString())


def frame(type_: str, obj: bytes) -> bytes:
    event = bytes(ENVELOPES["WatchEvent"](type=type_, object={"raw": obj}).SerializeToString())
    return len(event).to_bytes(4) + event


def page(*items: bytes, token: str = "") -> bytes:
    listed = MESSAGES["RawPodList"](metadata={"resource_version": "9", "token": token}, items=items)
    return closed("PodList", listed.SerializeToString())


AT, AT_TEXT = {"seconds": 1_800_000_000}, "2027-01-15T08:00:00Z"
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing set": ({}, {}),
    "metadata": (
        {
            "metadata": {
                **META,
                "creation_timestamp": AT,
                "deletion_timestamp": {"seconds": 10**18},
                "labels": [{"key": "a", "value": ""}],
                "owner_references": [{"kind": "Job", "name": "j", "uid": "x", "api_version": "batch/v1"}],
            }
        },
        {
            "metadata": {
                **NAMED,
                "creationTimestamp": AT_TEXT,
                "labels": {"a": ""},
                "ownerReferences": [{"kind": "Job", "name": "j", "uid": "x", "apiVersion": "batch/v1"}],
            }
        },
    ),
    "zero is not none": (
        {"spec": {"priority": 0, "active_deadline_seconds": 0}, "status": {"phase": "Pending"}},
        {"spec": {"priority": 0, "activeDeadlineSeconds": 0}, "status": {"phase": "Pending"}},
    ),
    "empty selectors and states": (
        {
            "spec": {
                "affinity": {"pod_affinity": {"required": [{"label_selector": {}, "topology_key": "z"}]}},
                "containers": [{"resources": {}}],
            },
            "status": {"container_statuses": [{"state": {"running": b""}, "last_state": {"terminated": {}}}]},
        },
        {
            "spec": {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"labelSelector": {}, "topologyKey": "z"}
                        ]
                    }
                },
                "containers": [{"resources": {}}],
            },
            "status": {"containerStatuses": [{"state": {"running": {}}, "lastState": {"terminated": {}}}]},
        },
    ),
}


@each_of(*CASES.values())
def test_a_pod_in_protobuf_equals_the_pod_in_json(fields: dict[str, Any], written: dict[str, Any]) -> None:
    expected = msgspec.convert({"metadata": NAMED, **written}, Pod)
    assert PodDecoders().object(msgspec.Raw(message(**fields))) == expected


def test_pods_that_differ_in_a_compared_field_have_different_bytes() -> None:
    def spread(*names: bytes) -> bytes:
        found = PodDecoders().object(msgspec.Raw(message(spec={"topology_spread_constraints": names})))
        assert isinstance(found, Pod)
        return bytes(found.spec.topology_spread_constraints)

    assert spread(b"a", b"b") == spread(b"a", b"b")
    assert len({spread(), spread(b"ab"), spread(b"a", b"b"), spread(b"a", b"")}) == 4


def test_a_bad_pod_costs_itself_and_not_its_page() -> None:
    head, items = PodDecoders().page(page(message(), message() + b"\x12\x02\x52\xff", message(), token="t"))
    assert (head.resource_version, head.continue_) == ("9", "t")
    assert [type(item) for item in items] == [Pod, Undecodable, Pod]
    assert items[1].metadata.name == "p"


BROKEN_MESSAGES = {
    "a frame without end": b"\xff\xff\xff\xff",
    "no object": frame("ADDED", KUBERNETES_PREFIX + b"\xff"),
    "no event": b"\x00\x00\x00\x01\xff",
}


def watched(*pieces: bytes) -> Iterator[WatchEvent]:
    class Answer:
        def pieces(self) -> Sequence[bytes]:
            return pieces

    return PodDecoders().events(cast(Stream, Answer()))


@each_of(*BROKEN_MESSAGES.values())
def test_bytes_that_are_no_events_end_the_watch(data: bytes) -> None:
    with pytest.raises(Ambiguous):
        list(watched(data))


def test_a_watch_is_read_however_it_is_cut() -> None:
    data = b"".join(frame("ADDED", closed("Pod", message())) for _ in range(3))
    events = list(watched(*(data[n : n + 7] for n in range(0, len(data), 7))))
    assert [bytes(event.object) for event in events] == [message()] * 3


PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def test_a_server_that_has_protobuf_is_read_in_it(server: Server, connection: Connection) -> None:
    cycles = Cycles(server, connection, preferred_encoding=PodDecoders())
    later = bytes(MESSAGES["Pod"](metadata={**META, "resource_version": "10"}).SerializeToString())
    gone = frame("DELETED", closed("Pod", later))
    cycles.answers(
        Reply(200, page(message()), PROTOBUF),
        Reply(200, frame("MODIFIED", closed("Pod", later)) + gone, PROTOBUF),
    )
    assert cycles.run() == ["p@7", "p@10", Removed("ns", "p", "u")]
    assert cycles.requests[0].headers["accept"].startswith("application/vnd.kubernetes.protobuf,")


def test_a_server_that_has_none_is_read_in_json(server: Server, connection: Connection) -> None:
    cycles = Cycles(server, connection, preferred_encoding=PodDecoders())
    cycles.answers(json_page(9, pod("a", 7)), Lines([event("ADDED", pod("b", 10))]))
    assert cycles.run() == ["a@7", "b@10"]


def test_a_refusal_in_protobuf_is_understood() -> None:
    # A Status with code 410, reason and message, as the API server writes it.
    raw = b"\x1a\x07too old\x22\x07Expired\x30\x9a\x03"
    fault = parse_refusal(closed("Status", raw))
    assert isinstance(fault, Gone)
    assert (fault.reason, fault.message) == ("Expired", "too old")
