"""Server-side apply with several managers: applied fields exist, and fields without a manager do not."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import QUEUES, Json
from extender.apimachinery.managed_fields import APPLY, UPDATE, Manager, Path, entries_of, parts_of
from extender.apimachinery.managed_fields import as_fields as written_fields
from extender.apimachinery.managed_fields import read_paths as read_fields
from extender.apimachinery.service import Service, WriteOptions
from extender.apimachinery.store import Store
from tests.property_examples import examples

LETTERS = st.sampled_from("abc")
LABELS = st.dictionaries(LETTERS, LETTERS, max_size=2)
AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "memory")), st.sampled_from(("1", "2")), max_size=2)
FINALIZERS = st.lists(st.sampled_from(("a.b/x", "a.b/y")), unique=True, max_size=2)


@st.composite
def wishes(draw: st.DrawFn) -> Json:
    """Draw a queue as an author may want it, its weight included only at times."""
    spec: Json = {"capability": draw(AMOUNTS)} if draw(st.booleans()) else {}
    spec |= {"weight": draw(st.integers(1, 3))} if draw(st.booleans()) else {}
    meta = {"name": "q", "labels": draw(LABELS), "finalizers": draw(FINALIZERS)}
    return {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": meta, "spec": spec}


STEPS = st.lists(st.tuples(st.sampled_from(("one", "two", "editor")), wishes()), min_size=1, max_size=8)


def applied(service: Service, name: str, wish: Json) -> Json:
    manager = Manager(name, APPLY, QUEUES.api_version)
    return service.apply(QUEUES, "", "q", wish, WriteOptions(manager), force=True)[0]


def replaced(service: Service, wish: Json) -> None:
    """Replace the queue as an author that does not apply."""
    manager = Manager("editor", UPDATE, QUEUES.api_version)
    service.amend(
        QUEUES, "", "q", lambda before: {**before, "spec": wish["spec"]}, options=WriteOptions(manager)
    )


def found_at(value: Any, path: Path, schema: FieldSchema) -> bool:
    for step in path:
        inside = parts_of(value, schema) if schema.splits(value) else {}
        if step not in inside:
            return False
        value, schema = inside[step]
    return True


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_applying_creates_an_object_or_takes_over_its_fields(steps: list[tuple[str, Json]]) -> None:
    service, schema = Service(Store()), schema_of(QUEUES)
    for name, wish in steps:
        if name == "editor" and service.store.get(QUEUES, "", "q"):
            replaced(service, wish)
        else:
            made = applied(service, name, wish)
            assert {**made["spec"], **wish["spec"]}.keys() == made["spec"].keys()
            assert made["spec"].get("weight") == wish["spec"].get("weight", made["spec"].get("weight"))
            assert wish["metadata"]["labels"].items() <= (made["metadata"].get("labels") or {}).items()
            assert applied(service, name, wish) == made
        obj = service.get(QUEUES, "", "q")
        for entry in entries_of(obj).values():
            assert all(found_at(obj, path, schema) for path in entry.paths), (entry, obj)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_fields_that_no_manager_applies_any_more_are_removed(steps: list[tuple[str, Json]]) -> None:
    service = Service(Store())
    for name, wish in steps:
        applied(service, name, wish)
    nothing = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "q"}}
    for name in {name for name, _ in steps}:
        left = applied(service, name, nothing)
    assert not left["metadata"].get("labels")
    assert not left["metadata"].get("finalizers")
    assert left["spec"] == {"weight": 1, "priority": 0, "dequeueStrategy": "traverse"}  # its CRD's defaults
    assert "managedFields" not in left["metadata"]


@given(st.sets(st.lists(st.sampled_from(("f:a", "f:b", 'k:{"x":1}')), min_size=1, max_size=3).map(tuple)))
def test_places_are_written_and_read(paths: set[Path]) -> None:
    assert read_fields(written_fields(paths)) == paths
