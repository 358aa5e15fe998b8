"""Bodies in protobuf, which kubectl and client-go send for Kubernetes' own kinds and never for CRDs.

A body is the prefix `k8s` and a zero byte, then a runtime.Unknown that names the kind and holds the object.
What the numbers of its fields mean is in schemas/messages.json; a few messages have a form of their own in
JSON.
"""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.schemas.messages import ProtoField, message, message_name
from extender.sim.apiserver.status_errors import StatusError, bad_request

PREFIX = b"k8s\0"
_UNKNOWN, _TYPE = "k8s.io.apimachinery.pkg.runtime.Unknown", "k8s.io.apimachinery.pkg.runtime.TypeMeta"
_VARINT, _BYTES = 0, 2
_LONGEST_VARINT = 63  # bits, before its last byte
_BROKEN = (IndexError, ValueError, OverflowError)


def decoded(body: bytes) -> Json:
    """The object as JSON has it. Raises StatusError 400 for what is no protobuf, 415 for other kinds."""
    if not body.startswith(PREFIX):
        raise bad_request("the object provided is unrecognized: it does not appear to be a protobuf message")
    try:
        envelope = dict(_fields(body[len(PREFIX) :]))
        named = _object(_bytes(envelope.get(1, b"")), _TYPE)
        kind = named.get("kind", "")
        if (name := message_name(kind)) is None:
            raise _unread(kind)
        return {**named, **_object(_bytes(envelope.get(2, b"")), name)}
    except _BROKEN as fault:
        raise bad_request("the object provided is unrecognized: its protobuf message is broken") from fault


def _unread(what: str) -> StatusError:
    told = f"protobuf is not read here for {what} - accepted media types include: application/json"
    return StatusError(415, "UnsupportedMediaType", f"{told}, application/yaml")


def _object(data: bytes, name: str) -> Json:
    """Of a message, without texts that are empty; fields with unknown numbers are left out, as in Go."""
    found: Json = {}
    fields = message(name)
    for number, raw in _fields(data):
        if field := fields.get(number):
            _put(found, field, raw)
    return found


def _put(found: Json, field: ProtoField, raw: int | bytes) -> None:
    value = _entry(raw, field.type) if field.form == "map" else _value(raw, field.type)
    match field.form:
        case "inline":
            found |= value
        case "map":
            found.setdefault(field.name, {}).update(value)
        case "repeated":
            found.setdefault(field.name, []).append(value)
        case "optional" | "nonzero" if value not in ("", None) and (value or field.form == "optional"):
            found[field.name] = value


def _entry(raw: int | bytes, type_: str) -> Json:
    entry = dict(_fields(_bytes(raw)))
    return {_value(entry.get(1, b""), "string"): _value(entry.get(2, b""), type_)}


def _value(raw: int | bytes, type_: str) -> Any:
    if type_ in _NUMBERS:
        if isinstance(raw, bytes):
            raise ValueError(type_)
        return _NUMBERS[type_](raw)
    data = _bytes(raw)
    if type_ == "string":
        return data.decode()
    if type_ == "bytes":
        return base64.b64encode(data).decode()
    own = _OWN_FORMS.get(type_.rpartition(".")[2])
    return own(dict(_fields(data))) if own else _object(data, type_)


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError(raw)
    return raw


def _signed(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


_NUMBERS: dict[str, Callable[[int], Any]] = {"bool": bool, "int32": _signed, "int64": _signed}


# ---- messages whose JSON is no object


def _time(fields: dict[int, Any]) -> str | None:
    """None for no time: seconds are always written for one."""
    if 1 not in fields:
        return None
    return datetime.fromtimestamp(_signed(fields[1]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(fields: dict[int, Any]) -> str | None:
    whole = _time(fields)
    return whole and f"{whole[:-1]}.{fields.get(2, 0) // 1000:06}Z"


def _number_or_text(fields: dict[int, Any]) -> int | str:
    """The first field says which of both it is."""
    return _value(fields.get(3, b""), "string") if fields.get(1) else _signed(fields.get(2, 0))


def _json(fields: dict[int, Any]) -> Any:
    return msgspec.json.decode(fields.get(1) or b"null")


_OWN_FORMS: dict[str, Callable[[dict[int, Any]], Any]] = {
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": lambda fields: _value(fields.get(1, b""), "string"),
    "IntOrString": _number_or_text,
    "FieldsV1": _json,
    "RawExtension": _json,
}


# ---- the wire


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: a number for a varint, else bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value, at = _varint(data, at)
        if wire == _BYTES:
            end = at + value
            if end > len(data):
                raise IndexError(at)
            yield number, data[at:end]
            at = end
        elif wire == _VARINT:
            yield number, value
        else:
            raise IndexError(at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > _LONGEST_VARINT:
            raise IndexError(at)
