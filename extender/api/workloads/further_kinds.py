"""Kinds of jobs that a configuration adds to the table. Every fault is reported with the allowed values."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from extender.api.units import name_hint
from extender.api.workloads.shape import MAX_INT, POD, Count, Json, Kinds, Offspring, Path, Sign, WorkloadRow
from extender.api.workloads.table import WORKLOADS

_MAX_VALUE_LENGTH = 200  # characters; the maximum of a value in a message
_NAME = r"[A-Za-z0-9_-]+"
_PATH_RE = re.compile(rf"(?P<first>{_NAME}(?:\.{_NAME})*)(?:\[\*\]\.(?P<inside>{_NAME}(?:\.{_NAME})*))?")
_MAX_PATH_LENGTH = 500  # characters
NEVER = "never"
_DNS = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_API_VERSION = rf"{_DNS}(?:\.{_DNS})*/v[0-9]+(?:(?:alpha|beta)[0-9]+)?"
_VERSION_FORM = "an API group and version such as example.com/v1"
_KIND_FORM = "a kind such as TrainingRun"
_NAME_FORM = "lower-case letters, digits and '-'"
_SUSPEND_FORM = "a path in the spec such as spec.suspend"
_TEMPLATE_FORM = "a path in the spec such as spec.template or spec.workers[*].template"
_COUNT_FORM = f"a whole number from 1 to {MAX_INT}, or a path in the spec, in the same items as the template"
_STATUS_FORM = "a path in the status such as status.phase"
_SETS_FORM = "a list of sets of pods, each with a template, perhaps count and role"
_SIGN_FORM = f"{NEVER}, or conditions, or field and values"
_TEXTS_FORM = "a list of texts"

T = TypeVar("T")


class FileValue(NamedTuple):
    """Value in a configuration file, with its place.

    A fault does not end the reading, so `faults` has all faults of the file.
    """

    where: str
    value: Any
    faults: list[str]

    def refuse(self, allowed: str) -> None:
        """Add a fault: the value is not one of the allowed values."""
        text = repr(self.value)
        shortened_text = text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
        self.faults.append(f"{self.where}: invalid value {shortened_text}: must be {allowed}")

    def read(self, reader: Callable[[str], T], default: T, allowed: str) -> T:
        """Return the result of `reader` for the text; `default` if the value is invalid or missing.

        An invalid value is added to the faults. `reader` raises ValueError for an invalid text.
        """
        try:
            if isinstance(self.value, str):
                return reader(self.value)
        except ValueError:
            pass
        if self.value is not None:  # `fields` has reported a missing value already
            self.refuse(allowed)
        return default

    def text(self, pattern: str, allowed: str) -> str:
        def matching(text: str) -> str:
            if re.fullmatch(pattern, text) is None:
                raise ValueError(text)
            return text

        return self.read(matching, "", allowed)

    def texts(self, allowed: str) -> list[str]:
        return [item.text(r"\S(?:.*\S)?", "a text") for item in self.items(allowed)]

    def items(self, allowed: str) -> "list[FileValue]":
        """Return the items of a list. An empty list is a fault."""
        if isinstance(self.value, list) and self.value:
            numbered = enumerate(self.value)
            return [FileValue(f"{self.where}[{number}]", item, self.faults) for number, item in numbered]
        if self.value is not None:
            self.refuse(allowed)
        return []

    def fields(self, optional: tuple[str, ...] = (), **needed: str) -> "dict[str, FileValue]":
        """Return the fields of a mapping by name: all needed fields, and the optional fields that exist.

        The value of a needed field is a text with the allowed values, for messages.
        """
        mapping = self.value if isinstance(self.value, dict) else {}
        known = (*needed, *optional)
        if mapping is not self.value and self.value is not None:
            self.refuse(f"fields: {', '.join(known)}")
        elif self.value is not None:
            for name in mapping:
                if name not in known:
                    self.faults.append(f"{self.where}.{name}: unknown field: {name_hint(name, list(known))}")
            for name, allowed in needed.items():
                if mapping.get(name) is None:
                    self.faults.append(f"{self.where}.{name}: required value: {allowed}")
        return {
            name: FileValue(f"{self.where}.{name}", mapping.get(name), self.faults)
            for name in known
            if name in needed or name in mapping
        }


class FieldPath(NamedTuple):
    """Path of fields in a configuration: names of letters, digits, - and _, between dots.

    A name, except the last, may end with [*], as in spec.replicaSpecs[*].template. Then `items` is the path
    of a list or mapping, and `path` is the rest of the path in each item or value.
    """

    items: Path  # empty without [*]
    path: Path  # path in the object, or in each item


def as_field_path(text: str, root: str, *, allows_items: bool = False) -> FieldPath:
    """Return the path of a field below `root`. Only with `allows_items`, [*] is allowed.

    Raises:
        ValueError: The text is not such a path.
    """
    match = _PATH_RE.fullmatch(text) if len(text) <= _MAX_PATH_LENGTH else None
    if match is None or (match["inside"] and not allows_items):
        raise ValueError(text)
    first = tuple(match["first"].split("."))
    if first[0] != root or len(first) == 1:
        raise ValueError(text)
    inside = match["inside"]
    return FieldPath(first, tuple(inside.split("."))) if inside else FieldPath((), first)


class FurtherKind(msgspec.Struct, frozen=True):
    row: WorkloadRow
    document: Json  # the entry in the configuration file


def with_further(kinds: Sequence[FurtherKind]) -> Kinds:
    """Return the table of kinds together with further kinds."""
    return {**WORKLOADS, **{kind.row.key: kind.row for kind in kinds}}


def further_kinds(value: Any, where: str) -> tuple[tuple[FurtherKind, ...], list[str]]:
    """Return the kinds in a list of a configuration file, and the faults of the list.

    Numbers in the list are read as texts.
    """
    kinds = FileValue(where, value, [])
    rows = [(_row(entry), entry.value) for entry in kinds.items("a list of kinds")]
    known_keys = {*WORKLOADS}
    for number, (row, _) in enumerate(rows):
        if all(row.key) and row.key in known_keys:
            name = " ".join(row.key)
            kinds.faults.append(f"{where}[{number}]: invalid value {name}: must be a new kind, listed once")
        known_keys.add(row.key)
    return tuple(FurtherKind(*row) for row in rows), kinds.faults


def _row(entry: FileValue) -> WorkloadRow:
    """Return the row of a kind. The row is unusable if its entry has faults."""
    fields = entry.fields(
        apiVersion=_VERSION_FORM,
        kind=_KIND_FORM,
        plural=_NAME_FORM,
        suspend=_SUSPEND_FORM,
        podSets=_SETS_FORM,
        succeeded=_SIGN_FORM,
        failed=_SIGN_FORM,
    )
    return WorkloadRow(
        api_version=fields["apiVersion"].text(_API_VERSION, _VERSION_FORM),
        kind=fields["kind"].text("[A-Z][A-Za-z0-9]{0,62}", _KIND_FORM),
        irregular_plural=fields["plural"].text(_DNS, _NAME_FORM),
        suspend=_path(fields["suspend"], "spec", _SUSPEND_FORM),
        offspring=_pod_sets(fields["podSets"]),
        manageable=True,
        success=tuple(_signs(fields["succeeded"])),
        failure=tuple(_signs(fields["failed"])),
    )


def _pod_sets(entry: FileValue) -> tuple[Offspring, ...]:
    """Return the pod sets of an entry.

    Pod sets whose template has no [*] need distinct roles. For other pod sets, the names of the items are the
    roles.
    """
    pod_sets = tuple(map(_pod_set, entry.items(_SETS_FORM)))
    roles = Counter(pod_set.role for pod_set in pod_sets if not pod_set.parts)
    if duplicates := [role for role, number in roles.items() if number > 1]:
        entry.faults.append(f"{entry.where}: duplicate role {duplicates[0]!r}: roles must differ")
    return pod_sets


def _path(entry: FileValue, root: str, allowed: str) -> Path:
    return entry.read(lambda text: as_field_path(text, root), FieldPath((), ()), allowed).path


def _pod_set(entry: FileValue) -> Offspring:
    """Return the children that an entry of podSets describes."""
    fields = entry.fields(template=_TEMPLATE_FORM, optional=("count", "role"))
    template = fields["template"].read(
        lambda text: as_field_path(text, "spec", allows_items=True), FieldPath((), ()), _TEMPLATE_FORM
    )
    role = ""
    if "role" in fields:
        role = fields["role"].text(_DNS, _NAME_FORM)
        if template.items:
            reason = "the role of each set is the name of its item"
            fields["role"].refuse(f"absent where the template has [*]: {reason}")
    return Offspring(
        kind=POD,
        name="{owner}-{role}-" if role or template.items else "{owner}-",
        parts=template.items,
        template=template.path,
        role=role,
        count=_count(fields["count"], template.items) if "count" in fields else Count(),
    )


def _count(entry: FileValue, list_path: Path) -> Count:
    def read(text: str) -> Count:
        if re.fullmatch("[0-9]{1,10}", text):
            if not 1 <= int(text) <= MAX_INT:
                raise ValueError(text)
            return Count(default=int(text))
        path = as_field_path(text, "spec", allows_items=True)
        if path.items != list_path:
            raise ValueError(text)
        return Count(path=path.path)

    return entry.read(read, Count(), _COUNT_FORM)


def _signs(entry: FileValue) -> Iterator[Sign]:
    """Yield the signs that an entry states: conditions, or the values of a field. `never` means no sign."""
    if entry.value in (None, NEVER):
        return
    if isinstance(entry.value, dict) and "conditions" in entry.value:
        conditions = entry.fields(conditions=_TEXTS_FORM)["conditions"].texts(_TEXTS_FORM)
        yield from (Sign(condition=condition) for condition in conditions)
        return
    if not isinstance(entry.value, dict):
        entry.refuse(_SIGN_FORM)
        return
    fields = entry.fields(field=_STATUS_FORM, values=_TEXTS_FORM)
    path = _path(fields["field"], "status", _STATUS_FORM)
    yield Sign(fields={path: tuple(fields["values"].texts(_TEXTS_FORM))})
