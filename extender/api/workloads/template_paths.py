"""Where in an object the templates of its pods are, and the annotations of these, to write into them."""

from collections.abc import Callable, Iterator, Mapping

from extender.api.workloads.core import POD
from extender.api.workloads.making import WorkloadPart, body_of
from extender.api.workloads.parts import parts_of
from extender.api.workloads.shape import Json, Kinds, Offspring, Path, WorkloadRow, at
from extender.api.workloads.table import WORKLOADS

Chosen = Callable[[Offspring, WorkloadPart], Path]

_ANNOTATIONS = ("metadata", "annotations")


def template_paths(row: WorkloadRow, obj: Json, kinds: Kinds = WORKLOADS) -> list[Path]:
    """Of those that are in the object: keys of mappings, and numbers of items in lists, as in a JSON pointer.
    Raises MALFORMED."""
    own = [path for path in row.templates if isinstance(at(obj, path), dict)]
    return list(dict.fromkeys([*_paths(row, obj, kinds, _template), *own]))


def annotation_paths(row: WorkloadRow, obj: Json, kinds: Kinds = WORKLOADS) -> list[Path]:
    """Where the annotations are that pods get from templates, or from what stands for these. The last two
    mappings of a path need not be there. Raises MALFORMED."""
    own = [(*path, *_ANNOTATIONS) for path in row.templates if isinstance(at(obj, path), dict)]
    return list(dict.fromkeys([*_paths(row, obj, kinds, _annotations), *own]))


def _template(offspring: Offspring, part: WorkloadPart) -> Path:
    """In the part; empty where there is none."""
    return offspring.template if isinstance(at(part.body, offspring.template), dict) else ()


def _annotations(offspring: Offspring, part: WorkloadPart) -> Path:
    path = _template(offspring, part)
    return offspring.annotated or (path and (*path, *_ANNOTATIONS))


def _paths(row: WorkloadRow, obj: Json, kinds: Kinds, chosen: Chosen) -> Iterator[Path]:
    for offspring in row.offspring:
        for part in parts_of(obj, offspring):
            for path in _paths_in(part, offspring, kinds, chosen):
                yield (*part.where, *path)


def _paths_in(part: WorkloadPart, offspring: Offspring, kinds: Kinds, chosen: Chosen) -> Iterator[Path]:
    """Also of the pods of what is made of the part."""
    if offspring.made == POD:
        path = chosen(offspring, part)
        if path:
            yield path
    elif inner := kinds.get(offspring.made):
        for path in _paths(inner, body_of(part.body, offspring), kinds, chosen):
            yield _as_given(path, offspring)


def _as_given(path: Path, offspring: Offspring) -> Path:
    """Where in the part that is which is at `path` in what is made of it."""
    if offspring.template:
        return (*offspring.template, *path)
    if isinstance(offspring.spec, Mapping):
        return (*offspring.spec[path[1]], *path[2:])
    return (*offspring.spec, *path[1:])
