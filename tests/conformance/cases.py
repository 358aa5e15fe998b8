"""Reader of files of cases (data/README.md). Fields that are not in the schemas are errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.conformance.left_out import CaseData, filled

DATA = Path(__file__).parent / "data"
_SCHEMA = 1
# Fields that describe a case of queueing.json; all other fields are its input.
_DESCRIPTIVE_FIELDS = {"id", "family", "title", "source", "checked_by_model", "expect"}


class BadCases(ValueError):
    """Error: a file has invalid cases. The message names the file and the fault."""


class Case(msgspec.Struct, frozen=True, eq=False):
    """Case of either format; compared by identity, so that its result can be cached."""

    id: str
    kind: str
    """Tested behaviour: the `kind` of volcano.json, the `family` of queueing.json."""
    input: dict[str, Any]
    """Given objects. Nothing in it is null, and optional fields have their defaults."""
    expect: dict[str, Any] = {}
    title: str = ""
    origin: str = ""
    """Where the case comes from: a test, code, documentation."""
    tags: list[str] = []
    file: str = ""
    """The name of the file that it is from."""


class CaseFile(msgspec.Struct, frozen=True):
    """File of cases. Both formats differ in the name of the version."""

    cases: list[dict[str, Any]]
    schema: int | None = msgspec.field(name="schemaVersion", default=None)
    schema_of_families: int | None = msgspec.field(name="schema_version", default=None)

    @property
    def version(self) -> int | None:
        return self.schema_of_families if self.schema is None else self.schema


def load(*paths: Path) -> list[Case]:
    """Return the cases of these files, and of all files `*.json` in these folders.

    Raises BadCases.
    """
    return [case for path in paths for file in _files(path) for case in _read(file)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if files := sorted(path.rglob("*.json")):
        return files
    raise BadCases(f"{path}: no file *.json in this folder")


def _read(file: Path) -> Iterator[Case]:
    try:
        content = msgspec.json.decode(file.read_bytes(), type=CaseFile)
    except OSError as fault:
        raise BadCases(f"{file}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise BadCases(f"{file}: {fault}") from fault
    if content.version != _SCHEMA:
        raise BadCases(f"{file}: schema version {content.version}: must be {_SCHEMA}")
    for number, data in enumerate(content.cases):
        yield _case(file, number, data)


def _case(file: Path, number: int, data: CaseData) -> Case:
    try:
        case = msgspec.convert({**_in_volcano_form(data), "file": file.name}, Case)
    except msgspec.ValidationError as fault:
        raise BadCases(f"{file}: case {number}: {fault}") from fault
    return msgspec.structs.replace(case, input=filled(case.kind, case.input))


def _in_volcano_form(raw: CaseData) -> CaseData:
    """Return the case in the form of volcano.json."""
    if "family" not in raw:
        return raw
    data = {name: value for name, value in raw.items() if name not in _DESCRIPTIVE_FIELDS}
    source = raw.get("source")
    origin = source.get("kind", "") if isinstance(source, dict) else ""
    return {**raw, "kind": raw["family"], "input": data, "origin": origin}
