"""The changes that are written to a job: as JSON patches (RFC 6902) on the object as it was just read, or, to
let it go, as a merge patch (RFC 7386) on a version of which no more is known."""

from collections.abc import Iterable, Sequence
from typing import Any

from extender.api import keys
from extender.api.workloads.shape import Json, Path, at

Operation = dict[str, Any]


def let_go(
    obj: Json, suspend: Path, annotations: Iterable[Sequence[str | int]], group: str, at_time: str
) -> list[Operation]:
    """It is suspended no more, and its pods will name their group, by these of their annotations."""
    return [
        *_tests(obj),
        {"op": "replace", "path": pointer(suspend), "value": False},
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


def suspend(obj: Json, path: Path, for_good: bool = False) -> list[Operation]:
    """It is suspended, and nobody has let it go; `for_good`: as its user would do it."""
    started = not for_good and keys.STARTED in (at(obj, ("metadata", "annotations")) or {})
    note = pointer(("metadata", "annotations", keys.STARTED))
    return [
        *_tests(obj),
        {"op": "add", "path": pointer(path), "value": True},
        *([{"op": "remove", "path": note}] if started else []),
    ]


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
