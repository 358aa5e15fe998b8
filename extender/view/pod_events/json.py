"""Pods in JSON: one event a line.

A change takes the object apart as far as the changed field, and everything else is copied as it came.
"""

import msgspec
from msgspec import Raw

from extender.api.keys import ASK_MARK
from extender.domain.view.appearance import AS_IT_IS, Appearance, PodFacts
from extender.domain.view.events import PodPage, UnwritablePod
from extender.view.pod_events import json_reading
from extender.view.pod_events.codec import MARK_NAME, PodEvents, PodListWriter

Parts = dict[str, Raw]

_encode = msgspec.json.Encoder().encode
_parts = msgspec.json.Decoder(Parts).decode
_elements = msgspec.json.Decoder(list[Raw] | None).decode

_ASKED = {ASK_MARK: "1"}
_AMOUNTS = {"limits": _ASKED, "requests": {**_ASKED, "cpu": "0", "memory": "0"}}
_MARK = Raw(_encode({"name": MARK_NAME, "resources": _AMOUNTS}))
_POD_KIND = {"kind": Raw(b'"Pod"'), "apiVersion": Raw(b'"v1"')}  # pods out of lists lack them


class JsonPods:
    """The codec of application/json."""

    content_type = "application/json"
    stream_type = "application/json"

    def events(self) -> PodEvents:
        return json_reading.Lines()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        return _frame(type_, _changed(pod, appearance, str(version), _POD_KIND))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        named = {"name": facts.name, "namespace": facts.namespace, "uid": facts.uid}
        meta = {**named, "resourceVersion": str(version)}
        spec = {"containers": None, "schedulerName": facts.scheduler}
        return _frame("DELETED", _encode({**_POD_KIND, "metadata": meta, "spec": spec, "status": {}}))

    def page(self, body: bytes) -> PodPage:
        return json_reading.page(body)

    def list_metadata(self, version: int) -> bytes:
        return _encode({"resourceVersion": str(version)})

    def list_writer(self, metadata: bytes) -> PodListWriter:
        return _ListWriter(metadata)


class _ListWriter:
    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata
        self._comma = b""

    def start(self) -> bytes:
        return b'{"kind":"PodList","apiVersion":"v1","metadata":' + self._metadata + b',"items":['

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        changed = pod if appearance == AS_IT_IS else _changed(pod, appearance, "", {})
        written = self._comma + changed
        self._comma = b","
        return written

    def end(self) -> bytes:
        return b"]}\n"


def _changed(pod: bytes, appearance: Appearance, version: str, kind: Parts) -> bytes:
    """Empty version, empty kind: as they are."""
    try:
        parts = {**kind, **_parts(pod)}
        if version:
            _put(parts, "metadata", "resourceVersion", version)
        if appearance.node:
            _put(parts, "status", "nominatedNodeName", appearance.node)
        if appearance.asks:
            _put(parts, "spec", "initContainers", [*_init_containers(parts), _MARK])
        return _encode(parts)
    except json_reading.UNREADABLE as fault:
        raise UnwritablePod(f"this pod cannot be changed: {fault}") from fault


def _put(parts: Parts, part: str, field: str, value: object) -> None:
    inside = _parts(parts.get(part, b"{}"))
    inside[field] = Raw(_encode(value))
    parts[part] = Raw(_encode(inside))


def _init_containers(parts: Parts) -> list[Raw]:
    spec = _parts(parts.get("spec", b"{}"))
    return _elements(spec.get("initContainers", b"null")) or []


def _frame(type_: str, pod: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + pod + b"}\n"
