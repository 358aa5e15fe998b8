"""Stored objects as the Structs that Muster reads, through JSON, as over the wire."""

from typing import TypeVar

import msgspec

from extender.api.quantities import BadQuantity
from extender.sim.apiserver.kinds import Json

T = TypeVar("T", bound=msgspec.Struct)
UNREADABLE = (msgspec.ValidationError, BadQuantity)


def typed(obj: Json, kind: type[T]) -> T:
    """Raises ValidationError."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)
