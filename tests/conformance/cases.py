"""Reading a file of cases (data/README.md). What is not of their schema is refused, with its place."""

from pathlib import Path
from typing import Any

import msgspec

DATA = Path(__file__).parent / "data" / "volcano.json"


class BadCases(ValueError):
    """A file that does not hold cases; the message names the file and the fault."""


class Case(msgspec.Struct, frozen=True):
    id: str
    kind: str
    input: dict[str, Any]
    expect: dict[str, Any]
    title: str = ""
    origin: str = ""
    tags: list[str] = []


class CaseFile(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int
    cases: list[Case]


def load(path: Path) -> list[Case]:
    """The cases of a file. Raises BadCases."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=CaseFile)
    except OSError as fault:
        raise BadCases(f"{path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise BadCases(f"{path}: {fault}") from fault
    if content.schema_version != 1:
        raise BadCases(f"{path}: schemaVersion {content.schema_version}; allowed is 1")
    return content.cases
