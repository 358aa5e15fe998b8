"""The name that was probably meant where a name leads nowhere."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from extender.terminal.counts import many

_LIKENESS = 0.6  # difflib's measure from 0 to 1; `trian` and `train` have 0.8


def near_miss(name: str, known: Collection[str]) -> str:
    """The known name that is most like `name`; empty where none is like it."""
    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=_LIKENESS)), "")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`did you mean train?`, or nothing."""
    meant = near_miss(name, known)
    return f"did you mean {meant}?" if meant else ""


def names_in(namespace: str, keys: Iterable[str]) -> list[str]:
    """The names of those keys, NAMESPACE/NAME, that are in a namespace."""
    return [key.partition("/")[2] for key in keys if key.startswith(f"{namespace}/")]


def pods_that_name(count: int) -> str:
    """`2 pods name`, before a name."""
    return f"{many(count, 'pod')} {'names' if count == 1 else 'name'}"
