"""Reading a file of cases (data/README.md). What is not of their schema is refused, with its place."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

Given = dict[str, Any]
_SESSION: Given = {"actions": [], "tiers": [[]], "nodes": [], "queues": [], "podGroups": [], "pods": []}
_TASKS: Given = {"tasks": [], "minMember": 0, "currentPhase": "Pending", "unschedulableThisCycle": False}
# What a case may leave out, by its kind, and what each object of a list may.
_LEFT_OUT: dict[str, Given] = {
    "session": _SESSION,
    "session.multi": {"nodes": [], "queues": [], "cycles": []},
    "gang.releasing": _TASKS,
    "podgroup.phase": _TASKS,
    "podgroup.build": {"pods": []},
    "overcommit": {"nodes": [], "alreadyReserved": [], "minResources": {}},
    "queue.state": {"podGroups": 0, "storedState": "", "action": "SyncQueue"},
    "queue.state.handler": {"storedState": ""},
    "queue.sync": {"podGroups": []},
    "queue.share": {"deserved": {}, "allocated": {}, "request": {}},
    "deserved": {"queues": [], "total": {}},
    "resource.op": {"left": {}, "right": {}},
    "cli": {"flags": {}, "queues": [], "podGroups": [], "counts": {}},
}
_LEFT_OUT_OF_EACH: dict[str, Given] = {
    "podGroups": {"namespace": "default", "queue": "default", "minMember": 0},
    "pods": {"namespace": "default", "podgroup": ""},
    "nodes": {"allocatable": {}},
    "tasks": {"status": "Pending", "node": ""},
}

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
    return [replace(case, input=_filled(case.kind, case.input)) for case in content.cases]


def _filled(kind: str, given: Given) -> Given:
    """What a case gives, with what its schema lets it leave out."""
    made: Given = _LEFT_OUT.get(kind, {}) | _told(given)
    for name, ofeach in _LEFT_OUT_OF_EACH.items():
        if isinstance(made.get(name), list):
            made[name] = [ofeach | each if isinstance(each, dict) else each for each in made[name]]
    return made


def _told(given: Any) -> Any:
    """What a case says, without what it leaves open by writing null: in the schema its key is missing."""
    match given:
        case dict():
            return {key: _told(value) for key, value in given.items() if value is not None}
        case list():
            return [_told(each) for each in given]
    return given
