"""What is read of pods in protobuf: messages are walked over, and what is not needed is skipped."""

from collections import defaultdict

from extender.api.protobuf import KUBERNETES_PREFIX, BrokenMessage, fields, texts
from extender.domain.view.appearance import PodFacts
from extender.domain.view.events import ListedPod, PodEvent, PodPage
from extender.view.pod_events import field_numbers as its
from extender.view.pod_events.codec import (
    INITIAL_EVENTS_END,
    LONGEST_FRAME,
    BrokenPods,
    pod_facts,
    version_number,
)

LENGTH = 4  # bytes before each frame, the highest first

_OF_TYPE = frozenset({its.TYPE_META_KIND})
_OF_META = frozenset({its.META_NAME, its.META_NAMESPACE, its.META_UID, its.META_VERSION})
_OF_SPEC = frozenset({its.SPEC_NODE, its.SPEC_SCHEDULER})
_OF_STATUS = frozenset({its.STATUS_PHASE})
_OF_LIST = frozenset({its.LIST_META_VERSION, its.LIST_META_CONTINUE})
_OF_ENTRY = frozenset({its.ENTRY_KEY, its.ENTRY_VALUE})
_END_NOTE = {its.ENTRY_KEY: INITIAL_EVENTS_END, its.ENTRY_VALUE: "true"}


class Frames:
    """The events of one watch: each has its length before it."""

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
        if len(self._begun) < LENGTH:
            return b""
        end = LENGTH + int.from_bytes(self._begun[:LENGTH])
        if end > LONGEST_FRAME:
            raise BrokenPods(f"an event of a watch is longer than {LONGEST_FRAME} bytes")
        if len(self._begun) < end:
            return b""
        frame = bytes(self._begun[:end])
        del self._begun[:end]
        return frame


def page(body: bytes) -> PodPage:
    try:
        kind, raw = _opened(body)
        parts = [(number, value) for number, value in fields(raw) if isinstance(value, bytes)]
        metadata = b"".join(value for number, value in parts if number == its.LIST_METADATA)
        text_of = texts(metadata, _OF_LIST).get
    except BrokenMessage as fault:
        raise BrokenPods(f"this is no list of pods: {fault}") from fault
    if kind != "PodList":
        raise BrokenPods("this is a list of another kind")
    pods = [ListedPod(_facts(value), value) for number, value in parts if number == its.LIST_ITEMS]
    version = version_number(text_of(its.LIST_META_VERSION, ""))
    return PodPage(version, text_of(its.LIST_META_CONTINUE, ""), metadata, pods)


def _event(frame: bytes) -> PodEvent:
    type_, obj = _type_and_object(frame)
    kind, pod = _opened_or_as_it_is(obj)
    facts, version, ends_initial = None, 0, False
    if type_ == "BOOKMARK":
        version, ends_initial = _bookmark(pod)
    elif type_ != "ERROR":
        facts = _facts(pod) if kind == "Pod" else None
        version = facts.version if facts else _bookmark(pod)[0]
    return PodEvent(type_, version, facts, ends_initial, pod, frame)


def _type_and_object(frame: bytes) -> tuple[str, bytes]:
    try:
        event = _message(frame[LENGTH:])
        type_ = event[its.WATCH_EVENT_TYPE].decode()
        obj = _message(event[its.WATCH_EVENT_OBJECT])[its.RAW_EXTENSION_RAW]
    except ValueError as fault:
        raise BrokenPods(f"this is no event of a watch: {fault}") from fault
    if not type_:
        raise BrokenPods("an event of a watch has no type")
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
    kind = texts(unknown[its.UNKNOWN_TYPE_META], _OF_TYPE).get(its.TYPE_META_KIND, "")
    return kind, unknown[its.UNKNOWN_RAW]


def _opened_or_as_it_is(obj: bytes) -> tuple[str, bytes]:
    try:
        return _opened(obj)
    except BrokenMessage:
        return "", obj


def _facts(pod: bytes) -> PodFacts | None:
    try:
        parts = _message(pod)
        meta = texts(parts[its.POD_METADATA], _OF_META).get
        spec = texts(parts[its.POD_SPEC], _OF_SPEC).get
        phase = texts(parts[its.POD_STATUS], _OF_STATUS).get(its.STATUS_PHASE, "")
    except BrokenMessage:
        return None
    uid, namespace, name = (meta(number, "") for number in (its.META_UID, its.META_NAMESPACE, its.META_NAME))
    scheduler, node = spec(its.SPEC_SCHEDULER, ""), spec(its.SPEC_NODE, "")
    version = version_number(meta(its.META_VERSION, ""))
    return pod_facts(uid, namespace, name, scheduler, node, version, phase)


def _bookmark(obj: bytes) -> tuple[int, bool]:
    """The version of an object that need not be a pod, and whether it ends the initial events."""
    try:
        meta = _message(obj)[its.POD_METADATA]
        version = version_number(texts(meta, _OF_META).get(its.META_VERSION, ""))
        notes = [value for number, value in fields(meta) if number == its.META_ANNOTATIONS]
        pairs = [texts(note, _OF_ENTRY) for note in notes if isinstance(note, bytes)]
    except BrokenMessage:
        return 0, False
    return version, _END_NOTE in pairs
