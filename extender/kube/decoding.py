"""Decoders of lists and watches. They decode as late and as little as possible.

A page is decoded at once, and object by object only if one of them is bad; a watch event in two steps, since
its type decides what its object is.

A decoder's stack limits the depth of nesting, which a tenant's object may exceed: the API server accepts up
to 10,000 levels in kinds that keep unknown fields. Such an object is cut before it is decoded, and counts as
bad; the others on its page are read.

msgspec stores its data about a struct on the class before that data is complete: a second thread that decodes
the struct then follows a null pointer, and the process ends with SIGSEGV (seen with msgspec 0.22: two reviews
just after a start). So structs are prepared before there are threads, and decoders of generic ones are made
one at a time.
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
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # RecursionError: nested too deeply

_DEEPEST = 500  # levels: a decoder in Python 3.11 reads less than 1,000
_CUT = b"[\t]"  # replaces deeper parts; the API server writes no tabs
_TOKEN = re.compile(rb'[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_one_at_a_time = Lock()


class NamedObject(Protocol):
    """Any object of the API."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=NamedObject)
T_co = TypeVar("T_co", bound=NamedObject, covariant=True)
Item = TypeVar("Item")


def prepare_structs() -> None:
    """Make a decoder of each struct once; call before any thread starts. Takes some milliseconds."""
    for kind in set(_all_subclasses(msgspec.Struct)):
        msgspec.json.Decoder(kind)


def decoder_of(kind: type[Item]) -> msgspec.json.Decoder[Item]:
    with _one_at_a_time:
        return msgspec.json.Decoder(kind)


def _all_subclasses(kind: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(kind)
    for subclass in subclasses:
        yield subclass
        yield from _all_subclasses(subclass)


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """Line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class ObjectIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata that even an object of unexpected form has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Identified(msgspec.Struct, frozen=True, gc=False):
    """Object of which only the metadata is read."""

    metadata: ObjectIdentity = ObjectIdentity()


class Undecodable(NamedTuple):
    """Object of an unexpected form."""

    metadata: ObjectIdentity
    fault: str


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[Item], frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Item] | None = None


FIRST_PAGE = 50  # objects
_LARGEST_PAGE, _PAGE_SIZE = 500, 16 * 2**20  # objects and bytes


def next_page_size(objects: int, size: int) -> int:
    """Return the number of objects for the next page, from those of the last page and their size in bytes.

    A tenant may write thousands of objects of more than a megabyte each.
    """
    fitting = _PAGE_SIZE * objects // max(size, 1)
    return min(max(fitting, 1), _LARGEST_PAGE)


class Encoding(Protocol[T_co]):
    """Encoding of the lists and watches of one kind."""

    accept: str  # value of the Accept header

    def page(self, body: bytes) -> tuple[ListMeta, Sequence[T_co | Undecodable]]:
        """Return the metadata of a list, and its objects. Raises Ambiguous if the body is no list."""

    def events(self, stream: Stream) -> Iterator[WatchEvent]:
        """Yield the events of a watch. Raises Ambiguous if the stream has something else."""

    def object(self, raw: msgspec.Raw) -> T_co | Undecodable:
        """Return the object of an event; Undecodable if it cannot be read."""

    def identity(self, raw: msgspec.Raw) -> ObjectIdentity:
        """Return the names and the version of an object of any form. Raises Ambiguous if it has none."""


def decoded_in_part(decoder: msgspec.json.Decoder[Item], body: bytes | msgspec.Raw) -> Item:
    """Decode JSON, if necessary without parts that are nested too deeply. Raises UNREADABLE."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_without_deep_parts(bytes(body)))


def is_cut(raw: msgspec.Raw) -> bool:
    """Return whether `decoded_in_part` has removed parts of a value that were nested too deeply."""
    return _CUT in bytes(raw)


def _without_deep_parts(body: bytes) -> bytes:
    pieces, start, depth = [], 0, 0
    for token in _TOKEN.finditer(body):
        match body[token.start()]:
            case 0x7B | 0x5B:  # { and [
                depth += 1
                if depth == _DEEPEST:
                    pieces.append(body[start : token.start()])
            case 0x7D | 0x5D:
                if depth == _DEEPEST:
                    pieces.append(_CUT)
                    start = token.end()
                depth -= 1
    return b"".join((*pieces, body[start:]))


class Decoders(Generic[T]):
    """Decoders of JSON for one kind, made once."""

    accept = JSON

    def __init__(self, kind: type[T]) -> None:
        page: Any = Page  # mypy accepts no variable as its parameter
        self._object = decoder_of(kind)
        self._page: msgspec.json.Decoder[Page[T]] = decoder_of(page[kind])

    def page(self, body: bytes) -> tuple[ListMeta, Sequence[T | Undecodable]]:
        try:
            page = self._page.decode(body)
            return page.metadata, page.items or ()
        except UNREADABLE:
            pass
        try:
            raw_page = decoded_in_part(_RAW_PAGE, body)
        except UNREADABLE as fault:
            raise Ambiguous(f"not a list: {fault}") from fault
        return raw_page.metadata, [self.object(raw) for raw in raw_page.items or ()]

    def object(self, raw: msgspec.Raw) -> T | Undecodable:
        if is_cut(raw):
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
    """Decode a line of a watch. An unreadable line is a fault of the connection, not of an object."""
    try:
        return decoded_in_part(_EVENT, line)
    except UNREADABLE as fault:
        raise Ambiguous(f"not a watch event: {fault}") from fault


def identity(raw: msgspec.Raw) -> ObjectIdentity:
    try:
        return decoded_in_part(_IDENTIFIED, raw).metadata
    except UNREADABLE as fault:
        raise Ambiguous(f"not an object: {fault}") from fault


_EVENT = msgspec.json.Decoder(WatchEvent)
_IDENTIFIED = msgspec.json.Decoder(Identified)
_RAW_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])
