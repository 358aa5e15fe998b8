"""Pods in Kubernetes' protobuf: each frame has its length before it.

A change is appended: where a message has a field twice, messages are merged, lists are joined, and of texts
the last one counts. Messages are walked over to be read, and what is not needed is skipped.
"""

from collections import defaultdict

from extender.api.keys import ASK_MARK
from extender.api.protobuf import KUBERNETES_PREFIX, BrokenMessage, field, fields, texts
from extender.domain.model.appearance import Appearance, PodFacts
from extender.domain.view.events import ListedPod, PodEvent, PodPage
from extender.view.pod_events import codec

# The numbers of the protobuf fields that are read or changed, by message: from the generated.proto files of
# k8s.io/api/core/v1, k8s.io/apimachinery/pkg/apis/meta/v1 and k8s.io/apimachinery/pkg/runtime.
WATCH_EVENT_TYPE, WATCH_EVENT_OBJECT = 1, 2
RAW_EXTENSION_RAW = 1
UNKNOWN_TYPE_META, UNKNOWN_RAW = 1, 2
TYPE_META_API_VERSION, TYPE_META_KIND = 1, 2

LIST_METADATA, LIST_ITEMS = 1, 2
LIST_META_VERSION, LIST_META_CONTINUE = 2, 3
META_NAME, META_NAMESPACE, META_UID, META_VERSION, META_ANNOTATIONS = 1, 3, 5, 6, 12

POD_METADATA, POD_SPEC, POD_STATUS = 1, 2, 3
SPEC_NODE, SPEC_SCHEDULER, SPEC_INIT_CONTAINERS = 10, 19, 20
STATUS_PHASE, STATUS_NOMINATED_NODE = 1, 11
CONTAINER_NAME, CONTAINER_RESOURCES = 1, 8
RESOURCES_LIMITS, RESOURCES_REQUESTS = 1, 2

ENTRY_KEY, ENTRY_VALUE = 1, 2  # of every map
QUANTITY_TEXT = 1


_UNKNOWN_END = b"\x1a\0\x22\0"  # contentEncoding and contentType, empty: Go writes both
LENGTH = 4  # bytes before each frame, the highest first

_OF_TYPE = frozenset({TYPE_META_KIND})
_OF_META = frozenset({META_NAME, META_NAMESPACE, META_UID, META_VERSION})
_OF_SPEC = frozenset({SPEC_NODE, SPEC_SCHEDULER})
_OF_STATUS = frozenset({STATUS_PHASE})
_OF_LIST = frozenset({LIST_META_VERSION, LIST_META_CONTINUE})
_OF_ENTRY = frozenset({ENTRY_KEY, ENTRY_VALUE})
_END_NOTE = {ENTRY_KEY: codec.INITIAL_EVENTS_END, ENTRY_VALUE: "true"}


class ProtobufPods:
    """The codec of application/vnd.kubernetes.protobuf."""

    content_type = "application/vnd.kubernetes.protobuf"
    stream_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def events(self) -> codec.PodEvents:
        return Frames()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        versioned = pod + field(POD_METADATA, _text(META_VERSION, str(version)))
        return _frame(type_, _changed(versioned, appearance))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        named = _text(META_NAME, facts.name) + _text(META_NAMESPACE, facts.namespace)
        meta = named + _text(META_UID, facts.uid) + _text(META_VERSION, str(version))
        spec = _text(SPEC_SCHEDULER, facts.scheduler)
        pod = field(POD_METADATA, meta) + field(POD_SPEC, spec) + field(POD_STATUS, b"")
        return _frame("DELETED", pod)

    def page(self, body: bytes) -> PodPage:
        try:
            kind, raw = _opened(body)
            parts = [(number, value) for number, value in fields(raw) if isinstance(value, bytes)]
            metadata = b"".join(value for number, value in parts if number == LIST_METADATA)
            text_of = texts(metadata, _OF_LIST).get
        except BrokenMessage as fault:
            raise codec.BrokenPods(f"this is no list of pods: {fault}") from fault
        if kind != "PodList":
            raise codec.BrokenPods("this is a list of another kind")
        pods = [ListedPod(_facts(value), value) for number, value in parts if number == LIST_ITEMS]
        version = codec.version_number(text_of(LIST_META_VERSION, ""))
        return PodPage(version, text_of(LIST_META_CONTINUE, ""), metadata, pods)

    def list_metadata(self, version: int) -> bytes:
        return _text(LIST_META_VERSION, str(version))

    def list_writer(self, metadata: bytes) -> codec.PodListWriter:
        return _ListWriter(metadata)


class _ListWriter:
    """The length of a list comes before its items, so it is kept until its end."""

    def __init__(self, metadata: bytes) -> None:
        self._parts = [field(LIST_METADATA, metadata)]

    def start(self) -> bytes:
        return b""

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        self._parts.append(field(LIST_ITEMS, _changed(pod, appearance)))
        return b""

    def end(self) -> bytes:
        return _closed("PodList", b"".join(self._parts))


def _text(number: int, value: str) -> bytes:
    return field(number, value.encode())


def _quantity(kind: int, resource: str, amount: str) -> bytes:
    value = field(ENTRY_VALUE, _text(QUANTITY_TEXT, amount))
    return field(kind, _text(ENTRY_KEY, resource) + value)


def _mark() -> bytes:
    """Of a Pod: its spec with one init container, which is appended to those that it has."""
    amounts = _quantity(RESOURCES_LIMITS, ASK_MARK, "1")
    for resource, amount in ((ASK_MARK, "1"), ("cpu", "0"), ("memory", "0")):
        amounts += _quantity(RESOURCES_REQUESTS, resource, amount)
    container = _text(CONTAINER_NAME, codec.MARK_NAME) + field(CONTAINER_RESOURCES, amounts)
    return field(POD_SPEC, field(SPEC_INIT_CONTAINERS, container))


_MARK = _mark()


def _changed(pod: bytes, appearance: Appearance) -> bytes:
    if appearance.node:
        pod += field(POD_STATUS, _text(STATUS_NOMINATED_NODE, appearance.node))
    return pod + _MARK if appearance.asks else pod


def _closed(kind: str, raw: bytes) -> bytes:
    """An object of the core group as a body."""
    type_meta = _text(TYPE_META_API_VERSION, "v1") + _text(TYPE_META_KIND, kind)
    unknown = field(UNKNOWN_TYPE_META, type_meta) + field(UNKNOWN_RAW, raw) + _UNKNOWN_END
    return KUBERNETES_PREFIX + unknown


def _frame(type_: str, pod: bytes) -> bytes:
    obj = field(RAW_EXTENSION_RAW, _closed("Pod", pod))
    event = _text(WATCH_EVENT_TYPE, type_) + field(WATCH_EVENT_OBJECT, obj)
    return len(event).to_bytes(LENGTH) + event


class Frames:
    """The events of one watch: each has its length before it."""

    def __init__(self) -> None:
        self._begun = bytearray()  # a frame without its end

    def feed(self, data: bytes) -> list[PodEvent]:
        self._begun += data
        found = []
        while frame := self._whole():
            type_, obj = _type_and_object(frame)
            kind, pod = _opened_or_as_it_is(obj)
            facts, version, ends_initial = None, 0, False
            if type_ == "BOOKMARK":
                version, ends_initial = _bookmark(pod)
            elif type_ != "ERROR":
                facts = _facts(pod) if kind == "Pod" else None
                version = facts.version if facts else _bookmark(pod)[0]
            found.append(PodEvent(type_, version, facts, ends_initial, pod, frame))
        return found

    def _whole(self) -> bytes:
        """The next frame; empty if it is not complete yet."""
        if len(self._begun) < LENGTH:
            return b""
        end = LENGTH + int.from_bytes(self._begun[:LENGTH])
        if end > codec.LONGEST_FRAME:
            raise codec.BrokenPods(f"an event of a watch is longer than {codec.LONGEST_FRAME} bytes")
        if len(self._begun) < end:
            return b""
        frame = bytes(self._begun[:end])
        del self._begun[:end]
        return frame


def _type_and_object(frame: bytes) -> tuple[str, bytes]:
    try:
        event = _message(frame[LENGTH:])
        type_ = event[WATCH_EVENT_TYPE].decode()
        obj = _message(event[WATCH_EVENT_OBJECT])[RAW_EXTENSION_RAW]
    except ValueError as fault:
        raise codec.BrokenPods(f"this is no event of a watch: {fault}") from fault
    if not type_:
        raise codec.BrokenPods("an event of a watch has no type")
    return type_, obj


def _message(data: bytes) -> defaultdict[int, bytes]:
    """The messages and texts in a message; those that are missing are empty, and what is given twice is put
    together: that is what merging means for messages."""
    found: defaultdict[int, bytes] = defaultdict(bytes)
    for number, value in fields(data):
        if isinstance(value, bytes):
            found[number] += value
    return found


def _opened(obj: bytes) -> tuple[str, bytes]:
    """The kind of an object and its bytes. Raises BrokenMessage."""
    if not obj.startswith(KUBERNETES_PREFIX):
        raise BrokenMessage("the prefix of Kubernetes' objects is missing")
    unknown = _message(obj[len(KUBERNETES_PREFIX) :])
    kind = texts(unknown[UNKNOWN_TYPE_META], _OF_TYPE).get(TYPE_META_KIND, "")
    return kind, unknown[UNKNOWN_RAW]


def _opened_or_as_it_is(obj: bytes) -> tuple[str, bytes]:
    try:
        return _opened(obj)
    except BrokenMessage:
        return "", obj


def _facts(pod: bytes) -> PodFacts | None:
    try:
        parts = _message(pod)
        meta = texts(parts[POD_METADATA], _OF_META).get
        spec = texts(parts[POD_SPEC], _OF_SPEC).get
        phase = texts(parts[POD_STATUS], _OF_STATUS).get(STATUS_PHASE, "")
    except BrokenMessage:
        return None
    uid, namespace, name = (meta(number, "") for number in (META_UID, META_NAMESPACE, META_NAME))
    scheduler, node = spec(SPEC_SCHEDULER, ""), spec(SPEC_NODE, "")
    version = codec.version_number(meta(META_VERSION, ""))
    return codec.pod_facts(uid, namespace, name, scheduler, node, version, phase)


def _bookmark(obj: bytes) -> tuple[int, bool]:
    """The version of an object that need not be a pod, and whether it ends the initial events."""
    try:
        meta = _message(obj)[POD_METADATA]
        version = codec.version_number(texts(meta, _OF_META).get(META_VERSION, ""))
        notes = [value for number, value in fields(meta) if number == META_ANNOTATIONS]
        pairs = [texts(note, _OF_ENTRY) for note in notes if isinstance(note, bytes)]
    except BrokenMessage:
        return 0, False
    return version, _END_NOTE in pairs
