"""Codec of pods in JSON, where each event of a watch is one line.

To change a pod, the codec parses the object only down to the changed field, and copies all other bytes.
"""

import re

import msgspec
from msgspec import Raw

from extender.api.keys import ASK_MARK
from extender.api.objects.base import Wire
from extender.api.objects.pods import PodClaim, PodClaimStatus
from extender.api.protobuf import MAX_FRAME_BYTES
from extender.domain.model import versioned_pod_watch as pod_watch
from extender.domain.model.versioned_pod_watch import (
    AS_STORED,
    Appearance,
    ListedPod,
    PodEvent,
    PodFacts,
    PodPage,
    UnwritablePod,
)
from extender.kube.decoding import ListMeta, WatchEvent

# msgspec raises ValueErrors, and a RecursionError for an object that is nested too deeply.
UNREADABLE = (ValueError, RecursionError)


class _Meta(Wire, frozen=True):
    resource_version: str = ""
    uid: str = ""
    namespace: str = ""
    name: str = ""


class _Spec(Wire, frozen=True):
    """Spec of a pod. `init_containers` has to be a list, so that the marker resource can be added."""

    scheduler_name: str = ""
    node_name: str = ""
    init_containers: list[Raw] | None = None


class _Status(Wire, frozen=True):
    """Status of a pod, which has to be an object, so that the nomination can be added."""

    phase: str = ""


class _Pod(Wire, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _BookmarkMeta(_Meta, frozen=True):
    annotations: dict[str, str] | None = None


class _Bookmark(Wire, frozen=True):
    metadata: _BookmarkMeta


class _List(Wire, frozen=True):
    kind: str
    metadata: Raw
    items: list[Raw] | None = None


_read_event = msgspec.json.Decoder(WatchEvent).decode
_read_pod = msgspec.json.Decoder(_Pod).decode
_read_bookmark = msgspec.json.Decoder(_Bookmark).decode
_read_list = msgspec.json.Decoder(_List).decode
_read_list_meta = msgspec.json.Decoder(ListMeta).decode

Parts = dict[str, Raw]

_encode = msgspec.json.Encoder().encode
_read_parts = msgspec.json.Decoder(Parts).decode
_read_claims = msgspec.json.Decoder(list[PodClaim] | None).decode
_read_claim_statuses = msgspec.json.Decoder(list[PodClaimStatus] | None).decode
_read_elements = msgspec.json.Decoder(list[Raw] | None).decode

_MARKER_AMOUNT = {ASK_MARK: "1"}
_MARKER_AMOUNTS = {"limits": _MARKER_AMOUNT, "requests": {**_MARKER_AMOUNT, "cpu": "0", "memory": "0"}}
_MARKER_CONTAINER = Raw(_encode({"name": pod_watch.MARK_NAME, "resources": _MARKER_AMOUNTS}))
_POD_KIND = {"kind": Raw(b'"Pod"'), "apiVersion": Raw(b'"v1"')}  # items of lists lack these fields
_GROUP_FIELD = b'"schedulingGroup"'
_HEAD = re.compile(rb'\{"type":"([A-Z]+)","object":(?=\{)')  # the beginning of an event from any API server


class JsonPods:
    """Codec of the content type application/json."""

    content_type = "application/json"
    stream_type = "application/json"

    def events(self) -> pod_watch.PodEvents:
        return Lines()

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        return _event_line(type_, _with_appearance(pod, appearance, str(version), _POD_KIND))

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        identity = {"name": facts.name, "namespace": facts.namespace, "uid": facts.uid}
        meta = {**identity, "resourceVersion": str(version)}
        spec = {"containers": None, "schedulerName": facts.scheduler}
        return _event_line("DELETED", _encode({**_POD_KIND, "metadata": meta, "spec": spec, "status": {}}))

    def page(self, body: bytes) -> PodPage:
        try:
            # API servers indent lists for curl and browsers, but an event has to be one line.
            pod_list = _read_list(msgspec.json.format(body, indent=-1) if b"\n" in body.rstrip() else body)
            meta = _read_list_meta(pod_list.metadata)
        except UNREADABLE as fault:
            raise pod_watch.BrokenPods(f"this is no list of pods: {fault}") from fault
        if pod_list.kind != "PodList":
            raise pod_watch.BrokenPods("this is a list of another kind")
        pods = [ListedPod(_facts(pod), pod) for pod in map(bytes, pod_list.items or ())]
        version = pod_watch.version_number(meta.resource_version)
        return PodPage(version, meta.continue_, bytes(pod_list.metadata), pods)

    def list_metadata(self, version: int) -> bytes:
        return _encode({"resourceVersion": str(version)})

    def list_writer(self, metadata: bytes) -> pod_watch.PodListWriter:
        return _ListWriter(metadata)


class _ListWriter:
    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata
        self._separator = b""

    def start(self) -> bytes:
        return b'{"kind":"PodList","apiVersion":"v1","metadata":' + self._metadata + b',"items":['

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        is_unchanged = appearance == AS_STORED and _GROUP_FIELD not in pod
        item = self._separator + (pod if is_unchanged else _with_appearance(pod, appearance, "", {}))
        self._separator = b","
        return item

    def end(self) -> bytes:
        return b"]}\n"


def _with_appearance(pod: bytes, appearance: Appearance, version: str, kind: Parts) -> bytes:
    """Return the pod as it appears to the scheduler.

    `version` and `kind` replace the fields of the pod, unless they are empty.
    """
    try:
        parts = {**kind, **_read_parts(pod)}
        if version:
            _set_field(parts, "metadata", "resourceVersion", version)
        if appearance.node:
            _set_field(parts, "status", "nominatedNodeName", appearance.node)
        if appearance.has_marker:
            spec = _read_parts(parts.get("spec", b"{}"))
            containers = _read_elements(spec.get("initContainers", b"null")) or []
            _set_field(parts, "spec", "initContainers", [*containers, _MARKER_CONTAINER])
        if _GROUP_FIELD in pod:
            claims = _claims_without_templates(parts)
            if claims:
                _set_field(parts, "spec", "resourceClaims", claims)
            _set_field(parts, "spec", "schedulingGroup", None)
        return _encode(parts)
    except UNREADABLE as fault:
        raise UnwritablePod(f"this pod cannot be changed: {fault}") from fault


def _claims_without_templates(pod: Parts) -> list[object]:
    """Return the claims of a pod. A claim that has been created from a template replaces the template.

    The scheduler does not let a pod without a group use a claim that a template made for a group.
    """
    spec, status = (_read_parts(pod.get(part, b"{}")) for part in ("spec", "status"))
    statuses = _read_claim_statuses(status.get("resourceClaimStatuses", b"null")) or ()
    claim_names = {status.name: status.resource_claim_name for status in statuses}
    raw_claims = _read_elements(spec.get("resourceClaims", b"null")) or []
    claims = _read_claims(spec.get("resourceClaims", b"null")) or []
    return [
        {"name": claim.name, "resourceClaimName": claim_names[claim.name]}
        if claim.resource_claim_template_name and claim_names.get(claim.name)
        else raw
        for claim, raw in zip(claims, raw_claims, strict=True)
    ]


def _set_field(parts: Parts, part: str, field: str, value: object) -> None:
    """Set a field of the metadata, spec or status to a value."""
    fields = _read_parts(parts.get(part, b"{}"))
    fields[field] = Raw(_encode(value))
    parts[part] = Raw(_encode(fields))


def _event_line(type_: str, pod: bytes) -> bytes:
    """Return an event of a watch as a line."""
    return b'{"type":"' + type_.encode() + b'","object":' + pod + b"}\n"


class Lines:
    """Reader of the events of one watch, one event per line."""

    def __init__(self) -> None:
        self._incomplete = bytearray()  # the beginning of an incomplete line

    def feed(self, data: bytes) -> list[PodEvent]:
        """Return the events whose lines `data` completes."""
        line_end, *lines_after = data.split(b"\n")
        self._incomplete += line_end
        if not lines_after:
            _check_length(self._incomplete)
            return []
        lines = [bytes(self._incomplete), *lines_after[:-1]]
        self._incomplete = bytearray(lines_after[-1])
        return [_event(line) for line in lines if line.strip()]


def _check_length(line: bytes | bytearray) -> None:
    if len(line) > MAX_FRAME_BYTES:
        raise pod_watch.BrokenPods(f"an event of a watch is longer than {MAX_FRAME_BYTES} bytes")


def _event(line: bytes) -> PodEvent:
    """Return the event of a line, with the facts of its pod."""
    _check_length(line)
    # The pod is cut out without parsing, so unreadable pods pass, too. Other forms of JSON are parsed.
    head = _HEAD.match(line)
    if head and line.endswith(b"}}"):
        type_, pod = head[1].decode(), line[head.end() : -1]
    else:
        try:
            event = _read_event(line)
        except UNREADABLE as fault:
            raise pod_watch.BrokenPods(f"this is no event of a watch: {fault}") from fault
        type_, pod = event.type, bytes(event.object)
    facts, version, ends_initial_events = None, 0, False
    if type_ == "BOOKMARK":
        version, ends_initial_events = _bookmark(pod)
    elif type_ != "ERROR":
        facts = _facts(pod)
        version = facts.version if facts else _bookmark(pod)[0]
    return PodEvent(type_, version, facts, ends_initial_events, pod, line + b"\n")


def _facts(pod: bytes) -> PodFacts | None:
    """Return the facts of a pod; None if the pod cannot be read."""
    try:
        parsed = _read_pod(pod)
    except UNREADABLE:
        return None
    meta, spec = parsed.metadata, parsed.spec
    version = pod_watch.version_number(meta.resource_version)
    names = meta.uid, meta.namespace, meta.name
    return pod_watch.pod_facts(*names, spec.scheduler_name, spec.node_name, version, parsed.status.phase)


def _bookmark(obj: bytes) -> tuple[int, bool]:
    """Return the resourceVersion of any object, and whether the object ends the initial events."""
    try:
        meta = _read_bookmark(obj).metadata
    except UNREADABLE:
        return 0, False
    ends_initial_events = (meta.annotations or {}).get(pod_watch.INITIAL_EVENTS_END) == "true"
    return pod_watch.version_number(meta.resource_version), ends_initial_events
