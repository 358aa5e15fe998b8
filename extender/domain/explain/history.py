"""History: waits, runs and evictions, and their sums over a period, by queue, user or namespace.

The recorder (recorder.py) makes the records. The process stores them in memory and, optionally, in a file.
Durations are in seconds, and times are in seconds since 1970. Sums of amounts are by resource, and each
amount is multiplied by the seconds for which it was held.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import ceil
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from extender.api.units import PAST_FORMS, as_time, timestamp_at
from extender.domain.model.reasons import Reason
from extender.domain.model.resources import CPU, Resources

_DEFAULT_SECONDS = 7 * 86400.0  # seconds of the default period
ResourceSeconds = Mapping[str, float]  # amounts by resource, multiplied by seconds


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Record of a time span.

    If `end` is None, the time span continues, and the record is complete up to `until`.
    """

    queue: str
    namespace: str = ""
    user: str = ""  # empty if unknown
    start: float
    end: float | None = None

    @property
    def name(self) -> str:
        """Return the name of the subject. Name and start together are unique for each kind of record."""
        return self.queue

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {self.name} {self.start:.3f}"

    @property
    def is_final(self) -> bool:
        """Return whether a record never changes, so that a known record with the same key is equal."""
        return False

    def up_to(self, now: float) -> Self:
        """Return the record with its sums updated to `now`."""
        return self

    def with_end(self, now: float) -> Self:
        """Return the record that ends at `now`, with its sums up to then."""
        return replace(self.up_to(now), end=max(now, self.start))


class GroupRun(Record, frozen=True, kw_only=True, omit_defaults=True, tag="Run"):
    """Run of members of a group on nodes, during which the number of members hardly changed."""

    group: str
    until: float
    spent: ResourceSeconds = {}
    held: Resources = {}  # amounts held since `until`; empty once the run has ended

    @property
    def name(self) -> str:
        return self.group

    def up_to(self, now: float) -> "GroupRun":
        seconds = max(now - self.until, 0.0)
        amounts = {name: self.spent.get(name, 0.0) + amount * seconds for name, amount in self.held.items()}
        return replace(self, until=max(now, self.until), spent={**self.spent, **amounts})

    def usage_between(self, since: float, until: float) -> ResourceSeconds:
        """Return the part of the usage that falls between two times, in proportion to the time."""
        run = self if self.end is not None else self.up_to(until)
        end = run.until if run.end is None else run.end
        length, part = end - run.start, min(end, until) - max(run.start, since)
        if length <= 0.0 or part <= 0.0:
            return {}
        return run.spent if part >= length else {name: n * part / length for name, n in run.spent.items()}


# The owner of a group is responsible for these reasons, so such times do not count as waits.
OWN = frozenset({Reason.HELD, Reason.NOT_ENOUGH_MEMBERS, Reason.GROUP_NOT_FOUND, Reason.INVALID_SPEC})


class Wait(Record, frozen=True, kw_only=True, omit_defaults=True, tag="Wait"):
    """Wait of a group, which ends when the group runs or no longer exists."""

    group: str
    until: float
    reason: str = ""  # reason of the wait since `until`; empty if starting or unknown
    waited: Mapping[str, float] = {}  # seconds by reason
    has_started: bool = False  # whether the wait ended because the group ran
    from_objects: bool = False  # whether the wait was not observed, but derived from a running group

    @property
    def name(self) -> str:
        return self.group

    @property
    def is_final(self) -> bool:
        return self.from_objects

    def up_to(self, now: float) -> "Wait":
        waited_seconds = self.waited.get(self.reason, 0.0) + max(now - self.until, 0.0)
        waited_by_reason = {**self.waited, self.reason: waited_seconds}
        return replace(self, until=max(now, self.until), waited=waited_by_reason)

    @property
    def seconds(self) -> float:
        """Return the length of the wait, without times for which the owner is responsible."""
        return sum(seconds for reason, seconds in self.waited.items() if reason not in OWN)


class Evicted(Record, frozen=True, kw_only=True, omit_defaults=True, tag="Evicted"):
    """Pod that was evicted by Muster, or by its job at Muster's request."""

    uid: str
    pod: str  # namespace/name
    group: str = ""  # empty for a pod of another scheduler
    cause: str  # an EvictionCause
    claimant: str = ""  # group that gets the capacity, if any
    lost: ResourceSeconds = {}  # lost work

    @property
    def name(self) -> str:
        return self.uid

    @property
    def key(self) -> str:
        return f"Evicted {self.uid}"

    @property
    def is_final(self) -> bool:
        return True


class QueueHour(Record, frozen=True, kw_only=True, omit_defaults=True, tag="QueueHour"):
    """One hour of a queue and the queues below it: usage and deserved share, from samples."""

    deserved: ResourceSeconds = {}
    wanting: float = 0.0  # seconds in which the queue requested more than it held
    share: float = 0.0  # held part of its deserved amounts, multiplied by these seconds


AnyRecord = GroupRun | Wait | Evicted | QueueHour


class By(StrEnum):
    QUEUE = "queue"
    USER = "user"
    NAMESPACE = "namespace"


class ReportRow(msgspec.Struct, frozen=True, rename="camel"):
    """Row of a report, for one queue, user or namespace, or for all of them.

    Its waits are the waits of groups that started in the period.
    """

    name: str
    starts: int  # starts of groups, including repeated starts
    waiting: int  # groups that wait at the end of the period
    wait_median: float | None  # None if no group has started
    wait90: float | None  # 90th percentile of waits
    wait_longest: float | None
    gpu_hours: float
    cpu_hours: float
    hours: Mapping[str, float]  # by resource: cores, bytes, devices
    evictions: int  # number of evicted pods
    lost_gpu_hours: float  # lost work
    lost_cpu_hours: float
    share: float | None = None  # held part of the deserved amounts while more was requested; None if never
    deserved_gpu_hours: float | None = None  # deserved by a queue and the queues below it


class Report(msgspec.Struct, frozen=True, rename="camel"):
    since: str
    until: str
    by: By
    rows: tuple[ReportRow, ...]  # ordered from the largest usage
    total: ReportRow
    note: str = ""  # text for users about missing parts


class InvalidPeriod(ValueError):
    """Error in a request for a report, for users: `since: invalid value …: must be …`."""


class Period(NamedTuple):
    """Period of a report."""

    by: By
    since: float
    until: float

    @classmethod
    def parse(cls, by: str, since: str, until: str, now: float) -> "Period":
        """Return the period that texts describe. Empty texts mean queues, a week ago, and now.

        Raises:
            InvalidPeriod: A text is invalid.
        """
        if by not in ("", *By):
            raise InvalidPeriod(f"by: invalid value {by!r}: must be {', '.join(By)}")
        instants = {"since": now - _DEFAULT_SECONDS, "until": now}
        for name, text in (("since", since), ("until", until)):
            try:
                instants[name] = as_time(text, now) if text else instants[name]
            except ValueError as fault:
                raise InvalidPeriod(f"{name}: invalid value {text!r}: must be {PAST_FORMS}") from fault
        if instants["until"] > now:
            raise InvalidPeriod(f"until: invalid value {until!r}: must be in the past")
        if instants["since"] >= instants["until"]:
            raise InvalidPeriod(f"since: invalid value {since!r}: must be before {until or 'now'}")
        return cls(By(by or By.QUEUE), **instants)


def report(records: Iterable[AnyRecord], period: Period, note: str = "") -> Report:
    """Return the report with one row for each name. Each record is read once and not stored in memory."""
    by, since, until = period
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    for record in records:
        if by is By.QUEUE or not isinstance(record, QueueHour):
            sums[getattr(record, by)].add(record, since, until)
    total = _Sums()
    for row_sums in sums.values():
        total.join(row_sums)
    rows = [row_sums.row(name) for name, row_sums in sums.items() if not row_sums.is_empty]
    rows.sort(key=lambda row: (-row.gpu_hours, -row.cpu_hours, -row.starts, row.name))
    return Report(timestamp_at(since), timestamp_at(until), by, tuple(rows), total.row(""), note)


def missing_part_text(first_at: float, period: Period) -> str:
    """Return a text for users about the part of the period before the first record; empty if none."""
    return f"records before {timestamp_at(first_at)} are missing" if first_at > period.since else ""


class _Sums(msgspec.Struct):
    """Sums for one row of a report."""

    waits: list[float] = []
    waiting: int = 0
    spent: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    lost_amounts: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    deserved: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    evictions: int = 0
    wanting: float = 0.0
    share: float = 0.0
    is_sampled: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.waits or self.waiting or self.evictions or any(self.spent.values()) or self.wanting)

    def add(self, record: AnyRecord, since: float, until: float) -> None:
        """Add the part of a record that falls between two times."""
        match record:
            case GroupRun():
                _add(self.spent, record.usage_between(since, until))
            case Wait(start=start, end=end) if start <= until and (end is None or end > until):
                self.waiting += end is not None or record.reason not in OWN
            case Wait(end=end, has_started=True) if end is not None and since <= end <= until:
                self.waits.append(record.seconds)
            case Evicted(start=at) if since <= at <= until:
                self.evictions += 1
                _add(self.lost_amounts, record.lost)
            case QueueHour(start=hour) if since - 3600 < hour <= until:
                self.is_sampled = True
                _add(self.deserved, record.deserved)
                self.wanting += record.wanting
                self.share += record.share

    def join(self, other_sums: "_Sums") -> None:
        """Add the sums of another row.

        Deserved amounts are not added, since they already include queues below.
        """
        self.waits += other_sums.waits
        self.waiting += other_sums.waiting
        self.evictions += other_sums.evictions
        _add(self.spent, other_sums.spent)
        _add(self.lost_amounts, other_sums.lost_amounts)

    def row(self, name: str) -> ReportRow:
        """Return the sums as a row of the report."""
        sorted_waits = sorted(self.waits)
        hours = {name: _hours(name, n) for name, n in sorted(self.spent.items()) if n}
        return ReportRow(
            name=name,
            starts=len(sorted_waits),
            waiting=self.waiting,
            wait_median=_quantile(sorted_waits, 0.5),
            wait90=_quantile(sorted_waits, 0.9),
            wait_longest=sorted_waits[-1] if sorted_waits else None,
            gpu_hours=sum(_hours(*item) for item in gpu_amounts(self.spent)),
            cpu_hours=hours.get(CPU, 0.0),
            hours=hours,
            evictions=self.evictions,
            lost_gpu_hours=sum(_hours(*item) for item in gpu_amounts(self.lost_amounts)),
            lost_cpu_hours=_hours(CPU, self.lost_amounts.get(CPU, 0.0)),
            share=self.share / self.wanting if self.wanting else None,
            deserved_gpu_hours=sum(_hours(*item) for item in gpu_amounts(self.deserved))
            if self.is_sampled
            else None,
        )


def gpu_amounts(amounts: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the amounts of GPUs of all vendors, such as `nvidia.com/gpu`, in devices."""
    return ((name, amount) for name, amount in amounts.items() if name.endswith("/gpu"))


def _hours(name: str, amount: float) -> float:
    """Return an amount multiplied by hours, in cores for cpu. `amount` is multiplied by seconds."""
    return amount / 3600.0 / (1000 if name == CPU else 1)


def _add(sums: defaultdict[str, float], amounts: ResourceSeconds) -> None:
    for name, amount in amounts.items():
        sums[name] += amount


def _quantile(sorted_values: list[float], fraction: float) -> float | None:
    """Return the smallest value that at least `fraction` of the values do not exceed.

    None means that there are no values.
    """
    return sorted_values[ceil(fraction * len(sorted_values)) - 1] if sorted_values else None
