"""Decayed usage: the recent allocation of queues, and of users and namespaces in queues.

Usage is an average in which an allocation of one half-life ago counts half as much as a current allocation.
Samples are taken many times per half-life, and include short allocations between two samples. The usage
survives restarts in the statuses of queues. The statuses are updated less often than samples are taken,
because each write costs the API server.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import log
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.objects.queues import QueueUsage, UsedPart
from extender.api.units import as_datetime, timestamp_at
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import PODS, Resources

_SAMPLES_PER_HALF_LIFE = 60  # number of samples per half-life
_UPDATES_PER_HALF_LIFE = 4  # number of status updates per half-life
_MIN_PART = 1e-6  # part of the cluster: less is forgotten, unless it is allocated now
_ROUNDING_ERROR = 1e-9  # part of the cluster: smaller sums are rounding errors
_MAX_ENTRIES = 100  # limit of users, and limit of namespaces, in a queue's status


class UsageKey(NamedTuple):
    """Key of usage: a queue, or a user or namespace in a queue."""

    queue: str
    user: str = ""
    namespace: str = ""


class HeldAmounts(NamedTuple):
    """Amounts that one group holds, with its queue, user and namespace."""

    queue: str
    user: str
    namespace: str
    amounts: Resources
    running_since: str = ""  # timestamp since which the group runs; empty: unknown


class PastUsage(msgspec.Struct, frozen=True, eq=False):
    """Recent usage at the time of the last sample."""

    sampled_at: float = 0.0  # time of the last sample, in seconds since 1970
    used_parts: Mapping[UsageKey, float] = {}  # used parts of the cluster, in the dominant resource
    part_by_queue: Mapping[str, float] = {}  # used part of each queue, with all its users
    shown_at: float = 0.0
    shown_usages: Mapping[str, QueueUsage] = {}  # usage in the status of each queue

    def due_at(self, half_life: float) -> float:
        """Return the time of the next sample."""
        return self.sampled_at + half_life / _SAMPLES_PER_HALF_LIFE

    def is_due(self, now: float, half_life: float) -> bool:
        """Return whether the next sample is due, or the clock was set back."""
        return now >= self.due_at(half_life) or now < self.sampled_at

    def after_sample(self, now: float, half_life: float, new_parts: Mapping[UsageKey, float]) -> "PastUsage":
        """Return the usage after a new sample.

        Args:
            now: The time of the sample.
            half_life: The half-life of usage in seconds.
            new_parts: The average allocation since the last sample, as parts of the cluster.
        """
        decay = 0.5 ** (max(now - self.sampled_at, 0.0) / half_life)
        old_parts = {key: self.used_parts.get(key, 0.0) * decay for key in {**self.used_parts, **new_parts}}
        parts = {key: part + new_parts.get(key, 0.0) * (1.0 - decay) for key, part in old_parts.items()}
        parts = {key: part for key, part in parts.items() if part >= _MIN_PART or key in new_parts}
        usage = PastUsage(now, parts, _queue_parts(parts))
        if self.shown_at <= now < self.shown_at + half_life / _UPDATES_PER_HALF_LIFE:
            return replace(usage, shown_at=self.shown_at, shown_usages=self.shown_usages)
        return replace(usage, shown_at=now, shown_usages=usage._queue_usages())

    def with_status(self, queue: str, status: QueueUsage, half_life: float) -> "PastUsage":
        """Return the usage, with a queue's own parts replaced by the usage in its status."""
        try:
            half_lives = (self.sampled_at - seconds_of(status.at)) / half_life
        except (ValueError, OverflowError):
            return self
        decay = 0.5 ** max(half_lives, -1.0)  # negative if another replica wrote later, or a clock is wrong
        parts = {UsageKey(queue): status.share * decay}
        parts |= {UsageKey(queue, user=each.name): each.share * decay for each in status.users or ()}
        parts |= {UsageKey(queue, namespace=n.name): n.share * decay for n in status.namespaces or ()}
        parts = {**self.used_parts, **parts}
        usages = {**self.shown_usages, queue: status}
        return PastUsage(self.sampled_at, parts, _queue_parts(parts), self.shown_at, usages)

    def _queue_usages(self) -> dict[str, QueueUsage]:
        """Return the usage to show in the status of each queue with recent usage."""
        users: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        namespaces: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for holder, part in self.used_parts.items():
            if holder.user:
                users[holder.queue].append((part, holder.user))
            elif holder.namespace:
                namespaces[holder.queue].append((part, holder.namespace))
        at = timestamp_at(self.sampled_at)
        return {
            queue: QueueUsage(
                at, _rounded_part(part), _largest_parts(users[queue]), _largest_parts(namespaces[queue])
            )
            for (queue, user, namespace), part in self.used_parts.items()
            if not (user or namespace)
        }

    def submitter_usage(self, queue: str, user: str, namespace: str) -> float:
        """Return the usage of a user in a queue, or of the namespace if the user is unknown."""
        holder = UsageKey(queue, user=user) if user else UsageKey(queue, namespace=namespace)
        return self.used_parts.get(holder, 0.0)


def _queue_parts(parts: Mapping[UsageKey, float]) -> Mapping[str, float]:
    """Return only the parts of whole queues, without the parts of users and namespaces."""
    return {holder.queue: part for holder, part in parts.items() if not (holder.user or holder.namespace)}


def seconds_of(timestamp: str) -> float:
    """Return a timestamp in seconds since 1970.

    Raises:
        ValueError: The timestamp cannot be read.
        OverflowError: The timestamp is out of range.
    """
    return as_datetime(timestamp).timestamp()


def _rounded_part(part: float) -> float:
    """Return a part, rounded to three significant digits for statuses."""
    return float(f"{part:.3g}")


def _largest_parts(parts: Iterable[tuple[float, str]]) -> list[UsedPart]:
    """Return the largest parts for a status, up to a limit."""
    return [UsedPart(name, _rounded_part(part)) for part, name in sorted(parts, reverse=True)[:_MAX_ENTRIES]]


def parts_of(holding: HeldAmounts, total: Resources) -> Mapping[UsageKey, float]:
    """Return the part of the cluster that a group holds, in its dominant resource.

    The mapping has the same part for the group's queue, its namespace and, if known, its user.
    """
    queue, user, namespace, amounts, _ = holding
    parts = (amount / total[name] for name, amount in amounts.items() if total.get(name) and name != PODS)
    if not (part := max(parts, default=0.0)):
        return {}
    users = (UsageKey(queue, user=user),) if user else ()
    return dict.fromkeys((UsageKey(queue), UsageKey(queue, namespace=namespace), *users), part)


class UsageMeter:
    """Meter of usage, which averages the allocations of groups over time.

    The cost of an update grows with the number of changed groups, and the cost of a sample with the number of
    holders.

    Args:
        past_usage: The usage until now.
        half_life: The half-life in seconds; 0 means that no usage is recorded.
    """

    def __init__(self, past_usage: PastUsage, half_life: float) -> None:
        self.past_usage, self.half_life = past_usage, half_life
        self._holdings: dict[GroupKey, HeldAmounts] = {}  # current allocation of each group
        self._status_times: dict[str, str] = {}  # by queue: timestamp of the restored usage in its status
        self._total: Resources | None = None  # amounts that all nodes offer; None: unknown
        self._held_parts: dict[UsageKey, float] = {}
        # Excess of the average since the last sample: changed amounts times the seconds before their change.
        self._corrections: defaultdict[UsageKey, float] = defaultdict(float)

    def record_holdings(self, holdings: Mapping[GroupKey, HeldAmounts | None], now: float) -> None:
        """Record the amounts that groups hold from now on; None means that a group holds nothing."""
        for key, holding in holdings.items():
            if holding != (old := self._holdings.get(key)):
                self._add_to_parts(old, now, sign=-1)
                self._add_to_parts(holding, now, sign=1)
                if old is None and holding is not None and holding.running_since:
                    self._count_earlier_usage(holding, now)
                if holding is None:
                    del self._holdings[key]
                else:
                    self._holdings[key] = holding

    def restore(self, queue: str, status: QueueUsage | None) -> None:
        """Restore the usage from the status of a queue, unless usage of the queue is already known."""
        if self.half_life and status is not None and UsageKey(queue) not in self.past_usage.used_parts:
            self.past_usage = self.past_usage.with_status(queue, status, self.half_life)
            self._status_times[queue] = status.at

    def is_due(self, now: float) -> bool:
        """Return whether a sample is due, or the size of the cluster is still unknown."""
        return bool(self.half_life) and (self._total is None or self.past_usage.is_due(now, self.half_life))

    def is_to_be_shown(self, now: float) -> bool:
        """Return whether the usage in the statuses of queues is due to be updated."""
        if not (self.half_life and (self._held_parts or self.past_usage.used_parts)):
            return False
        return self.is_due(now) and now >= self.past_usage.shown_at + self.half_life / _UPDATES_PER_HALF_LIFE

    def sample(self, now: float, total: Resources) -> None:
        """Take a sample of the average allocation since the last sample.

        Args:
            now: The current time in seconds since 1970.
            total: The amounts that all nodes offer.
        """
        seconds = now - self.past_usage.sampled_at
        held_parts = dict(self._held_parts) if seconds > 0 else {}
        for holder, correction in self._corrections.items() if seconds > 0 else ():
            held_parts[holder] = max(held_parts.get(holder, 0.0) - correction / seconds, 0.0)
        self.past_usage = self.past_usage.after_sample(now, self.half_life, held_parts)
        self._corrections.clear()
        if total != self._total:
            self._total, self._held_parts = total, {}
            for holding in self._holdings.values():
                self._add_to_parts(holding, now, sign=1)

    def _count_earlier_usage(self, holding: HeldAmounts, now: float) -> None:
        """Count the usage of a group from the time before this process saw the group.

        Older seconds count less, by the integral of the decay. Usage before the queue's last status is
        already part of that status, and is not counted again.
        """
        status_time = self._status_times.get(holding.queue, holding.running_since)
        try:
            since = max(seconds_of(holding.running_since), seconds_of(status_time))
        except (ValueError, OverflowError):
            return
        if now - since > self.half_life / _SAMPLES_PER_HALF_LIFE:
            counted_seconds = (1.0 - 0.5 ** ((now - since) / self.half_life)) * self.half_life / log(2.0)
            for holder, part in parts_of(holding, self._total or {}).items():
                self._corrections[holder] -= part * counted_seconds

    def _add_to_parts(self, holding: HeldAmounts | None, now: float, sign: int) -> None:
        """Add a group's amounts to the current allocation, or remove them (`sign` is -1).

        The next sample counts the new allocation from the last sample on. A correction removes the time
        between the last sample and this change.
        """
        for holder, part in parts_of(holding, self._total or {}).items() if holding is not None else ():
            new_part = self._held_parts.get(holder, 0.0) + sign * part
            self._corrections[holder] += sign * part * max(now - self.past_usage.sampled_at, 0.0)
            if new_part < _ROUNDING_ERROR:
                self._held_parts.pop(holder, None)
            else:
                self._held_parts[holder] = new_part
