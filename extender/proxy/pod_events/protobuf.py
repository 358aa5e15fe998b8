"""Codec of pods in the protobuf of Kubernetes, where the length of each frame precedes the frame.

A change is appended to the bytes of a pod. If a message has a field twice, protobuf merges messages, joins
lists, and uses the last of two texts.
"""

from contextlib import suppress
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from extender.api.keys import ASK_MARK
from extender.api.protobuf import (
    ENVELOPES,
    KUBERNETES_PREFIX,
    LENGTH_BYTES,
    Frames,
    LongFrame,
    message_types,
    open_envelope,
)
from extender.domain.model import versioned_pod_watch as pod_watch
from extender.domain.model.versioned_pod_watch import Appearance, ListedPod, PodEvent, PodFacts, PodPage

# Fields that are read or changed, from the generated.proto files of k8s.io/api/core/v1,
# k8s.io/apimachinery/pkg/apis/meta/v1 and k8s.io/apimachinery/pkg/runtime. PodList keeps items as bytes, to
# be written unchanged. ReadPods parses the needed fields of all items at once.
_TYPES = message_types(
    {
        "PodList": {"metadata": (1, "bytes"), "items": (2, "*bytes")},
        "Varint": {"number": (1, "int64")},
        "ReadPods": {"items": (2, "*Pod")},
        "ListMeta": {"version": (2, "string"), "token": (3, "string")},
        "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
        "ObjectMeta": {
            "name": (1, "string"),
            "namespace": (3, "string"),
            "uid": (5, "string"),
            "version": (6, "string"),
        },
        "Bookmark": {"metadata": (1, "BookmarkMeta")},
        "BookmarkMeta": {"version": (6, "string"), "annotations": (12, "*Annotation")},
        "Annotation": {"key": (1, "string"), "value": (2, "string")},
        "PodSpec": {
            "node": (10, "string"),
            "scheduler": (19, "string"),
            "init_containers": (20, "*Container"),
            "claims": (39, "*Claim"),
            "group": (43, "bytes"),
        },
        "Claim": {"name": (1, "string"), "claim": (3, "string"), "template": (4, "string")},
        "PodStatus": {"phase": (1, "string"), "nominated_node": (11, "string"), "claims": (15, "*MadeClaim")},
        "MadeClaim": {"name": (1, "string"), "claim": (2, "string")},
        "Container": {"name": (1, "string"), "resources": (8, "Resources")},
        "Resources": {"limits": (1, "*Amount"), "requests": (2, "*Amount")},
        "Amount": {"resource": (1, "string"), "quantity": (2, "Quantity")},
        "Quantity": {"text": (1, "string")},
    }
)
_EVENT, _UNKNOWN = ENVELOPES["WatchEvent"], ENVELOPES["Unknown"]
_POD, _LIST = _TYPES["Pod"], _TYPES["PodList"]
_LIST_META, _BOOKMARK, _READ_PODS, _VARINT = (
    _TYPES[name] for name in ("ListMeta", "Bookmark", "ReadPods", "Varint")
)


class ProtobufPods:
    """Codec of the content type application/vnd.kubernetes.protobuf."""

    content_type = "application/vnd.kubernetes.protobuf"
    stream_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def events(self) -> pod_watch.PodEvents:
        return PodFrames()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        version_field = _POD(metadata={"version": str(version)}).SerializeToString()
        return _frame(type_, _with_appearance(pod + version_field, appearance))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        meta = {"name": facts.name, "namespace": facts.namespace, "uid": facts.uid, "version": str(version)}
        pod = _POD(metadata=meta, spec={"scheduler": facts.scheduler}, status={})
        return _frame("DELETED", pod.SerializeToString())

    def page(self, body: bytes) -> PodPage:
        try:
            kind, raw = open_envelope(body)
            pod_list = _LIST.FromString(raw)
            metadata = _LIST_META.FromString(pod_list.metadata)
            version, token = pod_watch.version_number(metadata.version), metadata.token
        except DecodeError as fault:
            raise pod_watch.BrokenPods(f"this is no list of pods: {fault}") from fault
        if kind != "PodList":
            raise pod_watch.BrokenPods("this is a list of another kind")
        try:
            facts = map(_facts_of, _READ_PODS.FromString(raw).items)
            pods = [ListedPod(*pair) for pair in zip(facts, pod_list.items, strict=True)]
        except DecodeError:  # an item cannot be read
            pods = [ListedPod(_readable_facts(pod), pod) for pod in pod_list.items]
        return PodPage(version, token, pod_list.metadata, pods)

    def list_metadata(self, version: int) -> bytes:
        return bytes(_LIST_META(version=str(version)).SerializeToString())

    def list_writer(self, metadata: bytes) -> pod_watch.PodListWriter:
        return _ListWriter(metadata)


class _ListWriter:
    """Writer of a list. The length of a list comes first, so all items are copied once, at the end."""

    def __init__(self, metadata: bytes) -> None:
        self._pieces: list[bytes] = [_LIST(metadata=metadata).SerializeToString()]

    def start(self) -> bytes:
        return b""

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        item_bytes = _with_appearance(pod, appearance)
        self._pieces += (_FIELD_2_PREFIX, _varint(len(item_bytes)), item_bytes)
        return b""

    def end(self) -> bytes:
        begin, end = _object_frame("PodList")
        return b"".join((begin, _FIELD_2_PREFIX, _varint(sum(map(len, self._pieces))), *self._pieces, end))


_ONE_MARKER, *_NO_AMOUNTS = (
    {"resource": name, "quantity": {"text": text}}
    for name, text in ((ASK_MARK, "1"), ("cpu", "0"), ("memory", "0"))
)
_CONTAINER = {
    "name": pod_watch.MARK_NAME,
    "resources": {"limits": [_ONE_MARKER], "requests": [_ONE_MARKER, *_NO_AMOUNTS]},
}
# Part of a Pod: a spec with one init container, which is appended to the existing containers.
_MARKER_CONTAINER = bytes(_POD(spec={"init_containers": [_CONTAINER]}).SerializeToString())
_GROUP_PREFIX = b"\xda\x02"  # the first bytes of the field `group`
_FIELD_2_PREFIX = b"\x12"  # the first byte of field 2 with a length: `items` of a list, `raw` of an envelope


def _with_appearance(pod: bytes, appearance: Appearance) -> bytes:
    """Return the pod as it appears to the scheduler: without its group, and with a node or the marker."""
    if _GROUP_PREFIX in pod:
        parsed = _POD.FromString(pod)
        parsed.spec.ClearField("group")
        claim_names = {status.name: status.claim for status in parsed.status.claims}
        for claim in parsed.spec.claims:  # pods without a group must not use a group's claims
            if claim.template and claim_names.get(claim.name):
                claim.claim = claim_names[claim.name]
                claim.ClearField("template")
        pod = parsed.SerializeToString()
    if appearance.node:
        pod += _POD(status={"nominated_node": appearance.node}).SerializeToString()
    return pod + _MARKER_CONTAINER if appearance.has_marker else pod


@cache
def _object_frame(kind: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after an object of the core group.

    They include two empty fields, as in the output of Go.
    """
    begin = _UNKNOWN(type_meta={"api_version": "v1", "kind": kind}).SerializeToString()
    return KUBERNETES_PREFIX + begin, _UNKNOWN(content_encoding="", content_type="").SerializeToString()


def _in_envelope(kind: str, raw: bytes) -> bytes:
    """Return the bytes of an object in the envelope of Kubernetes."""
    begin, end = _object_frame(kind)
    return b"".join((begin, _FIELD_2_PREFIX, _varint(len(raw)), raw, end))


def _varint(number: int) -> bytes:
    """Return a length in the form in which it is written before its content."""
    return bytes(_VARINT(number=number).SerializeToString()[1:])  # the first byte is the number of the field


def _frame(type_: str, pod: bytes) -> bytes:
    """Return an event of a watch as a frame."""
    event = bytes(_EVENT(type=type_, object={"raw": _in_envelope("Pod", pod)}).SerializeToString())
    return len(event).to_bytes(LENGTH_BYTES) + event


class PodFrames:
    """Reader of the events of one watch, one event per frame."""

    def __init__(self) -> None:
        self._frames = Frames()

    def feed(self, data: bytes) -> list[PodEvent]:
        try:
            return [_event(frame) for frame in self._frames.feed(data)]
        except LongFrame as fault:
            raise pod_watch.BrokenPods(str(fault)) from fault


def _event(frame: bytes) -> PodEvent:
    """Return the event of a frame, with the facts of its pod."""
    try:
        event = _EVENT.FromString(frame[LENGTH_BYTES:])
        type_, pod = event.type, event.object.raw
    except DecodeError as fault:
        raise pod_watch.BrokenPods(f"this is no event of a watch: {fault}") from fault
    if not type_:
        raise pod_watch.BrokenPods("an event of a watch has no type")
    kind = ""
    with suppress(DecodeError):
        kind, pod = open_envelope(pod)
    facts, version, ends_initial_events = None, 0, False
    if type_ == "BOOKMARK":
        version, ends_initial_events = _bookmark(pod)
    elif type_ != "ERROR":
        facts = _readable_facts(pod) if kind == "Pod" else None
        version = facts.version if facts else _bookmark(pod)[0]
    return PodEvent(type_, version, facts, ends_initial_events, pod, frame)


def _readable_facts(data: bytes) -> PodFacts | None:
    """Return the facts of a pod; None if the pod cannot be read."""
    try:
        return _facts_of(_POD.FromString(data))
    except DecodeError:
        return None


def _facts_of(pod: Any) -> PodFacts | None:
    meta, spec = pod.metadata, pod.spec
    version, names = pod_watch.version_number(meta.version), (meta.uid, meta.namespace, meta.name)
    return pod_watch.pod_facts(*names, spec.scheduler, spec.node, version, pod.status.phase)


def _bookmark(obj: bytes) -> tuple[int, bool]:
    """Return the resourceVersion of any object, and whether the object ends the initial events."""
    try:
        meta = _BOOKMARK.FromString(obj).metadata
        annotations = {entry.key: entry.value for entry in meta.annotations}
        ends_initial_events = annotations.get(pod_watch.INITIAL_EVENTS_END) == "true"
        return pod_watch.version_number(meta.version), ends_initial_events
    except DecodeError:
        return 0, False
