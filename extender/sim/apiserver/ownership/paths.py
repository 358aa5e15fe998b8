"""Places in an object, and sets of them as managedFields writes them.

A path is a tuple of steps in the notation of FieldsV1: f:NAME for a field, k:{"type":"Ready"} for the item of
a list that has this key, v:VALUE for an item of a set.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.schemas.field_schemas import FieldSchema

Path = tuple[str, ...]
Paths = frozenset[Path]

_ITSELF = "."


def read(fields: Json) -> Paths:
    """FieldsV1 as a set. A step that has further ones below it is meant itself if it says so with a dot."""
    return frozenset(_read(fields, ()))


def _read(fields: Json, at: Path) -> Iterator[Path]:
    for step, below in fields.items():
        if step == _ITSELF:
            yield at
            continue
        if not below:
            yield (*at, step)
        yield from _read(below or {}, (*at, step))


def written(paths: Iterable[Path]) -> Json:
    fields: Json = {}
    for path in sorted(paths):
        below = fields
        for step in path:
            below = below.setdefault(step, {})
        below[_ITSELF] = {}
    return _shortened(fields)


def _shortened(fields: Json) -> Json:
    """Without the dot where nothing else is below."""
    return {
        step: {} if set(below) == {_ITSELF} else _shortened(below) if step != _ITSELF else {}
        for step, below in fields.items()
    }


def shown(path: Path) -> str:
    """As messages name it: .status.conditions[type="Ready"].reason"""
    return "".join(map(_shown_step, path))


def _shown_step(step: str) -> str:
    sort, _, content = step.partition(":")
    if sort == "f":
        return f".{content}"
    if sort == "v":
        return f"[={content}]"
    return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(content).items()) + "]"


# ---- what is at the end of a step


def parts(value: Any, schema: FieldSchema) -> dict[str, tuple[Any, FieldSchema]]:
    """The parts of a value that may belong to different writers, by the step that leads to each."""
    if isinstance(value, dict):
        return {f"f:{name}": (each, schema.field(name)) for name, each in value.items()}
    return {schema.key_of(item): (item, schema.items) for item in value}


def removed(value: Any, path: Path, schema: FieldSchema) -> Any:
    """`value` without what is at `path`."""
    step, below = path[0], path[1:]
    kept = parts(value, schema)
    if step not in kept:
        return value
    inside, inner = kept[step]
    if not below:
        del kept[step]
    elif isinstance(inside, dict | list):
        kept[step] = removed(inside, below, inner), inner
    return joined(value, {each: found for each, (found, _) in kept.items()})


def joined(like: Any, found: dict[str, Any]) -> Any:
    """Parts put together again, as an object or a list."""
    if isinstance(like, dict):
        return {step.removeprefix("f:"): value for step, value in found.items()}
    return list(found.values())
