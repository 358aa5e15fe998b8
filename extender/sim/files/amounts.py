"""Amounts as texts: a file may say 0.5 as a number, and the API server stores it as a text."""

from typing import Any

_AMOUNTS = frozenset(
    "allocatable capability capacity deserved limits minResources overhead requests resource".split()  # noqa: SIM905
)


def as_texts(value: Any) -> Any:
    """A copy of an object, or of a part of one."""
    if isinstance(value, list):
        return [as_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _texts(part) if name in _AMOUNTS and isinstance(part, dict) else as_texts(part)
        for name, part in value.items()
    }


def _texts(amounts: dict[str, Any]) -> dict[str, Any]:
    return {name: str(each) if isinstance(each, float) else each for name, each in amounts.items()}
