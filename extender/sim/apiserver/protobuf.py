"""Decoder of protobuf bodies, which kubectl and client-go send for Kubernetes' own kinds, but never for CRDs.

A body is the prefix `k8s` and a zero byte, then a runtime.Unknown with the kind and the object. The table of
field numbers is schemas/messages.json, written by tools/schemas.py. A few messages have a special form in
JSON.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from extender.api.protobuf import KUBERNETES_PREFIX, Fields, message_types
from extender.apimachinery.errors import StatusError, bad_request
from extender.apimachinery.kinds import Json

# ---- the table of field numbers

MESSAGES = Path(__file__).parent / "schemas" / "messages.json"


class ProtoField(msgspec.Struct, array_like=True, frozen=True):
    """Field of a protobuf message.

    Attributes:
        form: `optional`, `repeated`, `map` (with text keys), `inline` (its fields are fields of the
            surrounding object), or `nonzero` (JSON leaves the field out if it is 0).
        type: string, bool, int32, int64, bytes, or the full name of a message.
        name: The name in JSON.
    """

    form: str
    type: str
    name: str


ProtoMessage = dict[int, ProtoField]


@cache
def message_name(kind: str) -> str | None:
    """Return the full name of the message of a kind; None if the kind is unknown."""
    return next((name for name in _messages() if name.rpartition(".")[2] == kind), None)


@cache
def _messages() -> dict[str, ProtoMessage]:
    return msgspec.json.decode(MESSAGES.read_bytes(), type=dict[str, ProtoMessage])


@cache
def _types() -> dict[str, Any]:
    """Return the message classes by full name, with underscores for dots.

    A map field is a list of messages with a key and a value.
    """
    tables: dict[str, Fields] = {}
    for name, fields_by_number in _messages().items():
        fields: dict[str, tuple[int, str]] = {}
        for number, field in fields_by_number.items():
            type_ = _class_name(field.type)
            if field.form == "map":
                tables[f"map_{type_}"] = {"key": (1, "string"), "value": (2, type_)}
                type_ = f"map_{type_}"
            fields[field.name] = number, f"*{type_}" if field.form in ("map", "repeated") else type_
        tables[_class_name(name)] = fields
    return message_types(tables)


def _class_name(name: str) -> str:
    return name.replace(".", "_")


_RUNTIME = "k8s.io.apimachinery.pkg.runtime"


def decode_body(body: bytes) -> Json:
    """Return the object in a body, as JSON would represent it.

    Raises:
        StatusError: 400 if the protobuf is invalid, 415 if the kind is unknown.
    """
    if not body.startswith(KUBERNETES_PREFIX):
        raise bad_request("the object provided is unrecognized: it does not appear to be a protobuf message")
    try:
        envelope = _types()[_class_name(f"{_RUNTIME}.Unknown")].FromString(body[len(KUBERNETES_PREFIX) :])
        type_meta = _object(envelope.typeMeta, f"{_RUNTIME}.TypeMeta")
        kind = type_meta.get("kind", "")
        if (name := message_name(kind)) is None:
            message = f"protobuf is not read here for {kind} - accepted media types include: "
            raise StatusError(415, "UnsupportedMediaType", f"{message}application/json, application/yaml")
        return {**type_meta, **_object(_types()[_class_name(name)].FromString(envelope.raw), name)}
    except (DecodeError, ValueError, OverflowError) as fault:
        raise bad_request("the object provided is unrecognized: its protobuf message is broken") from fault


def _object(message: Any, name: str) -> Json:
    """Return a message as JSON. Empty texts and unknown fields are left out, as in Go."""
    result: Json = {}
    fields = _messages()[name]
    for descriptor, raw in message.ListFields():
        field = fields[descriptor.number]
        if field.form == "map":
            result[field.name] = {entry.key: _value(entry.value, field.type) for entry in raw}
        elif field.form == "repeated":
            result[field.name] = [_value(item, field.type) for item in raw]
        elif field.form == "inline":
            result |= _value(raw, field.type)
        else:
            value = _value(raw, field.type)
            if value not in ("", None) and (value or field.form == "optional"):
                result[field.name] = value
    return result


def _value(raw: Any, type_: str) -> Any:
    if type_ == "bytes":
        return base64.b64encode(raw).decode()
    if isinstance(raw, bool | int | str):
        return raw
    convert = _CONVERTERS.get(type_.rpartition(".")[2])
    return convert(raw) if convert else _object(raw, type_)


# ---- messages that are no objects in JSON


def _time(message: Any) -> str | None:
    """Return a timestamp; None for Go's zero time, whose message has no seconds."""
    if not message.HasField("seconds"):
        return None
    return datetime.fromtimestamp(message.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(message: Any) -> str | None:
    seconds = _time(message)
    return f"{seconds.removesuffix('Z')}.{message.nanos // 1000:06}Z" if seconds else None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": lambda message: message.string,
    "IntOrString": lambda message: message.strVal if message.type else message.intVal,
    "FieldsV1": lambda message: msgspec.json.decode(message.Raw or b"null"),
    "RawExtension": lambda message: msgspec.json.decode(message.raw or b"null"),
}
