"""Messages of Kubernetes in protobuf: classes of the protobuf library, made from tables of their fields.

A message keeps the fields that its table does not have.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import EDITION_2023, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# Before an object of its own, a body has this and then a runtime.Unknown.
KUBERNETES_PREFIX = b"k8s\0"
LIST = "*"  # before the type of a field that is a list

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
# By name: a number, and one of the types above or the name of a message.
Fields = Mapping[str, tuple[int, str]]


def message_types(tables: Mapping[str, Fields]) -> dict[str, Any]:
    """The class of each message in `tables`, by name. As in Go, texts replace and the rest is merged."""
    # With this edition a text has to be one, and what is set is written, even if it is empty.
    file = FileDescriptorProto(
        name="kubernetes", package="kubernetes", syntax="editions", edition=EDITION_2023
    )
    for message, fields in tables.items():
        made = file.message_type.add(name=message)
        for name, (number, form) in fields.items():
            type_ = form.removeprefix(LIST)
            field = made.field.add(name=name, number=number)
            field.label = field.LABEL_OPTIONAL if type_ == form else field.LABEL_REPEATED
            field.type = _SCALARS.get(type_, field.TYPE_MESSAGE)
            if type_ not in _SCALARS:
                field.type_name = f".kubernetes.{type_}"
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}")) for name in tables}
