"""Records as JSON and back, each value by the type of its field: what is read equals what was written.

A record is an object without the fields that have their default; a mapping whose keys are no text is a list
of pairs; an infinite number is a text. Shapes are compared by identity: each is written once, and elsewhere
by its number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import Enum
from functools import cache
from math import inf, isinf
from types import NoneType
from typing import Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec.structs import fields

from extender.domain.model.records import PodRecord
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import LabelPairs, NodePart
from extender.domain.model.shapes import Constraints, Shape, Term, TermIndex
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, NodeRecord, NodeTable
from extender.domain.snapshot.snapshot import OtherPods

_INFINITE = {"inf": inf, "-inf": -inf}
_WRITTEN = tuple[tuple[Resources, Constraints], ...]  # the shapes
# Of which there may be a hundred thousand: each is text at once. Millions of parts in memory would take as
# many bytes as the ledger, and a second in which all threads wait for the encoder or the garbage collector.
_MANY = (GroupView, PodRecord)
_Act = Callable[[Any], Any]


class Misread(ValueError):
    """Something is not as it was written: in which field, and what is wrong."""


class Form(NamedTuple):
    """How values of one type are written. Whatever `read` raises means that it cannot be read."""

    write: _Act
    read: _Act


class Forms:
    """Those of one dump, with its shapes. `sorts`: equal mappings are written alike, whatever their order.
    `renamed`: what is written for each text."""

    def __init__(self, sorts: bool = False, renamed: Callable[[str], str] = str) -> None:
        self._sorts = sorts
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._forms: dict[Any, Form] = {kind: _plain(kind) for kind in (bool, NoneType)}
        self._forms[str] = Form(renamed, _plain(str).read)
        self._forms[int] = Form(int, _plain(int).read)  # those of numpy, too
        self._forms[float] = Form(_write_number, _read_number)
        self._forms[object] = self._forms[NoneType]  # what means something to one process alone
        self._forms[AmountRows] = Form(lambda rows: [rows.shape[1], rows.tolist()], _read_rows)
        self._forms[Shape] = Form(self._number, lambda number: self._shapes[_exactly(int, number)])
        self._forms[bytes] = self._as(str, bytes.decode, str.encode)
        pairs = tuple[LabelPairs, tuple[LabelPairs, ...]]
        self._forms[NodePart] = self._as(pairs, lambda it: (it.labels, it.before), lambda it: NodePart(*it))
        rows = tuple[NodeRecord | None, ...]
        self._forms[NodeTable] = self._as(rows, lambda table: table.nodes, NodeTable)
        self._forms[OtherPods] = self._as(tuple[PodRecord, ...], tuple, _others)
        self._forms[TermIndex] = self._as(tuple[Term, ...], tuple, _index)

    def write(self, kind: Any, value: object) -> Any:
        """For msgspec to encode: parts of it are encoded already."""
        return self._of(kind).write(value)

    def read(self, kind: Any, written: Any) -> Any:
        """Raises Misread."""
        try:
            return self._of(kind).read(written)
        except Exception as fault:  # of hundreds of fields of all types, whatever stands there
            raise _misread(fault) from fault

    # ---- shapes

    def write_shapes(self) -> Any:
        """Those of all that has been written. None of a snapshot is bound to a part of the nodes."""
        return self.write(_WRITTEN, [(shape.requests, shape.constraints) for shape in self._shapes])

    def read_shapes(self, written: Any) -> None:
        """Before all that has them. Raises Misread."""
        self._shapes = [Shape(*parts) for parts in self.read(_WRITTEN, written)]

    def _number(self, shape: Shape) -> int:
        if shape not in self._numbers:
            self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
        return self._numbers[shape]

    # ---- types

    def _of(self, kind: Any) -> Form:
        if kind not in self._forms:
            made = self._made(kind)
            self._forms[kind] = Form(_packed(made.write), made.read) if kind in _MANY else made
        return self._forms[kind]

    def _as(self, other: Any, write: _Act, read: _Act) -> Form:
        """Of values that are written as those of another type."""
        form = self._of(other)
        return Form(lambda value: form.write(write(value)), lambda written: read(form.read(written)))

    def _made(self, kind: Any) -> Form:
        if isinstance(kind, NewType):
            return self._of(kind.__supertype__)
        origin, of = get_origin(kind) or kind, get_args(kind)
        if NoneType in of:
            write, read = self._of(next(each for each in of if each is not NoneType))
            return Form(
                lambda value: None if value is None else write(value),
                lambda written: None if written is None else read(written),
            )
        if issubclass(origin, Enum):
            return Form(lambda value: value.value, kind)
        if issubclass(origin, Mapping):
            return self._mapping(
                self._of(of[0]), self._of(of[1]), getattr(of[0], "__supertype__", of[0]) is str
            )
        if origin is tuple and of[-1] is not ...:
            return _fixed([*map(self._of, of)])
        if of and issubclass(origin, Set):
            form = self._of(of[0])
            return Form(
                lambda values: sorted(map(form.write, values), key=repr),
                lambda written: frozenset(map(form.read, _exactly(list, written))),
            )
        if of and issubclass(origin, Collection):
            form, made = self._of(of[0]), list if origin is list else tuple
            return Form(
                lambda values: [*map(form.write, values)],
                lambda written: made(map(form.read, _exactly(list, written))),
            )
        return self._record(kind)

    def _mapping(self, keys: Form, values: Form, by_text: bool) -> Form:
        if by_text:
            return Form(
                lambda value: {keys.write(key): values.write(it) for key, it in value.items()},
                lambda written: {
                    keys.read(key): values.read(it) for key, it in _exactly(dict, written).items()
                },
            )

        def write(value: Mapping[Any, Any]) -> list[Any]:
            pairs = [[keys.write(key), values.write(it)] for key, it in value.items()]
            return sorted(pairs, key=repr) if self._sorts else pairs

        return Form(write, lambda written: {keys.read(key): values.read(it) for key, it in written})

    def _record(self, kind: Any) -> Form:
        """Of a Struct or a NamedTuple."""
        forms = [(name, self._of(of), default) for name, of, default in _fields_of(kind)]
        readers = {name: form.read for name, form, _ in forms}

        def write(value: Any) -> dict[str, Any]:
            parts = ((name, form, getattr(value, name), default) for name, form, default in forms)
            return {name: form.write(part) for name, form, part, usual in parts if not _equal(part, usual)}

        def read(written: Any) -> Any:
            given, at = {}, ""
            try:
                for name, part in _exactly(dict, written).items():
                    at = f".{name}"
                    given[name] = readers[name](part)
                at = ""
                return kind(**given)
            except Exception as fault:
                raise Misread(f"{kind.__name__}{at}: {_misread(fault)}") from fault

        return Form(write, read)


_NONE = object()  # no value at all


@cache
def _fields_of(kind: Any) -> Sequence[tuple[str, Any, object]]:
    """The name, type and default of each."""
    types = get_type_hints(kind)
    if not issubclass(kind, msgspec.Struct):
        return [(name, types[name], kind._field_defaults.get(name, _NONE)) for name in kind._fields]
    found = []
    for field in fields(kind):
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        found.append((field.name, types[field.name], _NONE if default is msgspec.NODEFAULT else default))
    return found


def _packed(write: _Act) -> _Act:
    return lambda value: msgspec.Raw(msgspec.json.encode(write(value)))


def _equal(one: object, other: object) -> bool:
    """Mappings of different kinds may be; 1 and 1.0 are not, since they are shown differently."""
    return one is other or ((type(one) is type(other) or isinstance(one, Mapping)) and one == other)


def _plain(kind: type) -> Form:
    return Form(lambda value: value, lambda written: _exactly(kind, written))


def _exactly(kind: type, written: Any) -> Any:
    if type(written) is not kind:
        raise Misread(f"got {str(written)[:40]!r}, which is no {kind.__name__}")
    return written


def _misread(fault: Exception) -> Misread:
    return fault if isinstance(fault, Misread) else Misread(f"{type(fault).__name__}: {fault}")


def _write_number(number: float) -> float | str:
    return str(number) if isinf(number) else number


def _read_number(written: Any) -> float:
    return written if type(written) in (float, int) else _INFINITE[written]


def _read_rows(written: Any) -> AmountRows:
    columns, rows = written
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _fixed(forms: Sequence[Form]) -> Form:
    return Form(
        lambda value: [form.write(part) for form, part in zip(forms, value, strict=True)],
        lambda written: tuple(form.read(part) for form, part in zip(forms, written, strict=True)),
    )


def _others(pods: Sequence[PodRecord]) -> OtherPods:
    return OtherPods().with_changes({pod.uid: pod for pod in pods})


def _index(terms: Sequence[Term]) -> TermIndex:
    index = TermIndex()
    for term in terms:
        index.add(term)
    return index
