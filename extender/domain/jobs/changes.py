"""The changes that are written to a job: as JSON patches (RFC 6902) on the object as it was just read, or, to
let it go, as a merge patch (RFC 7386) on a version of which no more is known."""

from collections.abc import Iterable, Sequence
from typing import Any

from extender.api import keys
from extender.api.workloads.partial import PartialStart, as_asked
from extender.api.workloads.shape import Json, Path, WorkloadRow, at

Operation = dict[str, Any]


def let_go(
    obj: Json,
    row: WorkloadRow,
    annotations: Iterable[Sequence[str | int]],
    group: str,
    at_time: str,
    reduced_to: int | None = None,
) -> list[Operation]:
    """It is suspended no more, and its pods will name their group, by these of their annotations.
    `reduced_to`: with how many pods it starts; None: with as many as its author asks for."""
    return [
        *_tests(obj),
        {"op": "replace", "path": pointer(row.suspend), "value": False},
        *_with_count(obj, row, reduced_to),
        _noted(obj, ("metadata",), keys.STARTED, at_time),
        *(
            _noted(obj, path[:-1], keys.GROUP_ANNOTATION, group)
            for path in annotations
            if (_in(obj, path) or {}).get(keys.GROUP_ANNOTATION) != group
        ),
    ]


def let_go_unread(
    uid: str, version: str, suspend: Path, annotations: Iterable[Path], group: str, at_time: str
) -> dict[str, Any]:
    """The same as `let_go` for an object without lists on the way to its templates. A merge patch makes what
    is missing on the way, so the object need not be read for it."""
    started = {keys.STARTED: at_time}
    patch: dict[str, Any] = {"metadata": {"uid": uid, "resourceVersion": version, "annotations": started}}
    _put(patch, suspend, False)
    for path in annotations:
        _put(patch, (*path, keys.GROUP_ANNOTATION), group)
    return patch


def _put(patch: dict[str, Any], path: Path, value: object) -> None:
    *way, last = path
    for name in way:
        patch = patch.setdefault(name, {})
    patch[last] = value


def with_fields(obj: Json, fields: Json) -> list[Operation]:
    """These fields of its spec, as they are to be."""
    puts = [{"op": "add", "path": pointer(("spec", name)), "value": value} for name, value in fields.items()]
    return [*_tests(obj), *puts]


def suspend(obj: Json, row: WorkloadRow, for_good: bool = False) -> list[Operation]:
    """It is suspended, and nobody has let it go; `for_good`: as its user would do it. It asks for as many
    pods as before."""
    started = not for_good and keys.STARTED in (at(obj, ("metadata", "annotations")) or {})
    note = pointer(("metadata", "annotations", keys.STARTED))
    return [
        *_tests(obj),
        {"op": "add", "path": pointer(row.suspend), "value": True},
        *_with_count(obj, row, None),
        *([{"op": "remove", "path": note}] if started else []),
    ]


def _with_count(obj: Json, row: WorkloadRow, reduced_to: int | None) -> list[Operation]:
    """So many pods, and a note of how many its author asks for."""
    if not row.parallelism:
        return []
    asked = at(as_asked(row, obj), row.parallelism)
    count = asked if reduced_to is None else reduced_to
    resized = at(obj, row.parallelism) != count
    return [
        *([{"op": "replace", "path": pointer(row.parallelism), "value": count}] if resized else []),
        *_noted_count(obj, PartialStart(reduced_to, asked) if reduced_to is not None else None),
    ]


def _noted_count(obj: Json, note: PartialStart | None) -> list[Operation]:
    if note is not None:
        return [_noted(obj, ("metadata",), keys.PARTIAL_START, str(note))]
    path = ("metadata", "annotations", keys.PARTIAL_START)
    return [{"op": "remove", "path": pointer(path)}] if at(obj, path) is not None else []


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in path)


def _tests(obj: Json) -> list[Operation]:
    """It is still this very object, in this version."""
    return [
        {"op": "test", "path": f"/metadata/{name}", "value": obj["metadata"][name]}
        for name in ("uid", "resourceVersion")
    ]


def _noted(obj: Json, metadata: Sequence[str | int], key: str, value: str) -> Operation:
    """An annotation, made together with what it is in."""
    found: Any = _in(obj, metadata)
    if found is None:
        return {"op": "add", "path": pointer(metadata), "value": {"annotations": {key: value}}}
    if not found.get("annotations"):
        return {"op": "add", "path": pointer((*metadata, "annotations")), "value": {key: value}}
    return {"op": "add", "path": pointer((*metadata, "annotations", key)), "value": value}


def _in(obj: Any, path: Iterable[str | int]) -> Any:
    for name in path:
        obj = obj[int(name)] if isinstance(obj, list) else (obj or {}).get(name)
    return obj
