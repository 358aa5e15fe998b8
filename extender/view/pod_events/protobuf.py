"""Pods in Kubernetes' protobuf: each frame has its length before it.

A change is appended: where a message has a field twice, messages are merged, lists are joined, and of texts
the last one counts.
"""

from extender.api.keys import ASK_MARK
from extender.api.protobuf import KUBERNETES_PREFIX, field
from extender.domain.view.appearance import Appearance, PodFacts
from extender.domain.view.events import PodPage
from extender.view.pod_events import field_numbers as its
from extender.view.pod_events import protobuf_reading
from extender.view.pod_events.codec import MARK_NAME, PodEvents, PodListWriter

_UNKNOWN_END = b"\x1a\0\x22\0"  # contentEncoding and contentType, empty: Go writes both


class ProtobufPods:
    """The codec of application/vnd.kubernetes.protobuf."""

    content_type = "application/vnd.kubernetes.protobuf"
    stream_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def events(self) -> PodEvents:
        return protobuf_reading.Frames()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        versioned = pod + field(its.POD_METADATA, _text(its.META_VERSION, str(version)))
        return _frame(type_, _changed(versioned, appearance))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        named = _text(its.META_NAME, facts.name) + _text(its.META_NAMESPACE, facts.namespace)
        meta = named + _text(its.META_UID, facts.uid) + _text(its.META_VERSION, str(version))
        spec = _text(its.SPEC_SCHEDULER, facts.scheduler)
        pod = field(its.POD_METADATA, meta) + field(its.POD_SPEC, spec) + field(its.POD_STATUS, b"")
        return _frame("DELETED", pod)

    def page(self, body: bytes) -> PodPage:
        return protobuf_reading.page(body)

    def list_metadata(self, version: int) -> bytes:
        return _text(its.LIST_META_VERSION, str(version))

    def list_writer(self, metadata: bytes) -> PodListWriter:
        return _ListWriter(metadata)


class _ListWriter:
    """The length of a list comes before its items, so it is kept until its end."""

    def __init__(self, metadata: bytes) -> None:
        self._parts = [field(its.LIST_METADATA, metadata)]

    def start(self) -> bytes:
        return b""

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        self._parts.append(field(its.LIST_ITEMS, _changed(pod, appearance)))
        return b""

    def end(self) -> bytes:
        return _closed("PodList", b"".join(self._parts))


def _text(number: int, value: str) -> bytes:
    return field(number, value.encode())


def _quantity(kind: int, resource: str, amount: str) -> bytes:
    value = field(its.ENTRY_VALUE, _text(its.QUANTITY_TEXT, amount))
    return field(kind, _text(its.ENTRY_KEY, resource) + value)


def _mark() -> bytes:
    """Of a Pod: its spec with one init container, which is appended to those that it has."""
    amounts = _quantity(its.RESOURCES_LIMITS, ASK_MARK, "1")
    for resource, amount in ((ASK_MARK, "1"), ("cpu", "0"), ("memory", "0")):
        amounts += _quantity(its.RESOURCES_REQUESTS, resource, amount)
    container = _text(its.CONTAINER_NAME, MARK_NAME) + field(its.CONTAINER_RESOURCES, amounts)
    return field(its.POD_SPEC, field(its.SPEC_INIT_CONTAINERS, container))


_MARK = _mark()


def _changed(pod: bytes, appearance: Appearance) -> bytes:
    if appearance.node:
        pod += field(its.POD_STATUS, _text(its.STATUS_NOMINATED_NODE, appearance.node))
    return pod + _MARK if appearance.asks else pod


def _closed(kind: str, raw: bytes) -> bytes:
    """An object of the core group as a body."""
    type_meta = _text(its.TYPE_META_API_VERSION, "v1") + _text(its.TYPE_META_KIND, kind)
    unknown = field(its.UNKNOWN_TYPE_META, type_meta) + field(its.UNKNOWN_RAW, raw) + _UNKNOWN_END
    return KUBERNETES_PREFIX + unknown


def _frame(type_: str, pod: bytes) -> bytes:
    obj = field(its.RAW_EXTENSION_RAW, _closed("Pod", pod))
    event = _text(its.WATCH_EVENT_TYPE, type_) + field(its.WATCH_EVENT_OBJECT, obj)
    return len(event).to_bytes(protobuf_reading.LENGTH) + event
