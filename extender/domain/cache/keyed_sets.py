"""Sets by key, as indexes: one that becomes empty is not kept."""

from collections import defaultdict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def take_out(sets: defaultdict[K, set[V]], key: K, value: V) -> None:
    if key in sets:
        sets[key].discard(value)
        if not sets[key]:
            del sets[key]
