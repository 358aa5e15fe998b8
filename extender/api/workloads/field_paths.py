"""Paths of fields as a configuration writes them.

    path  = name, and further names after dots
    name  = letters, digits, - and _

Behind one name, which is not the last, may stand [*]: what follows is then in each item of that list, or in
each value of that mapping. spec.replicaSpecs[*].template is such a path.
"""

import re
from typing import NamedTuple

from extender.api.workloads.shape import Path

_NAME = r"[A-Za-z0-9_-]+"
_GRAMMAR = re.compile(rf"(?P<first>{_NAME}(?:\.{_NAME})*)(?:\[\*\]\.(?P<inside>{_NAME}(?:\.{_NAME})*))?")
_LONGEST = 500  # characters


class FieldPath(NamedTuple):
    """`each`: the list or mapping whose items are meant; empty where there is no [*]. `path`: in the object,
    or in each item."""

    each: Path
    path: Path


def as_field_path(text: str, root: str, *, many: bool = False) -> FieldPath:
    """`text`, which has to begin with the field `root`; [*] is allowed if `many`. Raises ValueError."""
    found = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or (found["inside"] and not many):
        raise ValueError(text)
    first = tuple(found["first"].split("."))
    if first[0] != root or len(first) == 1:
        raise ValueError(text)
    inside = found["inside"]
    return FieldPath(first, tuple(inside.split("."))) if inside else FieldPath((), first)
