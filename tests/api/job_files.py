"""Jobs as their operators write them. Each file has a suspended job, and statuses of success and failure."""

from pathlib import Path
from typing import Any

from extender.api.keys import STARTED
from extender.api.workloads.children import kind_of
from extender.api.workloads.shape import Json, WorkloadRow
from extender.shipped import read

FOLDER = Path(__file__).parent / "jobs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def documents(name: str) -> list[Any]:
    return read([FOLDER / f"{name}.yaml"])


def waiting(name: str) -> Json:
    return dict(documents(name)[0])


def row_of(obj: Json) -> WorkloadRow:
    row = kind_of(obj)
    assert row
    return row


def resumed(obj: Json) -> Json:
    """Return the job with `suspend` set to false."""
    row = row_of(obj)
    if row.commanded:
        return dict(put(obj, ("metadata", "annotations", STARTED), "2026-01-01T00:00:00Z"))
    return dict(put(obj, row.suspend, False)) if row.suspend else obj


def put(obj: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return a copy with `value` at a path of keys and of indexes in lists."""
    if not path:
        return value
    first, *rest = path
    if isinstance(obj, list):
        return [put(item, tuple(rest), value) if str(n) == first else item for n, item in enumerate(obj)]
    return {**(obj or {}), first: put((obj or {}).get(first), tuple(rest), value)}
