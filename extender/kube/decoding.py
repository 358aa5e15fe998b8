"""Decoders of lists and watches, which decode as late and as little as possible.

A page is decoded as a whole. Only if an object in it is bad, the page is decoded object by object. An event
of a watch is decoded in two steps, since the type of the event determines the type of its object.

The stack limits how deeply objects may be nested. A tenant's object may exceed this limit, because the API
server accepts up to 10,000 levels in kinds that keep unknown fields. Such an object is cut before it is
decoded, and counts as bad; the other objects on its page are read.

msgspec stores its data about a struct on the class before the data is complete. A second thread that decodes
the struct at this moment follows a null pointer, and the process ends with SIGSEGV (seen with msgspec 0.22:
two reviews just after a start). Therefore structs are prepared before there are threads, and decoders of
generic structs are created one at a time.
"""

import re
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from extender.api.objects.base import Meta
from extender.kube.connection import JSON, Stream
from extender.kube.errors import Ambiguous

TOO_DEEP = "it is nested too deeply to be read"
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # RecursionError for deep nesting

_MAX_DEPTH = 500  # a decoder in Python 3.11 reads fewer than 1,000 levels
_CUT_MARKER = b"[\t]"  # replaces parts that are too deep; the API server writes no tabs
_TOKEN = re.compile(rb'[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_creation_lock = Lock()


class NamedObject(Protocol):
    """Object of the API with metadata."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=NamedObject)
T_co = TypeVar("T_co", bound=NamedObject, covariant=True)
Item = TypeVar("Item")


def prepare_structs() -> None:
    """Create a decoder of each struct once, which takes some milliseconds. Call before any thread starts."""
    for kind in set(_all_subclasses(msgspec.Struct)):
        msgspec.json.Decoder(kind)


def decoder_of(kind: type[Item]) -> msgspec.json.Decoder[Item]:
    """Return a new decoder of a type. Decoders are created one at a time."""
    with _creation_lock:
        return msgspec.json.Decoder(kind)


def _all_subclasses(kind: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(kind)
    for subclass in subclasses:
        yield subclass
        yield from _all_subclasses(subclass)


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """Event of a watch. Its type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class ObjectIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata that is read even from an object of unexpected form."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Identified(msgspec.Struct, frozen=True, gc=False):
    """Object of which only the metadata is read."""

    metadata: ObjectIdentity = ObjectIdentity()


class Undecodable(NamedTuple):
    """Object that could not be decoded, with the reason."""

    metadata: ObjectIdentity
    fault: str


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[Item], frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Item] | None = None


FIRST_LIMIT = 50  # number of objects on the first page of a list
_MAX_PAGE_OBJECTS, _MAX_PAGE_BYTES = 500, 16 * 2**20  # most objects and most bytes of a page


def next_page_size(object_count: int, byte_count: int) -> int:
    """Return the number of objects for the next page.

    `object_count` and `byte_count` describe the last page. The limit in bytes is necessary because a tenant
    may write thousands of objects of more than a megabyte each.
    """
    fitting_count = _MAX_PAGE_BYTES * object_count // max(byte_count, 1)
    return min(max(fitting_count, 1), _MAX_PAGE_OBJECTS)


class Encoding(Protocol[T_co]):
    """Encoding of the lists and watches of one kind of object."""

    accept: str  # value of the Accept header

    def page(self, body: bytes) -> tuple[ListMeta, Sequence[T_co | Undecodable]]:
        """Return the metadata and the objects of a page of a list.

        Raises:
            Ambiguous: The body is not a list.
        """

    def events(self, stream: Stream) -> Iterator[WatchEvent]:
        """Yield the events of a watch.

        Raises:
            Ambiguous: The stream contains something else.
        """

    def object(self, raw: msgspec.Raw) -> T_co | Undecodable:
        """Return the object of an event; Undecodable if the object cannot be read."""

    def identity(self, raw: msgspec.Raw) -> ObjectIdentity:
        """Return the names and the version of an object of any form.

        Raises:
            Ambiguous: The object has no such fields.
        """


def decode_in_part(decoder: msgspec.json.Decoder[Item], body: bytes | msgspec.Raw) -> Item:
    """Decode JSON. Parts that are nested too deeply are left out.

    Raises:
        UNREADABLE: The JSON is invalid.
    """
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_without_deep_parts(bytes(body)))


def has_cut_parts(raw: msgspec.Raw) -> bool:
    """Return whether `decode_in_part` has removed parts of a value that were nested too deeply."""
    return _CUT_MARKER in bytes(raw)


def _without_deep_parts(body: bytes) -> bytes:
    """Return JSON in which a marker replaces the parts that are nested too deeply."""
    pieces, start, depth = [], 0, 0
    for token in _TOKEN.finditer(body):
        match body[token.start()]:
            case 0x7B | 0x5B:  # { and [
                depth += 1
                if depth == _MAX_DEPTH:
                    pieces.append(body[start : token.start()])
            case 0x7D | 0x5D:
                if depth == _MAX_DEPTH:
                    pieces.append(_CUT_MARKER)
                    start = token.end()
                depth -= 1
    return b"".join((*pieces, body[start:]))


class Decoders(Generic[T]):
    """Encoding in JSON for one kind, with decoders that are created once."""

    accept = JSON

    def __init__(self, kind: type[T]) -> None:
        page: Any = Page  # mypy does not accept a variable as a type parameter
        self._object = decoder_of(kind)
        self._page: msgspec.json.Decoder[Page[T]] = decoder_of(page[kind])

    def page(self, body: bytes) -> tuple[ListMeta, Sequence[T | Undecodable]]:
        try:
            page = self._page.decode(body)
            return page.metadata, page.items or ()
        except UNREADABLE:
            pass
        try:
            raw_page = decode_in_part(_RAW_PAGE, body)
        except UNREADABLE as fault:
            raise Ambiguous(f"not a list: {fault}") from fault
        return raw_page.metadata, [self.object(raw) for raw in raw_page.items or ()]

    def object(self, raw: msgspec.Raw) -> T | Undecodable:
        if has_cut_parts(raw):
            return Undecodable(identity(raw), TOO_DEEP)
        try:
            return self._object.decode(raw)
        except UNREADABLE as fault:
            return Undecodable(identity(raw), str(fault))

    def events(self, stream: Stream) -> Iterator[WatchEvent]:
        return map(event, stream)

    def identity(self, raw: msgspec.Raw) -> ObjectIdentity:
        return identity(raw)


def event(line: bytes) -> WatchEvent:
    """Decode a line of a watch.

    An unreadable line is an error of the connection, not of an object.

    Raises:
        Ambiguous: The line is not an event.
    """
    try:
        return decode_in_part(_EVENT, line)
    except UNREADABLE as fault:
        raise Ambiguous(f"not a watch event: {fault}") from fault


def identity(raw: msgspec.Raw) -> ObjectIdentity:
    """Return the names and the version of an object of any form.

    Raises:
        Ambiguous: The bytes are not an object.
    """
    try:
        return decode_in_part(_IDENTIFIED, raw).metadata
    except UNREADABLE as fault:
        raise Ambiguous(f"not an object: {fault}") from fault


_EVENT = msgspec.json.Decoder(WatchEvent)
_IDENTIFIED = msgspec.json.Decoder(Identified)
_RAW_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])
