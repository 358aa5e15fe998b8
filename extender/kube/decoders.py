"""Decoders that are safe to make and to use in any thread.

msgspec learns what a struct consists of when it is first decoded, and keeps that on the class before it is
complete. If another thread decodes the same class in that moment, it follows a null pointer, and the process
ends with SIGSEGV (seen with msgspec 0.22: two reviews at once, just after a start). So structs are learnt
before there are threads, and the decoders of generic ones, which are learnt anew for each kind, are made one
at a time.
"""

from collections.abc import Iterator
from threading import Lock
from typing import TypeVar

import msgspec

T = TypeVar("T")

_one_at_a_time = Lock()


def learn_structs() -> None:
    """All that are defined now; takes some milliseconds. To be called before any thread is started."""
    for kind in set(_below(msgspec.Struct)):
        msgspec.json.Decoder(kind)


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    with _one_at_a_time:
        return msgspec.json.Decoder(kind)


def _below(kind: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        yield each
        yield from _below(each)
