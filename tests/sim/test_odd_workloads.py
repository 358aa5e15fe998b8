"""Workloads with anything in any place end in pods, or in a fault with its line, never in a traceback."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.files.creation import Creation
from extender.files.manifests import InvalidManifests, load
from tests.property_examples import examples
from tests.sim.test_workloads import FOLDER

SOUND = [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))]
ODD: tuple[Any, ...] = (None, [], {}, -1, 2**70, 1.5, True, "", "x" * 300, "{x}", [None], [[]], {"a": []})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all parts of an object, from the outside."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, part in inside:
        yield from places(part, (*path, key))


def changed(obj: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(obj)
    *before, last = path
    place = made
    for key in before:
        place = place[key]
    place[last] = value
    return made


PLACES = [(obj, path) for obj in SOUND for path in places(obj) if path]


def handed_over(obj: Any, folder: Path) -> list[str]:
    """Return the messages about an object."""
    (folder / "odd.json").write_text(json.dumps(obj))
    try:
        found = load([folder / "odd.json"])
    except InvalidManifests as refusal:
        return str(refusal).splitlines()
    creation = Creation(Service(Store(), random.Random(0)))
    creation.create(found.objects)
    return [*creation.faults, *found.notes]


@given(st.sampled_from(PLACES), st.sampled_from(ODD))
@settings(max_examples=examples(150), deadline=None)
def test_no_workload_leads_to_a_traceback(place: tuple[Any, Any], value: Any) -> None:
    with TemporaryDirectory() as folder:
        faults = handed_over(changed(*place, value), Path(folder))
    assert all("odd.json:" in line for line in faults)
