"""Bodies in protobuf, which kubectl and client-go send for Kubernetes' own kinds and never for CRDs.

A body is the prefix `k8s` and a zero byte, then a runtime.Unknown that names the kind and holds the object.
What the numbers of its fields mean is in schemas/messages.json, which tools/schemas.py writes; a few messages
have a form of their own in JSON.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from extender.api.protobuf import KUBERNETES_PREFIX, fields
from extender.sim.apiserver.errors import StatusError, bad_request
from extender.sim.apiserver.kinds import Json

# ---- which number is which field

MESSAGES = Path(__file__).parent / "schemas" / "messages.json"


class ProtoField(msgspec.Struct, array_like=True, frozen=True):
    """`form`: optional, repeated, map for one with texts as keys, inline for a message whose fields stand in
    the object around it, nonzero for what JSON leaves out when it is 0. `type`: string, bool, int32, int64,
    bytes or the full name of a message."""

    form: str
    type: str
    name: str


ProtoMessage = dict[int, ProtoField]


@cache
def message(name: str) -> ProtoMessage:
    return _messages()[name]


@cache
def message_name(kind: str) -> str | None:
    """The full name of the message of a kind; None where it is not known."""
    return next((name for name in _messages() if name.rpartition(".")[2] == kind), None)


@cache
def _messages() -> dict[str, ProtoMessage]:
    return msgspec.json.decode(MESSAGES.read_bytes(), type=dict[str, ProtoMessage])


_TYPE = "k8s.io.apimachinery.pkg.runtime.TypeMeta"
_BROKEN = (ValueError, OverflowError)


def decoded(body: bytes) -> Json:
    """The object as JSON has it. Raises StatusError 400 for what is no protobuf, 415 for other kinds."""
    if not body.startswith(KUBERNETES_PREFIX):
        raise bad_request("the object provided is unrecognized: it does not appear to be a protobuf message")
    try:
        envelope = dict(fields(body[len(KUBERNETES_PREFIX) :]))
        named = _object(_bytes(envelope.get(1, b"")), _TYPE)
        kind = named.get("kind", "")
        if (name := message_name(kind)) is None:
            why = f"protobuf is not read here for {kind} - accepted media types include: "
            raise StatusError(415, "UnsupportedMediaType", f"{why}application/json, application/yaml")
        return {**named, **_object(_bytes(envelope.get(2, b"")), name)}
    except _BROKEN as fault:
        raise bad_request("the object provided is unrecognized: its protobuf message is broken") from fault


def _object(data: bytes, name: str) -> Json:
    """Of a message, without texts that are empty; fields with unknown numbers are left out, as in Go."""
    found: Json = {}
    known = message(name)
    for number, raw in fields(data):
        if (field := known.get(number)) is None:
            continue
        if field.form == "map":
            entry = dict(fields(_bytes(raw)))
            key, value = _value(entry.get(1, b""), "string"), _value(entry.get(2, b""), field.type)
            found.setdefault(field.name, {})[key] = value
            continue
        value = _value(raw, field.type)
        match field.form:
            case "inline":
                found |= value
            case "repeated":
                found.setdefault(field.name, []).append(value)
            case "optional" | "nonzero" if value not in ("", None) and (value or field.form == "optional"):
                found[field.name] = value
    return found


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
    return own(dict(fields(data))) if own else _object(data, type_)


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError(raw)
    return raw


def _signed(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


_NUMBERS: dict[str, Callable[[int], Any]] = {"bool": bool, "int32": _signed, "int64": _signed}


# ---- messages whose JSON is no object


def _time(parts: dict[int, Any]) -> str | None:
    """None for the zero time, which has no seconds."""
    if 1 not in parts:
        return None
    return datetime.fromtimestamp(_signed(parts[1]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(parts: dict[int, Any]) -> str | None:
    whole = _time(parts)
    return whole and f"{whole[:-1]}.{parts.get(2, 0) // 1000:06}Z"


def _number_or_text(parts: dict[int, Any]) -> int | str:
    """The first field says which of the two it is."""
    return _value(parts.get(3, b""), "string") if parts.get(1) else _signed(parts.get(2, 0))


def _json(parts: dict[int, Any]) -> Any:
    return msgspec.json.decode(parts.get(1) or b"null")


_OWN_FORMS: dict[str, Callable[[dict[int, Any]], Any]] = {
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": lambda parts: _value(parts.get(1, b""), "string"),
    "IntOrString": _number_or_text,
    "FieldsV1": _json,
    "RawExtension": _json,
}
