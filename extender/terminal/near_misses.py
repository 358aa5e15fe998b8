"""The names that were probably meant where a name leads nowhere."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from extender.terminal.counts import many

_LIKENESS = 0.6  # difflib's measure from 0 to 1; `trian` and `train` have 0.8


def near_misses(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are most like `name`, the likeliest first; none where none is like it."""
    return get_close_matches(name, sorted(set(known)), n=most, cutoff=_LIKENESS)


def near_miss(name: str, known: Iterable[str]) -> str:
    """The likeliest; empty where there is none."""
    return next(iter(near_misses(name, known, 1)), "")


def did_you_mean(meant: Sequence[str]) -> str:
    """`did you mean train or trial?`, or nothing."""
    return f"did you mean {' or '.join(meant)}?" if meant else ""


def names_in(namespace: str, keys: Iterable[str]) -> list[str]:
    """The names of those keys, NAMESPACE/NAME, that are in a namespace."""
    return [key.partition("/")[2] for key in keys if key.startswith(f"{namespace}/")]


def pods_that_name(count: int) -> str:
    """`2 pods name`, before a name."""
    return f"{many(count, 'pod')} {'names' if count == 1 else 'name'}"
