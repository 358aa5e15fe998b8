"""What a list and a watch say, decoded as late and as little as possible.

A page of 500 objects is decoded into Structs in one go; only when one of them is bad is the page taken apart.
A watch event is opened in two steps, since its type decides what its object is.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from extender.api.objects import Meta
from extender.kube.errors import Ambiguous

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class NamedObject(Protocol):
    """What every object has."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=NamedObject)
Item = TypeVar("Item")


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class ObjectIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The few words of metadata that even an object of unexpected form has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectIdentity = ObjectIdentity()


class Bad(NamedTuple):
    """An object that is not of the expected form, and what is wrong with it."""

    metadata: ObjectIdentity
    fault: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[Item], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[Item] | None = None


class Decoders(Generic[T]):
    """The decoders for one kind, made once."""

    def __init__(self, kind: type[T]) -> None:
        page: Any = Page
        self._object = msgspec.json.Decoder(kind)
        self._page: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(page[kind])

    def page(self, body: bytes) -> tuple[_ListMeta, Iterator[T | Bad]]:
        """The head of a page and its objects."""
        try:
            page = self._page.decode(body)
        except UNREADABLE:
            return self._page_apart(body)
        return page.metadata, iter(page.items or ())

    def object(self, raw: msgspec.Raw) -> T | Bad:
        try:
            return self._object.decode(raw)
        except UNREADABLE as fault:
            return Bad(identity(raw), str(fault))

    def _page_apart(self, body: bytes) -> tuple[_ListMeta, Iterator[T | Bad]]:
        try:
            page = _RAW_PAGE.decode(body)
        except UNREADABLE as fault:
            raise Ambiguous(f"not a list: {fault}") from fault
        return page.metadata, map(self.object, page.items or ())


def event(line: bytes) -> WatchEvent:
    """Open the envelope. A line that is none is a fault of the connection, not of an object."""
    try:
        return _EVENT.decode(line)
    except UNREADABLE as fault:
        raise Ambiguous(f"not a watch event: {fault}") from fault


def identity(raw: msgspec.Raw) -> ObjectIdentity:
    """Who an object of any kind is."""
    try:
        return _BARE.decode(raw).metadata
    except UNREADABLE as fault:
        raise Ambiguous(f"not an object: {fault}") from fault


_EVENT = msgspec.json.Decoder(WatchEvent)
_BARE = msgspec.json.Decoder(_Bare)
_RAW_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])
