"""Pods in Kubernetes' protobuf: each frame has its length before it.

The facts are found by walking over the fields, and everything else is skipped. A change is appended: where a
message has a field twice, messages are merged, lists are joined, and of texts the last one counts. Field
numbers are those of the generated.proto files of k8s.io/api and k8s.io/apimachinery.
"""

from collections import defaultdict

from extender.api.keys import ASK_MARK
from extender.api.protobuf import KUBERNETES_PREFIX, BrokenMessage, field, fields, texts
from extender.domain.view.appearance import Appearance, PodFacts
from extender.domain.view.events import ListedPod, PodEvent, PodPage
from extender.view.pod_events.codec import (
    INITIAL_EVENTS_END,
    LONGEST_FRAME,
    MARK_NAME,
    BrokenPods,
    PodEvents,
    PodListWriter,
    pod_facts,
    version_number,
)

_LENGTH = 4  # bytes, the highest first
_EVENT_TYPE, _EVENT_OBJECT = 1, 2
_EXTENSION_RAW = 1
_UNKNOWN_TYPE, _UNKNOWN_RAW = 1, 2
_API_VERSION, _KIND = 1, 2
_META, _SPEC, _STATUS = 1, 2, 3  # of a Pod
_LIST_META, _LIST_ITEMS = 1, 2
_LIST_VERSION, _LIST_CONTINUE = 2, 3
_NAME, _NAMESPACE, _UID, _VERSION, _ANNOTATIONS = 1, 3, 5, 6, 12  # of ObjectMeta
_NODE, _SCHEDULER, _CONTAINERS_FIRST = 10, 19, 20  # of PodSpec
_NOMINATED = 11  # of PodStatus
_CONTAINER_NAME, _CONTAINER_RESOURCES = 1, 8
_LIMITS, _REQUESTS = 1, 2

_OF_META = frozenset({_NAME, _NAMESPACE, _UID, _VERSION})
_OF_SPEC = frozenset({_NODE, _SCHEDULER})
_OF_LIST = frozenset({_LIST_VERSION, _LIST_CONTINUE})
_ENTRY = frozenset({1, 2})  # the key and the value of a map

Message = dict[int, bytes]


def _text(number: int, value: str) -> bytes:
    return field(number, value.encode())


def _quantity(kind: int, resource: str, amount: str) -> bytes:
    return field(kind, _text(1, resource) + field(2, _text(1, amount)))


_MARK = _text(_CONTAINER_NAME, MARK_NAME) + field(
    _CONTAINER_RESOURCES,
    _quantity(_LIMITS, ASK_MARK, "1")
    + _quantity(_REQUESTS, ASK_MARK, "1")
    + _quantity(_REQUESTS, "cpu", "0")
    + _quantity(_REQUESTS, "memory", "0"),
)
_MARKED = field(_SPEC, field(_CONTAINERS_FIRST, _MARK))


class ProtobufPods:
    """The codec of application/vnd.kubernetes.protobuf."""

    content_type = "application/vnd.kubernetes.protobuf"
    stream_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def events(self) -> PodEvents:
        return _Frames()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        versioned = pod + field(_META, _text(_VERSION, str(version)))
        return _frame(type_, _changed(versioned, appearance))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        named = ((_NAME, facts.name), (_NAMESPACE, facts.namespace), (_UID, facts.uid))
        meta = b"".join(_text(*pair) for pair in (*named, (_VERSION, str(version))))
        spec = _text(_SCHEDULER, facts.scheduler)
        return _frame("DELETED", field(_META, meta) + field(_SPEC, spec) + field(_STATUS, b""))

    def page(self, body: bytes) -> PodPage:
        try:
            kind, raw = _opened(body)
            if kind != "PodList":
                raise BrokenPods("this is a list of another kind")
            parts = [(number, value) for number, value in fields(raw) if isinstance(value, bytes)]
            metadata = b"".join(value for number, value in parts if number == _LIST_META)
            told = texts(metadata, _OF_LIST)
        except BrokenMessage as fault:
            raise BrokenPods(f"this is no list of pods: {fault}") from fault
        pods = [ListedPod(_facts(value), value) for number, value in parts if number == _LIST_ITEMS]
        version = version_number(told.get(_LIST_VERSION, ""))
        return PodPage(version, told.get(_LIST_CONTINUE, ""), metadata, pods)

    def list_metadata(self, version: int) -> bytes:
        return _text(_LIST_VERSION, str(version))

    def list_writer(self, metadata: bytes) -> PodListWriter:
        return _ListWriter(metadata)


class _Frames:
    """The frames of one watch."""

    def __init__(self) -> None:
        self._begun = bytearray()  # a frame without its end

    def feed(self, data: bytes) -> list[PodEvent]:
        self._begun += data
        found = []
        while frame := self._whole():
            found.append(_event(frame))
        return found

    def _whole(self) -> bytes:
        """The next frame; empty if it is not complete yet."""
        if len(self._begun) < _LENGTH:
            return b""
        end = _LENGTH + int.from_bytes(self._begun[:_LENGTH])
        if end > LONGEST_FRAME:
            raise BrokenPods(f"an event of a watch is longer than {LONGEST_FRAME} bytes")
        if len(self._begun) < end:
            return b""
        frame = bytes(self._begun[:end])
        del self._begun[:end]
        return frame


class _ListWriter:
    """The length of a list comes before its items, so it is kept until its end."""

    def __init__(self, metadata: bytes) -> None:
        self._parts = [field(_LIST_META, metadata)]

    def start(self) -> bytes:
        return b""

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        self._parts.append(field(_LIST_ITEMS, _changed(pod, appearance)))
        return b""

    def end(self) -> bytes:
        return _closed("PodList", b"".join(self._parts))


def _event(frame: bytes) -> PodEvent:
    try:
        event = _message(frame[_LENGTH:])
        type_ = event[_EVENT_TYPE].decode()
        obj = _message(event[_EVENT_OBJECT])[_EXTENSION_RAW]
    except ValueError as fault:
        raise BrokenPods(f"this is no event of a watch: {fault}") from fault
    if not type_:
        raise BrokenPods("an event of a watch has no type")
    kind, pod = _opened_or_as_it_is(obj)
    facts, version, ends_initial = None, 0, False
    if type_ == "BOOKMARK":
        version, ends_initial = _bookmark(pod)
    elif type_ != "ERROR":
        facts = _facts(pod) if kind == "Pod" else None
        version = facts.version if facts else _bookmark(pod)[0]
    return PodEvent(type_, version, facts, ends_initial, pod, frame)


def _message(data: bytes) -> Message:
    """The messages and texts in a message; those that are missing are empty, and what is given twice is put
    together: that is what merging means for messages."""
    found: Message = defaultdict(bytes)
    for number, value in fields(data):
        if isinstance(value, bytes):
            found[number] += value
    return found


def _opened(obj: bytes) -> tuple[str, bytes]:
    """The kind of an object and its bytes. Raises BrokenMessage."""
    if not obj.startswith(KUBERNETES_PREFIX):
        raise BrokenMessage("the prefix of Kubernetes' objects is missing")
    unknown = _message(obj[len(KUBERNETES_PREFIX) :])
    return texts(unknown[_UNKNOWN_TYPE], frozenset({_KIND})).get(_KIND, ""), unknown[_UNKNOWN_RAW]


def _opened_or_as_it_is(obj: bytes) -> tuple[str, bytes]:
    try:
        return _opened(obj)
    except BrokenMessage:
        return "", obj


def _facts(pod: bytes) -> PodFacts | None:
    try:
        parts = _message(pod)
        meta, spec = texts(parts[_META], _OF_META).get, texts(parts[_SPEC], _OF_SPEC).get
    except BrokenMessage:
        return None
    version = version_number(meta(_VERSION, ""))
    return pod_facts(
        meta(_UID, ""), meta(_NAMESPACE, ""), meta(_NAME, ""), spec(_SCHEDULER, ""), spec(_NODE, ""), version
    )


def _bookmark(obj: bytes) -> tuple[int, bool]:
    """The version of an object that need not be a pod, and whether it ends the initial events."""
    try:
        meta = _message(obj)[_META]
        version = version_number(texts(meta, _OF_META).get(_VERSION, ""))
        notes = [value for number, value in fields(meta) if number == _ANNOTATIONS]
        pairs = [texts(note, _ENTRY) for note in notes if isinstance(note, bytes)]
    except BrokenMessage:
        return 0, False
    return version, {1: INITIAL_EVENTS_END, 2: "true"} in pairs


def _changed(pod: bytes, appearance: Appearance) -> bytes:
    if appearance.node:
        pod += field(_STATUS, _text(_NOMINATED, appearance.node))
    return pod + _MARKED if appearance.asks else pod


def _closed(kind: str, raw: bytes) -> bytes:
    """An object of the core group as a body. Go writes the two empty fields at the end as well."""
    named = _text(_API_VERSION, "v1") + _text(_KIND, kind)
    return KUBERNETES_PREFIX + field(_UNKNOWN_TYPE, named) + field(_UNKNOWN_RAW, raw) + b"\x1a\0\x22\0"


def _frame(type_: str, pod: bytes) -> bytes:
    event = _text(_EVENT_TYPE, type_) + field(_EVENT_OBJECT, field(_EXTENSION_RAW, _closed("Pod", pod)))
    return len(event).to_bytes(_LENGTH) + event
