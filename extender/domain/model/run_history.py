"""History of run times by kind of group, with declared run times and checkpoints.

The history is bounded and immutable.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from typing import NamedTuple, TypeVar

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.units import as_datetime, as_seconds

K = TypeVar("K")
_MAX_KINDS = 4096  # limit of kinds; the kinds whose groups ended longest ago are dropped
_MAX_RUNS = 9  # limit of runs per kind
_GENERATED_PART = re.compile(r"[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5,10}")  # generated name parts


class RunKind(NamedTuple):
    """Kind of groups that are expected to run for the same time."""

    queue: str
    series: str  # namespace, kind and name of the controller, without generated parts
    requests: frozenset[tuple[str, int]]  # sum of the requests of all members


class RunHistory(msgspec.Struct, frozen=True, eq=False):
    """History of run times.

    Attributes:
        run_times: The last run times in seconds, by kind.
        stretches: The last ratios of real to declared run times, by series.
    """

    run_times: Mapping[RunKind, tuple[float, ...]] = {}
    stretches: Mapping[str, tuple[float, ...]] = {}

    def usual_run_time(self, kind: RunKind) -> float | None:
        """Return the usual run time of groups of a kind; None if no group of this kind has ended yet."""
        runs = self.run_times.get(kind)
        return median(runs) if runs else None

    def stretch(self, series: str) -> float:
        """Return the usual ratio of real to declared run times of a series; it is at least 1.

        Groups that end early delay no other group, so ratios below 1 do not count.
        """
        return max(1.0, median(self.stretches.get(series, (1.0,))))

    def with_run(self, kind: RunKind, seconds: float, declared_seconds: float | None) -> "RunHistory":
        """Return the history after a group of a kind has ended."""
        stretches = self.stretches
        if declared_seconds is not None:
            stretches = _with_value(stretches, kind.series, seconds / max(declared_seconds, 1.0))
        return RunHistory(_with_value(self.run_times, kind, seconds), stretches)


def _with_value(values_of: Mapping[K, tuple[float, ...]], key: K, value: float) -> dict[K, tuple[float, ...]]:
    """Return the values with one more value for `key`.

    Beyond the limit of keys, the oldest key is dropped.
    """
    values = (*values_of.get(key, ()), value)[-_MAX_RUNS:]
    other_values = {other: runs for other, runs in values_of.items() if other != key}
    if len(other_values) >= _MAX_KINDS:
        del other_values[next(iter(other_values))]
    return {**other_values, key: values}


def series_of(namespace: str, kind: str, name: str) -> str:
    """Return the series of a workload, which all its runs share.

    The series is named by the common stem of generated names. For example, the Jobs of a CronJob are one
    series.
    """
    stem, *parts = name.split("-")
    while parts and _GENERATED_PART.fullmatch(parts[-1]):
        parts.pop()
    return f"{namespace}/{kind}/{'-'.join([stem, *parts])}"


class Checkpoint(NamedTuple):
    """Checkpoint of a workload. An eviction loses the work since the last checkpoint."""

    saved_at: str = ""  # timestamp of the last checkpoint; empty: unknown
    interval: float = 0.0  # interval of checkpoints in seconds; 0: unknown

    def with_other(self, other: "Checkpoint") -> "Checkpoint":
        """Return the later timestamp and the shorter interval of two checkpoints."""
        at = max(filter(None, (self.saved_at, other.saved_at)), key=as_datetime, default="")
        return Checkpoint(at, min(filter(None, (self.interval, other.interval)), default=0.0))


NO_CHECKPOINT = Checkpoint()


def checkpoint_of(meta: Meta) -> Checkpoint:
    """Return the checkpoint in an annotation. An unreadable annotation counts as absent."""
    text = (meta.annotations or {}).get(keys.CHECKPOINT, "")
    if not text:
        return NO_CHECKPOINT
    with suppress(ValueError):
        return Checkpoint(interval=as_seconds(text))
    with suppress(ValueError):
        return Checkpoint(text) if as_datetime(text).tzinfo is not None else NO_CHECKPOINT
    return NO_CHECKPOINT


def run_time_of(meta: Meta) -> float | None:
    """Return the declared run time in seconds; None without a valid annotation."""
    text = (meta.annotations or {}).get(keys.RUN_TIME, "")
    with suppress(ValueError):
        return as_seconds(text) if text else None  # an exception for each undeclared one is slow
    return None
