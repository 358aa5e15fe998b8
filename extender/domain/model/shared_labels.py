"""Labels of pods, kept once for all pods with the same ones: many pods have few different sets of labels."""

from collections.abc import Mapping
from sys import intern
from weakref import WeakValueDictionary

from extender.domain.model.selectors import Labels


class PodLabels(dict[str, str]):
    """A dict that is freed with the last pod that uses it. Never changed."""

    __slots__ = ("__weakref__",)


class SharedLabels:
    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, PodLabels] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, labels: Mapping[str, str] | None) -> Labels:
        """A mapping equal to `labels`, and normally the same object for all equal ones."""
        number = hash(frozenset(labels.items())) if labels else 0
        known = self._known.get(number)
        if known is not None and known == (labels or {}):
            return known
        new = self._known[number] = PodLabels({intern(key): text for key, text in (labels or {}).items()})
        return new
