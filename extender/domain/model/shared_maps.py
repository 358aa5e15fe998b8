"""Immutable mappings that share most of their thousands of entries with an earlier mapping.

A change costs only the changed keys. Small dicts are copied, because a copy is cheaper.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import Any, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
_MAX_COPIED_KEYS = 256  # number of keys up to which a dict is copied
_NO_CHANGE: Any = object()


def with_changes(mapping: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """Return the mapping with changed values. None removes a key. A changed key keeps its position."""
    if not changes:
        return mapping
    if len(mapping) > _MAX_COPIED_KEYS:
        shared_map = mapping if isinstance(mapping, SharedMap) else SharedMap(dict(mapping), {}, len(mapping))
        return shared_map.with_changes(changes)
    entries: dict[K, Any] = {**mapping, **changes}
    return {key: value for key, value in entries.items() if value is not None}


def changed_keys(after: Mapping[K, V], before: Mapping[K, V]) -> Iterator[K]:
    """Yield the keys whose values are different objects in the two mappings, and keys of one mapping only."""
    if isinstance(after, SharedMap) and isinstance(before, SharedMap):
        keys: Iterable[K] = after.differences(before)
    else:
        keys = dict.fromkeys((*after, *before)) if after is not before else ()
    return (key for key in keys if after.get(key) is not before.get(key))


def have_same_keys(after: Mapping[K, V], before: Mapping[K, V]) -> bool:
    return len(after) == len(before) and all(key in after for key in changed_keys(after, before))


class SharedMap(Mapping[K, V]):
    """Mapping that stores its changes separately from a dict that it shares with earlier mappings.

    No value is None.
    """

    __slots__ = ("_base", "_changes", "_entries", "_size")

    def __init__(self, base: dict[K, V], changed: dict[K, V | None], size: int) -> None:
        self._base, self._changes, self._size = base, changed, size
        self._entries: dict[K, V] | None = None if changed else base  # the complete dict, made on first use

    def with_changes(self, changes: Mapping[K, V | None]) -> "SharedMap[K, V]":
        size = self._size + sum((value is not None) - (key in self) for key, value in changes.items())
        new_map = SharedMap(self._base, {**self._changes, **changes}, size)
        # Rare copies of all entries, with small copies of the changes in between, cost the least.
        is_large = len(new_map._changes) > 2 * isqrt(len(self._base))
        return SharedMap(new_map.entries, {}, size) if is_large else new_map

    def differences(self, other: "SharedMap[K, V]") -> Iterator[K]:
        """Yield the keys that may have other values than in `other`."""
        is_shared = self._base is other._base
        values: Mapping[K, V | None] = self._changes if is_shared else self.entries
        other_values: Mapping[K, V | None] = other._changes if is_shared else other.entries
        yield from (key for key, value in values.items() if other_values.get(key, _NO_CHANGE) is not value)
        yield from (key for key in other_values if key not in values)

    @property
    def entries(self) -> dict[K, V]:
        """Return all entries as one dict."""
        if self._entries is None:
            entries: dict[K, Any] = {**self._base, **self._changes}
            for key, value in self._changes.items():
                if value is None:
                    entries.pop(key, None)
            self._entries = entries
        return self._entries

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        value = self._changes.get(key, _NO_CHANGE)
        if value is _NO_CHANGE:
            return self._base.get(key, default)
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        mapping: Mapping[Any, Any] = self._changes if key in self._changes else self._base
        return mapping.get(key) is not None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return iter(self.entries)

    def keys(self) -> KeysView[K]:
        return self.entries.keys()

    def values(self) -> ValuesView[V]:
        return self.entries.values()

    def items(self) -> ItemsView[K, V]:
        return self.entries.items()
