"""Bodies in protobuf, which kubectl and client-go send for some kinds of Kubernetes' own and never for CRDs.

A body is the prefix `k8s` and a zero byte, then a runtime.Unknown that names the kind and holds the object.
Only messages that people's commands send are known: create namespace, auth can-i, drain and their like. A
message is a table of its fields by number, from the generated.proto files of k8s.io/api.
"""

from typing import Any, NamedTuple, Union

from extender.api.protobuf import KUBERNETES_PREFIX, BrokenMessage, fields
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.status_errors import StatusError, bad_request


class ProtoField(NamedTuple):
    """`form`: str, int, bool, dict for a map of texts, or the table of a message. `many`: a list of them."""

    name: str
    form: Union[type, "ProtoMessage"] = str
    many: bool = False


ProtoMessage = dict[int, ProtoField]


def _texts(**numbers: int) -> ProtoMessage:
    return {number: ProtoField(name) for name, number in numbers.items()}


_OWNER: ProtoMessage = {
    **_texts(kind=1, name=3, uid=4, apiVersion=5),
    6: ProtoField("controller", bool),
    7: ProtoField("blockOwnerDeletion", bool),
}
_META: ProtoMessage = {
    **_texts(name=1, generateName=2, namespace=3, selfLink=4, uid=5, resourceVersion=6),
    7: ProtoField("generation", int),
    8: ProtoField("creationTimestamp", {}),
    11: ProtoField("labels", dict),
    12: ProtoField("annotations", dict),
    13: ProtoField("ownerReferences", _OWNER, many=True),
    14: ProtoField("finalizers", many=True),
}
_DELETE_OPTIONS: ProtoMessage = {
    1: ProtoField("gracePeriodSeconds", int),
    2: ProtoField("preconditions", _texts(uid=1, resourceVersion=2)),
    3: ProtoField("orphanDependents", bool),
    4: ProtoField("propagationPolicy"),
    5: ProtoField("dryRun", many=True),
}
_RESOURCE = _texts(namespace=1, verb=2, group=3, version=4, resource=5, subresource=6, name=7)
_ACCESS: ProtoMessage = {
    1: ProtoField("resourceAttributes", _RESOURCE),
    2: ProtoField("nonResourceAttributes", _texts(path=1, verb=2)),
}
_TARGET = _texts(kind=1, namespace=2, name=3, uid=4, apiVersion=5, resourceVersion=6, fieldPath=7)

_MESSAGES: dict[str, ProtoMessage] = {
    "Namespace": {
        1: ProtoField("metadata", _META),
        2: ProtoField("spec", {1: ProtoField("finalizers", many=True)}),
        3: ProtoField("status", _texts(phase=1)),
    },
    "PriorityClass": {
        1: ProtoField("metadata", _META),
        2: ProtoField("value", int),
        3: ProtoField("globalDefault", bool),
        4: ProtoField("description"),
        5: ProtoField("preemptionPolicy"),
    },
    "Binding": {1: ProtoField("metadata", _META), 2: ProtoField("target", _TARGET)},
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ProtoField("metadata", _META), 2: ProtoField("deleteOptions", _DELETE_OPTIONS)},
    "SelfSubjectReview": {
        1: ProtoField("metadata", _META),
        2: ProtoField("status", {1: ProtoField("userInfo", _texts(username=1, uid=2))}),
    },
    "SelfSubjectAccessReview": {
        1: ProtoField("metadata", _META),
        2: ProtoField("spec", _ACCESS),
        3: ProtoField("status", {}),
    },
    "SelfSubjectRulesReview": {
        1: ProtoField("metadata", _META),
        2: ProtoField("spec", _texts(namespace=1)),
        3: ProtoField("status", {}),
    },
}
_UNKNOWN: ProtoMessage = {
    1: ProtoField("typeMeta", _texts(apiVersion=1, kind=2)),
    2: ProtoField("raw", bytes),
    3: ProtoField("contentEncoding"),
    4: ProtoField("contentType"),
}


def decoded(body: bytes) -> Json:
    """The object as JSON has it. Raises StatusError 400 for what is no protobuf, 415 for other kinds."""
    if not body.startswith(KUBERNETES_PREFIX):
        raise bad_request("the object provided is unrecognized: it does not appear to be a protobuf message")
    try:
        envelope = _message(body[len(KUBERNETES_PREFIX) :], _UNKNOWN)
        named = envelope.get("typeMeta", {})
        kind = named.get("kind", "")
        if kind not in _MESSAGES:
            raise _unread(kind)
        return {**named, **_message(envelope.get("raw", b""), _MESSAGES[kind])}
    except (BrokenMessage, UnicodeDecodeError) as fault:
        raise bad_request("the object provided is unrecognized: its protobuf message is broken") from fault


def _unread(what: str) -> StatusError:
    told = f"protobuf is not read here for {what} - accepted media types include: application/json"
    return StatusError(415, "UnsupportedMediaType", f"{told}, application/yaml")


def _message(data: bytes, table: ProtoMessage) -> Json:
    """Empty texts and messages are left out, as in JSON."""
    found: Json = {}
    for number, raw in fields(data):
        if number not in table:
            if raw:
                raise _unread(f"field {number} of this message")
            continue
        field = table[number]
        if isinstance(raw, int) is not (field.form in (int, bool)):
            raise BrokenMessage("a field of another form")
        value = _value(raw, field.form)
        if field.many:
            found.setdefault(field.name, []).append(value)
        elif field.form is dict:
            found.setdefault(field.name, {}).update(value)
        elif value not in ("", {}):
            found[field.name] = value
    return found


def _value(raw: Any, form: Any) -> Any:
    if form is str:
        return raw.decode()
    if form is bytes:
        return raw
    if form is bool:
        return bool(raw)
    if form is int:
        return raw - (1 << 64) if raw >> 63 else raw
    if form is dict:
        entry = _message(raw, _texts(key=1, value=2))
        return {entry.get("key", ""): entry.get("value", "")}
    return _message(raw, form)
