"""A case may leave out optional fields, or write null for them: its result stays the same."""

import json
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tests.conformance.cases import DATA, Case, load
from tests.conformance.judge import judge
from tests.conformance.left_out import filled
from tests.conformance.queueing import families
from tests.conformance.topology import skips as topology
from tests.conformance.volcano import kinds
from tests.rows import each_of

Place = tuple[str | int, ...]
CASES = load(DATA)
_REQUIRED_FIELDS = {"name", "object", "queue", "op", "command", "handler", "cycles", "queues"}
_ERROR_NAMES = ("KeyError", "AttributeError", "TypeError", "IndexError", "ValidationError", "Malformed")


def _places(data: Any, above: Place = ()) -> Iterator[Place]:
    match data:
        case dict():
            for key, value in data.items():
                yield (*above, key)
                yield from _places(value, (*above, key))
        case list():
            for number, value in enumerate(data):
                yield from _places(value, (*above, number))


def _first_of_each_place(kind: str) -> Iterator[tuple[Case, Place]]:
    seen, optional = set(), None if kind in kinds.CHECKS else _optional(kind)
    for case in CASES:
        if case.kind == kind:
            for place in _places(case.input):
                similar = _similar(place)
                may_lack = place[-1] not in _REQUIRED_FIELDS if optional is None else similar in optional
                if similar not in seen and may_lack:
                    seen.add(similar)
                    yield case, place


def _similar(place: Place) -> Place:
    """Return the same place for all elements of a list."""
    return tuple("*" if isinstance(step, int) else step for step in place)


def _optional(family: str) -> set[Place]:
    """Return places that some case of a family leaves out and others have, and places with a default."""
    times: defaultdict[Place, int] = defaultdict(int)
    for case in CASES:
        if case.kind == family:
            for place in _places(case.input):
                if isinstance(place[-1], str):
                    times[_similar(place)] += 1
    most: defaultdict[Place, int] = defaultdict(int)
    for place, number in times.items():
        most[place[:-1]] = max(most[place[:-1]], number)
    rare = {place for place, number in times.items() if number < most[place[:-1]]}
    return rare | {(name,) for name in filled(family, {})}


def _findings_without(case: Case, place: Place, file: Path) -> tuple[str, ...]:
    """Compare the case without a place to the case with null there, which is not run twice."""
    data = deepcopy(case.input)
    at: Any = data
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = None
    null = _loaded(case, data, file)
    del at[place[-1]]
    left_out = _loaded(case, data, file)
    assert asdict(null) == asdict(left_out)
    return judge(left_out).findings


def _loaded(case: Case, data: dict[str, Any], file: Path) -> Case:
    written = {"id": case.id, "kind": case.kind, "input": data, "expect": case.expect}
    file.write_text(json.dumps({"schemaVersion": 1, "cases": [written]}))
    return load(file)[0]


def _has_options(family: str) -> bool:
    return any(_first_of_each_place(family))


@each_of(*sorted(kinds.CHECKS) + sorted(filter(_has_options, {**families.CHECKS, **topology.CHECKS})))
def test_what_a_case_leaves_out_does_not_break_it(kind: str, *, tmp_path: Path) -> None:
    reviewed = {
        f"{case.id}: {place}": _findings_without(case, place, tmp_path / "cases.json")
        for case, place in _first_of_each_place(kind)
    }
    broken = {
        where: found
        for where, found in reviewed.items()
        if any(each.startswith(_ERROR_NAMES) for each in found)
    }
    assert broken == {}


def test_a_group_in_a_namespace_without_annotations(tmp_path: Path) -> None:
    data = {"operation": "CREATE", "object": {"spec": {"queue": "default"}}, "namespaceAnnotations": None}
    case = {"id": "x", "kind": "admission.podgroup.mutate", "input": data, "expect": {"patch": []}}
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"schemaVersion": 1, "cases": [case]}))
    assert judge(load(file)[0]).findings == ()
