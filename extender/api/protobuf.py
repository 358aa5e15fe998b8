"""Protobuf messages of Kubernetes: classes of the protobuf library, made from tables of fields.

A decoded message also keeps unknown fields, which its table does not list.
"""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import EDITION_2023, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# A body with a single object is this prefix, then a runtime.Unknown.
KUBERNETES_PREFIX = b"k8s\0"
LIST_PREFIX = "*"  # prefix of the type of a field that is a list

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
# Fields by name, each with its number and its type: one of the types above, or the name of a message.
Fields = Mapping[str, tuple[int, str]]


def message_types(tables: Mapping[str, Fields]) -> dict[str, Any]:
    """Return the class of each message in `tables`, by name of the message.

    Decoding follows Go: if a string field occurs twice, the later one counts; other fields are merged.
    """
    # With this edition, strings must be UTF-8, and set fields are written even if they are empty.
    file = FileDescriptorProto(
        name="kubernetes", package="kubernetes", syntax="editions", edition=EDITION_2023
    )
    for message, fields in tables.items():
        descriptor = file.message_type.add(name=message)
        for name, (number, form) in fields.items():
            type_ = form.removeprefix(LIST_PREFIX)
            field = descriptor.field.add(name=name, number=number)
            field.label = field.LABEL_OPTIONAL if type_ == form else field.LABEL_REPEATED
            field.type = _SCALARS.get(type_, field.TYPE_MESSAGE)
            if type_ not in _SCALARS:
                field.type_name = f".kubernetes.{type_}"
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}")) for name in tables}


# Each object comes in a runtime.Unknown, which has the kind and the bytes of the object.
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
# In bytes. etcd accepts requests of 1.5 MiB, and JSON may need six bytes for one byte of a pod.
MAX_FRAME_BYTES = 16 << 20
LENGTH_BYTES = 4  # size of the length that begins each frame of a watch, in big-endian order


class LongFrame(ValueError):
    """Error: a frame is longer than any object of the API server."""


class Frames:
    """Splitter of the bytes of a watch into frames. Each frame begins with its length."""

    def __init__(self) -> None:
        self._partial_frame = bytearray()  # the first bytes of the next frame

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that `data` completes, each with its length in front.

        Raises:
            LongFrame: A frame is longer than the limit.
        """
        self._partial_frame += data
        frames = []
        while len(self._partial_frame) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._partial_frame[:LENGTH_BYTES])
            if end > MAX_FRAME_BYTES:
                raise LongFrame(f"an event of a watch is longer than {MAX_FRAME_BYTES} bytes")
            if len(self._partial_frame) < end:
                break
            frames.append(bytes(self._partial_frame[:end]))
            del self._partial_frame[:end]
        return frames


def open_envelope(obj: bytes) -> tuple[str, bytes]:
    """Return the kind and the bytes of an object.

    Without the prefix of Kubernetes' objects, the kind is empty and the bytes are `obj` itself.

    Raises:
        DecodeError: The bytes cannot be decoded.
    """
    if not obj.startswith(KUBERNETES_PREFIX):
        return "", obj
    envelope = _UNKNOWN.FromString(obj[len(KUBERNETES_PREFIX) :])
    return envelope.type_meta.kind, envelope.raw


def status_as_json(body: bytes) -> bytes:
    """Return the JSON of a protobuf Status object.

    Raises:
        DecodeError: The body cannot be decoded.
    """
    status = _STATUS.FromString(open_envelope(body)[1])
    causes = [{"field": cause.field} for cause in status.details.causes]
    details = {"causes": causes, "retryAfterSeconds": status.details.retry_after}
    answer = {"message": status.message, "reason": status.reason, "code": status.code, "details": details}
    return json.dumps(answer).encode()
