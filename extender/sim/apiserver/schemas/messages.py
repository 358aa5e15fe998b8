"""The messages of Kubernetes' own kinds in protobuf: which number is which field.

messages.json is written by tools/schemas.py. It is read when the first body in protobuf comes.
"""

from functools import cache
from pathlib import Path

import msgspec

MESSAGES = Path(__file__).with_name("messages.json")


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
