"""Jobs that may start with fewer pods than they ask for: what their annotations say.

asked ──a start with fewer──► given, and noted ──suspended──► asked
"""

from typing import NamedTuple

from extender.api import keys
from extender.api.workloads.shape import MOST, Json, WorkloadRow, at

_MINIMUM_KEYS = (keys.MIN_PARALLELISM, keys.KUEUE_MIN_PARALLELISM)


class PartialStart(NamedTuple):
    """With how many pods a job was started, and how many its author asks for."""

    given: int
    asked: int

    def __str__(self) -> str:
        return f"{self.given}/{self.asked}"


def least_of(row: WorkloadRow, obj: Json) -> int:
    """With how few pods a job may start, 0 if it does not say. Raises ValueError for what is no such
    number."""
    annotations = _annotations(obj)
    key = next((key for key in _MINIMUM_KEYS if key in annotations), "")
    if not (row.parallelism and key):
        return 0
    text = annotations[key]
    if not _is_count(text):
        raise ValueError(f"annotation {key}: got {text!r:.50}; allowed is a whole number from 1")
    return int(text)


def partial_start(row: WorkloadRow, obj: Json) -> PartialStart | None:
    """That of an object which has fewer pods now than its author asks for; None for one that has not, or
    whose number has been changed since."""
    given, _, asked = str(_annotations(obj).get(keys.PARTIAL_START, "")).partition("/")
    if not (row.parallelism and _is_count(given) and _is_count(asked)):
        return None
    return PartialStart(int(given), int(asked)) if at(obj, row.parallelism) == int(given) else None


def as_asked(row: WorkloadRow, obj: Json) -> Json:
    """As its author wrote it, whatever it was started with."""
    noted = partial_start(row, obj)
    return obj if noted is None else _put(obj, row.parallelism, noted.asked)


def changes_its_count(row: WorkloadRow, obj: Json) -> bool:
    """Whether its next start may change the number of its pods."""
    marks = {*_MINIMUM_KEYS, keys.PARTIAL_START}
    return bool(row.parallelism) and not marks.isdisjoint(_annotations(obj))


def _annotations(obj: Json) -> Json:
    return at(obj, ("metadata", "annotations")) or {}


def _is_count(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and 0 < int(text[:11]) <= MOST


def _put(obj: Json, path: tuple[str, ...], value: int) -> Json:
    name, *rest = path
    return {**obj, name: _put(obj.get(name) or {}, tuple(rest), value) if rest else value}
