"""Forms of pods on the wire, JSON and protobuf, so that tests run with both."""

import json
from typing import NamedTuple, Protocol

from extender.domain.model.versioned_pod_watch import PodCodec
from extender.proxy.pod_events.json import JsonPods
from extender.proxy.pod_events.protobuf import ProtobufPods
from tests.proxy import protobuf_messages as messages
from tests.proxy.sample_pods import Json, without_kind


class PodForm(Protocol):
    codec: PodCodec

    def frame(self, type_: str, obj: Json) -> bytes:
        """Return an event of a watch, as an API server sends it."""

    def read(self, frame: bytes) -> tuple[str, Json]:
        """Return the type and the pod of one frame, as a client reads it."""

    def listed(self, metadata: Json, pods: list[Json], kind: str = "PodList") -> bytes: ...

    def read_list(self, body: bytes) -> Json: ...


class JsonForm(NamedTuple):
    codec: PodCodec = JsonPods()

    def frame(self, type_: str, obj: Json) -> bytes:
        return json.dumps({"type": type_, "object": obj}, separators=(",", ":")).encode() + b"\n"

    def read(self, frame: bytes) -> tuple[str, Json]:
        assert frame.endswith(b"}\n")
        assert frame.count(b"\n") == 1
        event = json.loads(frame)
        return event["type"], event["object"]

    def listed(self, metadata: Json, pods: list[Json], kind: str = "PodList") -> bytes:
        items = [without_kind(pod) for pod in pods]
        body = {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}
        return json.dumps(body).encode()

    def read_list(self, body: bytes) -> Json:
        pod_list: Json = json.loads(body)
        return pod_list


class ProtobufForm(NamedTuple):
    codec: PodCodec = ProtobufPods()

    def frame(self, type_: str, obj: Json) -> bytes:
        kind = obj.get("kind", "Pod")
        unknown = _unknown_object(kind, messages.encoded(obj, messages.POD))
        event = messages.encoded({"type": type_, "object": {"raw": unknown}}, messages.EVENT)
        return len(event).to_bytes(4) + event

    def read(self, frame: bytes) -> tuple[str, Json]:
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        event = messages.decoded(frame[4:], messages.EVENT)
        kind, raw = _from_unknown(event["object"]["raw"])
        return event["type"], {**kind, **messages.decoded(raw, messages.POD)}

    def listed(self, metadata: Json, pods: list[Json], kind: str = "PodList") -> bytes:
        return _unknown_object(kind, messages.encoded({"metadata": metadata, "items": pods}, messages.LIST))

    def read_list(self, body: bytes) -> Json:
        kind, raw = _from_unknown(body)
        return {**kind, "items": [], **messages.decoded(raw, messages.LIST)}


def _unknown_object(kind: str, raw: bytes) -> bytes:
    envelope = {"typeMeta": {"apiVersion": "v1", "kind": kind}, "raw": raw}
    return b"k8s\0" + messages.encoded(envelope, messages.UNKNOWN)


def _from_unknown(obj: bytes) -> tuple[Json, bytes]:
    assert obj.startswith(b"k8s\0")
    unknown = messages.decoded(obj[4:], messages.UNKNOWN)
    return unknown["typeMeta"], unknown["raw"]


JSON = JsonForm()
PROTOBUF = ProtobufForm()
