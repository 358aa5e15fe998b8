"""Dump: the snapshot of the latest decisions, and these decisions, so that developers can repeat them.

A dump can have pseudonyms instead of names. Records are written as JSON by the types of their fields:

- A record is an object without the fields that have their default.
- A mapping is a list of pairs if its keys are not texts.
- An infinite number is a text.
- A shape is compared by identity. Therefore each shape is written once, and is referred to by its number.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import Enum
from functools import cache
from hashlib import blake2b
from math import inf, isinf
from types import NoneType
from typing import Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec.structs import fields, replace

from extender.api.units import timestamp_at
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import LabelPairs, NodePart
from extender.domain.model.shapes import Constraints, Shape, Term, TermIndex
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.decisions import Decisions, GroupDecision, verdict_of
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import AmountRows, Levels, NodeRecord, NodeTable, Topologies
from extender.domain.snapshot.snapshot import OtherPods, Snapshot

_INFINITE_NUMBERS = {"inf": inf, "-inf": -inf}
_WRITTEN_SHAPES = tuple[tuple[Resources, Constraints], ...]  # types of the written shapes
# Types with up to 100,000 objects. Each object is encoded at once, since millions of parts take too long.
_FREQUENT_TYPES = (GroupInfo, PodRecord)
_Conversion = Callable[[Any], Any]


class Misread(ValueError):
    """Error: a part of a dump cannot be read. The message names the part."""


class Form(NamedTuple):
    """Conversions of the values of one type. If `read` raises any error, the value cannot be read."""

    write: _Conversion
    read: _Conversion


class Forms:
    """Forms of one dump, with its shapes.

    Args:
        sorts_mappings: Whether mappings are written in sorted order, so that equal mappings are written
            equally.
        rename: Returns the text to write for each text.
    """

    def __init__(self, sorts_mappings: bool = False, rename: Callable[[str], str] = str) -> None:
        self._sorts_mappings = sorts_mappings
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._forms: dict[Any, Form] = {kind: _plain_form(kind) for kind in (bool, NoneType)}
        self._forms[str] = Form(rename, _plain_form(str).read)
        self._forms[int] = Form(int, _plain_form(int).read)  # also for integers of numpy
        self._forms[float] = Form(_write_number, _read_number)
        self._forms[object] = self._forms[NoneType]  # values of the process are left out
        self._forms[AmountRows] = Form(lambda rows: [rows.shape[1], rows.tolist()], _read_rows)
        self._forms[Shape] = Form(self._number_of, lambda number: self._shapes[_read_exactly(int, number)])
        self._forms[bytes] = self._as_other_type(str, bytes.decode, str.encode)
        part_type = tuple[LabelPairs, tuple[LabelPairs, ...]]
        self._forms[NodePart] = self._as_other_type(
            part_type, lambda part: (part.labels, part.earlier_parts), lambda pair: NodePart(*pair)
        )
        table = tuple[tuple[NodeRecord | None, ...], tuple[Levels, ...]]
        self._forms[NodeTable] = self._as_other_type(
            table, lambda t: (t.nodes, t.topologies.level_lists), lambda p: NodeTable(p[0], Topologies(p[1]))
        )
        self._forms[OtherPods] = self._as_other_type(tuple[PodRecord, ...], tuple, _as_other_pods)
        self._forms[TermIndex] = self._as_other_type(tuple[Term, ...], tuple, _as_term_index)

    def write(self, kind: Any, value: object) -> Any:
        """Return a value that msgspec can encode, and of which some parts are already encoded."""
        return self._form_of(kind).write(value)

    def read(self, kind: Any, document: Any) -> Any:
        """Return the value that was written.

        Raises:
            Misread: The value cannot be read.
        """
        try:
            return self._form_of(kind).read(document)
        except Exception as fault:  # a field of a dump may hold any value
            raise _as_misread(fault) from fault

    def write_shapes(self) -> Any:
        """Return all written shapes. No shape of a snapshot is bound to a part of the nodes."""
        return self.write(_WRITTEN_SHAPES, [(shape.requests, shape.constraints) for shape in self._shapes])

    def read_shapes(self, written: Any) -> None:
        """Read all shapes, before the records that refer to them are read. Raises Misread."""
        self._shapes = [Shape(*parts) for parts in self.read(_WRITTEN_SHAPES, written)]

    def _number_of(self, shape: Shape) -> int:
        """Return the number by which a shape is written."""
        if shape not in self._numbers:
            self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
        return self._numbers[shape]

    def _form_of(self, kind: Any) -> Form:
        """Return the form of a type, made on the first call."""
        if kind not in self._forms:
            forms = self._forms  # a type that contains itself looks up its form later
            forms[kind] = Form(lambda value: forms[kind].write(value), lambda text: forms[kind].read(text))
            form = self._make_form(kind)
            self._forms[kind] = Form(_encoded(form.write), form.read) if kind in _FREQUENT_TYPES else form
        return self._forms[kind]

    def _as_other_type(self, other_type: Any, convert: _Conversion, restore: _Conversion) -> Form:
        """Return the form of a type whose values are written as values of another type."""
        form = self._form_of(other_type)
        return Form(lambda value: form.write(convert(value)), lambda written: restore(form.read(written)))

    def _make_form(self, kind: Any) -> Form:
        """Return the form of a type, made from the forms of its parts."""
        if isinstance(kind, NewType):
            return self._form_of(kind.__supertype__)
        origin, args = get_origin(kind) or kind, get_args(kind)
        if NoneType in args:
            write, read = self._form_of(next(arg for arg in args if arg is not NoneType))
            return Form(
                lambda value: None if value is None else write(value),
                lambda written: None if written is None else read(written),
            )
        if issubclass(origin, Enum):
            return Form(lambda value: value.value, kind)
        if issubclass(origin, Mapping):
            return self._mapping_form(
                self._form_of(args[0]),
                self._form_of(args[1]),
                has_text_keys=getattr(args[0], "__supertype__", args[0]) is str,
            )
        if origin is tuple and args[-1] is not ...:
            return _tuple_form([*map(self._form_of, args)])
        if args and issubclass(origin, Set):
            form = self._form_of(args[0])
            return Form(
                lambda values: sorted(map(form.write, values), key=repr),
                lambda written: frozenset(map(form.read, _read_exactly(list, written))),
            )
        if args and issubclass(origin, Collection):
            form, container = self._form_of(args[0]), list if origin is list else tuple
            return Form(
                lambda values: [*map(form.write, values)],
                lambda written: container(map(form.read, _read_exactly(list, written))),
            )
        return self._record_form(kind)

    def _mapping_form(self, keys: Form, values: Form, has_text_keys: bool) -> Form:
        """Return the form of a mapping: a JSON object if the keys are texts, otherwise a list of pairs."""
        if has_text_keys:
            return Form(
                lambda value: {keys.write(key): values.write(item) for key, item in value.items()},
                lambda written: {
                    keys.read(key): values.read(item) for key, item in _read_exactly(dict, written).items()
                },
            )

        def write(value: Mapping[Any, Any]) -> list[Any]:
            pairs = [[keys.write(key), values.write(item)] for key, item in value.items()]
            return sorted(pairs, key=repr) if self._sorts_mappings else pairs

        return Form(write, lambda written: {keys.read(key): values.read(item) for key, item in written})

    def _record_form(self, kind: Any) -> Form:
        """Return the form of a Struct or a NamedTuple."""
        forms = [(name, self._form_of(type_), default) for name, type_, default in _fields_of(kind)]
        readers = {name: form.read for name, form, _ in forms}

        def write(value: Any) -> dict[str, Any]:
            parts = ((name, form, getattr(value, name), default) for name, form, default in forms)
            return {name: form.write(part) for name, form, part, usual in parts if not _is_equal(part, usual)}

        def read(document: Any) -> Any:
            values, path = {}, ""
            try:
                for name, part in _read_exactly(dict, document).items():
                    path = f".{name}"
                    values[name] = readers[name](part)
                path = ""
                return kind(**values)
            except Exception as fault:
                raise Misread(f"{kind.__name__}{path}: {_as_misread(fault)}") from fault

        return Form(write, read)


_NO_VALUE = object()  # means that a field has no default


@cache
def _fields_of(kind: Any) -> Sequence[tuple[str, Any, object]]:
    """Return the name, type and default of each field."""
    types = get_type_hints(kind)
    if not issubclass(kind, msgspec.Struct):
        return [(name, types[name], kind._field_defaults.get(name, _NO_VALUE)) for name in kind._fields]
    result = []
    for field in fields(kind):
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        result.append((field.name, types[field.name], _NO_VALUE if default is msgspec.NODEFAULT else default))
    return result


def _encoded(write: _Conversion) -> _Conversion:
    """Return a conversion that also encodes the result as JSON."""
    return lambda value: msgspec.Raw(msgspec.json.encode(write(value)))


def _is_equal(one: object, other: object) -> bool:
    """Return whether two values are equal. 1 and 1.0 are not equal, since they are written differently."""
    return one is other or ((type(one) is type(other) or isinstance(one, Mapping)) and one == other)


def _plain_form(kind: type) -> Form:
    """Return the form of a type whose values are written unchanged."""
    return Form(lambda value: value, lambda written: _read_exactly(kind, written))


def _read_exactly(kind: type, written: Any) -> Any:
    if type(written) is not kind:
        raise Misread(f"invalid value {str(written)[:40]!r}, which is no {kind.__name__}")
    return written


def _as_misread(fault: Exception) -> Misread:
    return fault if isinstance(fault, Misread) else Misread(f"{type(fault).__name__}: {fault}")


def _write_number(number: float) -> float | str:
    return str(number) if isinf(number) else number


def _read_number(written: Any) -> float:
    return written if type(written) in (float, int) else _INFINITE_NUMBERS[written]


def _read_rows(written: Any) -> AmountRows:
    columns, rows = written
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _tuple_form(forms: Sequence[Form]) -> Form:
    return Form(
        lambda value: [form.write(part) for form, part in zip(forms, value, strict=True)],
        lambda written: tuple(form.read(part) for form, part in zip(forms, written, strict=True)),
    )


def _as_other_pods(pods: Sequence[PodRecord]) -> OtherPods:
    return OtherPods().with_changes({pod.uid: pod for pod in pods})


def _as_term_index(terms: Sequence[Term]) -> TermIndex:
    index = TermIndex()
    for term in terms:
        index.add(term)
    return index


DUMP_KIND = "MusterDump"


class InvalidDump(ValueError):
    """Error of a dump, for users."""


class DumpFile(msgspec.Struct, frozen=True, kw_only=True):
    """File of a dump in JSON. `Forms` writes and reads the last three fields."""

    kind: str = DUMP_KIND
    muster: str  # version of Muster that wrote the file; other versions refuse it
    python: str
    taken: str  # time of the snapshot, as a timestamp
    slept: int  # number of groups that the cycle did not evaluate
    renamed: bool = False  # whether names are hashed, and decisions made again
    otherwise: int = 0  # number of groups with another decision after renaming
    configuration: Mapping[str, Any]
    shapes: Sequence[Any]
    decisions: Mapping[str, Any]
    snapshot: Mapping[str, Any]


class Dump(msgspec.Struct, frozen=True):
    file: DumpFile
    snapshot: Snapshot
    decisions: Decisions


def dump(decisions: Decisions, versions: Mapping[str, str], configuration: Mapping[str, Any]) -> bytes | None:
    """Return the dump of the latest decisions. None means that no decisions were made yet.

    A dump of 40,000 pods takes two seconds. It needs no lock, since decisions never change. `versions` has
    the versions of `muster` and `python`.
    """
    if (carried_facts := read_facts(decisions)) is None:
        return None
    forms, snapshot = Forms(), carried_facts.snapshot
    dump_file = DumpFile(
        muster=versions["muster"],
        python=versions["python"],
        taken=timestamp_at(snapshot.epoch + snapshot.now),
        slept=len(snapshot.groups) - len(carried_facts.evaluation.cycle.decisions),
        configuration=configuration,
        decisions=forms.write(Decisions, _without_history(decisions)),
        snapshot=forms.write(Snapshot, snapshot),
        shapes=forms.write_shapes(),
    )
    return msgspec.json.encode(dump_file)


def read_dump(encoded_dump: bytes, version: str) -> Dump:
    """Return the dump in a file.

    Raises:
        InvalidDump: The file cannot be read, or is of another version.
    """
    try:
        document = msgspec.json.decode(encoded_dump)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidDump(f"it is no JSON, or was cut off: {fault}") from fault
    if not isinstance(document, dict) or document.get("kind") != DUMP_KIND:
        raise InvalidDump(f"its kind is not {DUMP_KIND}")
    if document.get("muster") != version:
        raise InvalidDump(f"muster {document.get('muster')} wrote it, and this is muster {version}")
    forms = Forms()
    try:
        file = msgspec.convert(document, DumpFile)
        forms.read_shapes(file.shapes)
        return Dump(file, forms.read(Snapshot, file.snapshot), forms.read(Decisions, file.decisions))
    except (msgspec.ValidationError, Misread) as fault:
        raise InvalidDump(f"it is not as muster wrote it: {fault}") from fault


class ChangedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changed decision on one group. None means that there was no decision."""

    group: GroupKey
    before: GroupDecision | None = None
    now: GroupDecision | None = None


class Replay(msgspec.Struct, frozen=True):
    """Result of deciding on a snapshot again."""

    is_same: bool  # whether all decisions are equal byte for byte
    differences: tuple[ChangedDecision, ...]  # sorted by group
    decisions: Decisions


def replay(snapshot: Snapshot, old: Decisions) -> Replay:
    """Decide without a previous cycle, then again after that cycle, and compare both results with `old`."""
    decisions = decide(snapshot)
    result = decide(replace(snapshot, version=snapshot.version + 1), decisions)
    is_same = as_bytes(old) == as_bytes(decisions) == as_bytes(replace(result, version=decisions.version))
    return Replay(is_same, differences(old, decisions), decisions)


def differences(old_decisions: Decisions, decisions: Decisions) -> tuple[ChangedDecision, ...]:
    keys = sorted(old_decisions.groups.keys() | decisions.groups.keys())
    pairs = (ChangedDecision(key, old_decisions.groups.get(key), decisions.groups.get(key)) for key in keys)
    return tuple(pair for pair in pairs if pair.before != pair.now)


def as_bytes(decisions: Decisions) -> bytes:
    """Return decisions as bytes. Equal decisions have equal bytes."""
    return msgspec.json.encode(
        Forms(sorts_mappings=True).write(Decisions, _without_history(decisions)), order="sorted"
    )


def _without_history(decisions: Decisions) -> Decisions:
    """Return decisions without their serial, changes and memory, which depend on the previous cycle."""
    return replace(decisions, serial=0, changed_groups=(), renumbered_groups=(), memory=None)


# Words that decisions depend on, or that selectors contain.
_PLAIN_WORDS = """
    default root pod cpu memory pods ephemeral-storage of 0.0.0.0 muster
    Pending Inqueue Running Completed Unknown Aborted Succeeded Failed Unschedulable SchedulingGated
    capability deserved guarantee borrowing_limit lending_limit
    Open Closed Closing Hold HoldAndDrain Pack Spread traverse fifo priority rotation mixed fair
    PodDisruptionBudgets Preemptable NoSchedule NoExecute PreferNoSchedule TCP UDP SCTP all
    In NotIn Exists DoesNotExist Gt Lt Equal metadata.name null true false
    key operator values matchLabels matchExpressions matchFields
"""
_TEXT_PART = re.compile(
    r"(?P<kept>\d{4}-\d\d-\d\dT[\d:.+-]+Z?|(?:[a-z0-9-]+\.)*(?:kubernetes|k8s)\.io/[\w.-]+)"
    r"|[^\x00-,/:-@\[-^`{-\x7f]+"
)  # matches times, keys of Kubernetes, and words


class Pseudonyms:
    """Pseudonyms of texts: each part is hashed, except for known words. Equal parts stay equal everywhere."""

    def __init__(self, hash_part: Callable[[str], str], resources: Sequence[str]) -> None:
        self._hash_part = hash_part
        words = _TEXT_PART.finditer(" ".join([_PLAIN_WORDS, *resources]))
        self._pseudonym_by_part: dict[str, str] = {word[0]: word[0] for word in words}

    def __call__(self, text: str) -> str:
        return _TEXT_PART.sub(self._rename_part, text)

    def _rename_part(self, match: re.Match[str]) -> str:
        """Return a part of a text unchanged if it reveals nothing, and otherwise its pseudonym."""
        part = match[0]
        if match["kept"] or part.lstrip("-").isdecimal():
            return part
        if part not in self._pseudonym_by_part:
            self._pseudonym_by_part[part] = self._hash_part(part)
        return self._pseudonym_by_part[part]


def keyed_hash(key: bytes) -> Callable[[str], str]:
    """Return a hash function for texts, with a secret `key` for one dump.

    Without a key, names could be guessed.
    """
    return lambda part: f"x{blake2b(part.encode(), digest_size=6, key=key).hexdigest()}"


def rename_dump(original: Dump, hash_part: Callable[[str], str]) -> bytes:
    """Return the dump with other names and new decisions, but without the configuration.

    Decisions may differ where the order depends on names.
    """
    rename = Pseudonyms(hash_part, original.snapshot.dimensions)
    forms, new_forms = Forms(rename=rename), Forms()
    snapshot = msgspec.json.encode(forms.write(Snapshot, original.snapshot))
    new_forms.read_shapes(shapes := forms.write_shapes())
    decisions = decide(new_forms.read(Snapshot, msgspec.json.decode(snapshot)))
    pairs = (
        (old, decisions.groups.get(GroupKey(rename(key)))) for key, old in original.decisions.groups.items()
    )
    return msgspec.json.encode(
        replace(
            original.file,
            renamed=True,
            otherwise=sum(new is None or verdict_of(old) != verdict_of(new) for old, new in pairs),
            configuration={},
            decisions=new_forms.write(Decisions, _without_history(decisions)),
            snapshot=msgspec.Raw(snapshot),
            shapes=shapes,
        )
    )
