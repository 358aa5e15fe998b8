"""Messages of Kubernetes in protobuf: classes of the protobuf library, made from tables of their fields.

A message keeps the fields that its table does not have.
"""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import EDITION_2023, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# Prefix of a body with a single object, followed by a runtime.Unknown.
KUBERNETES_PREFIX = b"k8s\0"
LIST = "*"  # before the type of a field that is a list

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
# Fields by name: the number, and one of the types above or the name of a message.
Fields = Mapping[str, tuple[int, str]]


def message_types(tables: Mapping[str, Fields]) -> dict[str, Any]:
    """Return the class of each message in `tables`, by name.

    As in Go, later texts replace earlier ones; other fields are merged.
    """
    # This edition checks texts, and writes set fields even if they are empty.
    file = FileDescriptorProto(
        name="kubernetes", package="kubernetes", syntax="editions", edition=EDITION_2023
    )
    for message, fields in tables.items():
        descriptor = file.message_type.add(name=message)
        for name, (number, form) in fields.items():
            type_ = form.removeprefix(LIST)
            field = descriptor.field.add(name=name, number=number)
            field.label = field.LABEL_OPTIONAL if type_ == form else field.LABEL_REPEATED
            field.type = _SCALARS.get(type_, field.TYPE_MESSAGE)
            if type_ not in _SCALARS:
                field.type_name = f".kubernetes.{type_}"
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}")) for name in tables}


# A runtime.Unknown is around each object: its kind, and its bytes.
ENVELOPES = message_types(
    {
        "WatchEvent": {"type": (1, "string"), "object": (2, "RawExtension")},
        "RawExtension": {"raw": (1, "bytes")},
        "Unknown": {
            "type_meta": (1, "TypeMeta"),
            "raw": (2, "bytes"),
            "content_encoding": (3, "string"),
            "content_type": (4, "string"),
        },
        "TypeMeta": {"api_version": (1, "string"), "kind": (2, "string")},
    }
)
_UNKNOWN = ENVELOPES["Unknown"]
_STATUS = message_types(
    {
        "Status": {
            "message": (3, "string"),
            "reason": (4, "string"),
            "details": (5, "Details"),
            "code": (6, "int32"),
        },
        "Details": {"causes": (4, "*Cause"), "retry_after": (5, "int32")},
        "Cause": {"field": (3, "string")},
    }
)["Status"]
# Bytes. etcd takes requests of 1.5 MiB, and JSON may need six bytes for one byte of a pod.
LONGEST_FRAME = 16 << 20
LENGTH = 4  # bytes before each frame of a watch, the highest first


class LongFrame(ValueError):
    """Error: a frame is longer than any object of the API server."""


class Frames:
    """Splitter of the bytes of a watch into frames, each with its length before it."""

    def __init__(self) -> None:
        self._incomplete = bytearray()  # the beginning of a frame

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that `data` completes, with their lengths. Raises LongFrame."""
        self._incomplete += data
        frames = []
        while len(self._incomplete) >= LENGTH:
            end = LENGTH + int.from_bytes(self._incomplete[:LENGTH])
            if end > LONGEST_FRAME:
                raise LongFrame(f"an event of a watch is longer than {LONGEST_FRAME} bytes")
            if len(self._incomplete) < end:
                break
            frames.append(bytes(self._incomplete[:end]))
            del self._incomplete[:end]
        return frames


def open_envelope(obj: bytes) -> tuple[str, bytes]:
    """Return the kind of an object and its bytes; no kind without the prefix of Kubernetes' objects.

    Raises:
        DecodeError: The bytes cannot be decoded.
    """
    if not obj.startswith(KUBERNETES_PREFIX):
        return "", obj
    unknown = _UNKNOWN.FromString(obj[len(KUBERNETES_PREFIX) :])
    return unknown.type_meta.kind, unknown.raw


def status_as_json(body: bytes) -> bytes:
    """Return a Status object in JSON. Raises DecodeError."""
    status = _STATUS.FromString(open_envelope(body)[1])
    causes = [{"field": cause.field} for cause in status.details.causes]
    details = {"causes": causes, "retryAfterSeconds": status.details.retry_after}
    answer = {"message": status.message, "reason": status.reason, "code": status.code, "details": details}
    return json.dumps(answer).encode()
