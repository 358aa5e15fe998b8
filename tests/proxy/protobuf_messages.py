"""Conversion of pods between JSON and protobuf, by the numbers of k8s.io/api's generated.proto.

It does not use the library that Muster uses, so that tests are independent of it.
"""

from collections.abc import Iterator
from typing import Any

from tests.proxy.sample_pods import Json

# A field's name and its form: a text, bytes, a message, a list of messages, a map (`dict`, QUANTITIES).
Table = dict[int, tuple[str, Any]]
TEXTS = {1: ("key", str), 2: ("value", str)}
QUANTITIES = {1: ("key", str), 2: ("value", {1: ("string", str)})}
META: Table = {
    1: ("name", str),
    3: ("namespace", str),
    5: ("uid", str),
    6: ("resourceVersion", str),
    11: ("labels", dict),
    12: ("annotations", dict),
    17: ("managedFields", [{1: ("manager", str), 2: ("operation", str)}]),
}
RESOURCES: Table = {1: ("limits", QUANTITIES), 2: ("requests", QUANTITIES)}
CONTAINER: Table = {1: ("name", str), 2: ("image", str), 8: ("resources", RESOURCES)}
SPEC: Table = {
    2: ("containers", [CONTAINER]),
    7: ("nodeSelector", dict),
    10: ("nodeName", str),
    19: ("schedulerName", str),
    20: ("initContainers", [CONTAINER]),
    39: (
        "resourceClaims",
        [{1: ("name", str), 3: ("resourceClaimName", str), 4: ("resourceClaimTemplateName", str)}],
    ),
    43: ("schedulingGroup", {1: ("podGroupName", str)}),
}
STATUS: Table = {
    1: ("phase", str),
    9: ("qosClass", str),
    11: ("nominatedNodeName", str),
    15: ("resourceClaimStatuses", [{1: ("name", str), 2: ("resourceClaimName", str)}]),
}
POD: Table = {1: ("metadata", META), 2: ("spec", SPEC), 3: ("status", STATUS)}
LIST: Table = {1: ("metadata", {2: ("resourceVersion", str), 3: ("continue", str)}), 2: ("items", [POD])}
UNKNOWN: Table = {1: ("typeMeta", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}
EVENT: Table = {1: ("type", str), 2: ("object", {1: ("raw", bytes)})}


def encoded(obj: Json, table: Table) -> bytes:
    """Encode an object; fields that are not in the table are left out."""
    return b"".join(
        field(number, _bytes(value, form))
        for number, (name, form) in table.items()
        for value in _values(obj.get(name), form)
    )


def decoded(data: bytes, table: Table) -> Json:
    """Decode a message as Go does: repeated messages are merged, lists joined, and texts replaced."""
    result: Json = {}
    for number, value in fields(data):
        if number not in table:
            continue
        name, form = table[number]
        if form is str or form is bytes:
            result[name] = value.decode() if form is str else value
        elif form is dict or form is QUANTITIES:
            entry = {"key": "", "value": "", **decoded(value, TEXTS if form is dict else QUANTITIES)}
            text_or_amount = entry["value"] if form is dict else entry["value"]["string"]
            result.setdefault(name, {})[entry["key"]] = text_or_amount
        elif isinstance(form, list):
            result.setdefault(name, []).append(decoded(value, form[0]))
        else:
            result[name] = _merged(result.get(name, {}), decoded(value, form))
    return result


def _merged(old: Json, new: Json) -> Json:
    """Merge two messages, with their lists and messages."""
    joined = {key: old[key] + new[key] for key in old.keys() & new.keys() if isinstance(new[key], list)}
    return {**old, **new, **joined}


def _values(value: Any, form: Any) -> list[Any]:
    if value is None:
        return []
    if form is dict:
        return [{"key": key, "value": text} for key, text in value.items()]
    if form is QUANTITIES:
        return [{"key": key, "value": {"string": amount}} for key, amount in value.items()]
    return value if isinstance(form, list) else [value]


def _bytes(value: Any, form: Any) -> bytes:
    if form is str or form is bytes:
        return value.encode() if form is str else bytes(value)
    if form is dict:
        return encoded(value, TEXTS)
    return encoded(value, form[0] if isinstance(form, list) else form)


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the texts and messages in a message, in their order; numbers are skipped."""
    offset = 0
    while offset < len(data):
        key, offset = _number(data, offset)
        value, offset = _number(data, offset)
        if key & 7 == 2:
            yield key >> 3, data[offset : offset + value]
            offset += value


def field(number: int, payload: bytes) -> bytes:
    """Return a text or a message as a field of another one."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    encoded_bytes = bytearray()
    while value > 0x7F:
        encoded_bytes.append(value & 0x7F | 0x80)
        value >>= 7
    encoded_bytes.append(value)
    return bytes(encoded_bytes)


def _number(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if data[offset - 1] < 0x80:
            return value, offset
