"""Kinds of jobs that a configuration adds to the table, as data. All faults of it are told, each with the
place, the value and what is allowed there.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from extender.api.workloads.core import POD
from extender.api.workloads.field_paths import FieldPath, as_field_path
from extender.api.workloads.shape import MOST, Count, Json, Kinds, Offspring, Path, Sign, WorkloadRow
from extender.api.workloads.table import WORKLOADS
from extender.api.workloads.written import Written

NEVER = "never"
_DNS = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_API_VERSION = rf"{_DNS}(?:\.{_DNS})*/v[0-9]+(?:(?:alpha|beta)[0-9]+)?"
_VERSION_FORM = "an API group and version such as example.com/v1"
_KIND_FORM = "a kind such as TrainingRun"
_NAME_FORM = "lower-case letters, digits and '-'"
_SUSPEND_FORM = "a path in the spec such as spec.suspend"
_TEMPLATE_FORM = "a path in the spec such as spec.template or spec.workers[*].template"
_COUNT_FORM = f"a whole number from 1 to {MOST}, or a path in the spec, in the same items as the template"
_STATUS_FORM = "a path in the status such as status.phase"
_SETS_FORM = "a list of sets of pods, each with a template, perhaps count and role"
_SIGN_FORM = f"{NEVER}, or conditions, or field and values"
_TEXTS_FORM = "a list of texts"


class FurtherKind(msgspec.Struct, frozen=True):
    """`written`: the entry of the configuration."""

    row: WorkloadRow
    written: Json


def with_further(kinds: Sequence[FurtherKind]) -> Kinds:
    """The whole table."""
    return {**WORKLOADS, **{each.row.key: each.row for each in kinds}}


def further_kinds(value: Any, where: str) -> tuple[tuple[FurtherKind, ...], list[str]]:
    """Those of a list in a file, whose numbers may be texts, and what is wrong with it."""
    given = Written(where, value, [])
    rows = [(_row(each), each.value) for each in given.items("a list of kinds")]
    known = {*WORKLOADS}
    for number, (row, _) in enumerate(rows):
        if all(row.key) and row.key in known:
            name = " ".join(row.key)
            given.faults.append(f"{where}[{number}]: got {name}; allowed is a kind that Muster lacks, once")
        known.add(row.key)
    return tuple(FurtherKind(*each) for each in rows), given.faults


def _row(given: Written) -> WorkloadRow:
    """Of no use if there are faults."""
    fields = given.fields(
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
        named=fields["plural"].text(_DNS, _NAME_FORM),
        suspend=_path(fields["suspend"], "spec", _SUSPEND_FORM),
        offspring=tuple(_pod_sets(fields["podSets"])),
        manageable=True,
        succeeded=tuple(_signs(fields["succeeded"])),
        failed=tuple(_signs(fields["failed"])),
    )


def _path(given: Written, root: str, allowed: str) -> Path:
    return given.read(lambda text: as_field_path(text, root), FieldPath((), ()), allowed).path


def _pod_sets(given: Written) -> Iterator[Offspring]:
    """Those without [*] need roles that differ, and the others the names of their items."""
    found = [_pod_set(each) for each in given.items(_SETS_FORM)]
    roles = Counter(each.role for each in found if not each.each)
    if twice := [role for role, number in roles.items() if number > 1]:
        given.faults.append(f"{given.where}: got the role {twice[0]!r} twice; allowed are different roles")
    yield from found


def _pod_set(given: Written) -> Offspring:
    fields = given.fields(template=_TEMPLATE_FORM, optional=("count", "role"))
    template = fields["template"].read(
        lambda text: as_field_path(text, "spec", many=True), FieldPath((), ()), _TEMPLATE_FORM
    )
    role = ""
    if "role" in fields:
        role = fields["role"].text(_DNS, _NAME_FORM)
        if template.each:
            fields["role"].refused("nothing where the template has [*]: each set is called as its item")
    return Offspring(
        made=POD,
        name="{owner}-{role}-" if role or template.each else "{owner}-",
        each=template.each,
        template=template.path,
        role=role,
        count=_count(fields["count"], template.each) if "count" in fields else Count(),
    )


def _count(given: Written, each: Path) -> Count:
    def read(text: str) -> Count:
        if re.fullmatch("[0-9]{1,10}", text):
            if not 1 <= int(text) <= MOST:
                raise ValueError(text)
            return Count(default=int(text))
        path = as_field_path(text, "spec", many=True)
        if path.each != each:
            raise ValueError(text)
        return Count(path=path.path)

    return given.read(read, Count(), _COUNT_FORM)


def _signs(given: Written) -> Iterator[Sign]:
    if given.value in (None, NEVER):
        return
    if isinstance(given.value, dict) and "conditions" in given.value:
        found = given.fields(conditions=_TEXTS_FORM)["conditions"].texts(_TEXTS_FORM)
        yield from (Sign(condition=each) for each in found)
        return
    if not isinstance(given.value, dict):
        given.refused(_SIGN_FORM)
        return
    fields = given.fields(field=_STATUS_FORM, values=_TEXTS_FORM)
    path = _path(fields["field"], "status", _STATUS_FORM)
    yield Sign(fields={path: tuple(fields["values"].texts(_TEXTS_FORM))})
