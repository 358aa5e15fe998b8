"""Decayed usage: the recent allocation of queues, and of users and namespaces in them.

The average counts an allocation of one half-life ago half as much as a current one. Samples are taken many
times per half-life and include short allocations in between. They survive restarts in the statuses of queues,
which are written less often: each write costs the API server.
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

_SAMPLES = 60  # per half-life
_STATUS_CHANGES = 4  # per half-life
_NOTHING = 1e-6  # part of the cluster: less is forgotten, unless it is held now
_ROUNDED_OFF = 1e-9  # part of the cluster: rounding errors of sums
_MOST = 100  # users and namespaces in a queue's status


class UsageKey(NamedTuple):
    """Key of usage: a queue, or a user or namespace in it."""

    queue: str
    user: str = ""
    namespace: str = ""


class HeldAmounts(NamedTuple):
    """Amounts that one group holds, and its queue, user and namespace."""

    queue: str
    user: str
    namespace: str
    amounts: Resources
    since: str = ""  # the timestamp since which it runs; empty: not known


class PastUsage(msgspec.Struct, frozen=True, eq=False):
    at: float = 0.0  # in seconds since 1970
    parts: Mapping[UsageKey, float] = {}  # parts of the cluster, in the dominant resource
    queues: Mapping[str, float] = {}  # the parts of all groups of each queue together
    shown_at: float = 0.0
    shown: Mapping[str, QueueUsage] = {}  # usage by queue, as in its status

    def due_at(self, half_life: float) -> float:
        """Return the time of the next sample."""
        return self.at + half_life / _SAMPLES

    def is_due(self, now: float, half_life: float) -> bool:
        """Return whether the next sample is due, or the clock was set back."""
        return now >= self.due_at(half_life) or now < self.at

    def after(self, now: float, half_life: float, held: Mapping[UsageKey, float]) -> "PastUsage":
        """Return the usage with a new sample: what was `held` on average since the last one."""
        decay = 0.5 ** (max(now - self.at, 0.0) / half_life)
        decayed = {holder: self.parts.get(holder, 0.0) * decay for holder in {**self.parts, **held}}
        parts = {holder: part + held.get(holder, 0.0) * (1.0 - decay) for holder, part in decayed.items()}
        parts = {holder: part for holder, part in parts.items() if part >= _NOTHING or holder in held}
        later = PastUsage(now, parts, _by_queue(parts))
        if self.shown_at <= now < self.shown_at + half_life / _STATUS_CHANGES:
            return replace(later, shown_at=self.shown_at, shown=self.shown)
        return replace(later, shown_at=now, shown=later._queue_usages())

    def restored(self, queue: str, written: QueueUsage, half_life: float) -> "PastUsage":
        """Return the usage with that of a queue's status in place of the queue's own."""
        try:
            half_lives = (self.at - seconds_of(written.at)) / half_life
        except (ValueError, OverflowError):
            return self
        decay = 0.5 ** max(half_lives, -1.0)  # negative: another replica's later write, or a wrong clock
        parts = {UsageKey(queue): written.share * decay}
        parts |= {UsageKey(queue, user=each.name): each.share * decay for each in written.users or ()}
        parts |= {UsageKey(queue, namespace=n.name): n.share * decay for n in written.namespaces or ()}
        parts = {**self.parts, **parts}
        return PastUsage(self.at, parts, _by_queue(parts), self.shown_at, {**self.shown, queue: written})

    def _queue_usages(self) -> dict[str, QueueUsage]:
        """Return the usage for the statuses of queues with recent usage."""
        users: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        namespaces: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for holder, part in self.parts.items():
            if holder.user:
                users[holder.queue].append((part, holder.user))
            elif holder.namespace:
                namespaces[holder.queue].append((part, holder.namespace))
        at = timestamp_at(self.at)
        return {
            queue: QueueUsage(
                at, _rounded(part), _largest_parts(users[queue]), _largest_parts(namespaces[queue])
            )
            for (queue, user, namespace), part in self.parts.items()
            if not (user or namespace)
        }

    def submitter_usage(self, queue: str, user: str, namespace: str) -> float:
        """Return the usage of a user or, where that is not known, of the namespace."""
        holder = UsageKey(queue, user=user) if user else UsageKey(queue, namespace=namespace)
        return self.parts.get(holder, 0.0)


def _by_queue(parts: Mapping[UsageKey, float]) -> Mapping[str, float]:
    return {holder.queue: part for holder, part in parts.items() if not (holder.user or holder.namespace)}


def seconds_of(timestamp: str) -> float:
    """Return a timestamp in seconds since 1970. Raises ValueError and OverflowError."""
    return as_datetime(timestamp).timestamp()


def _rounded(part: float) -> float:
    return float(f"{part:.3g}")


def _largest_parts(named: Iterable[tuple[float, str]]) -> list[UsedPart]:
    return [UsedPart(name, _rounded(part)) for part, name in sorted(named, reverse=True)[:_MOST]]


def parts_of(holding: HeldAmounts, total: Resources) -> Mapping[UsageKey, float]:
    """Return the part of the cluster that one group holds, in its dominant resource."""
    queue, user, namespace, amounts, _ = holding
    parts = (amount / total[name] for name, amount in amounts.items() if total.get(name) and name != PODS)
    if not (part := max(parts, default=0.0)):
        return {}
    users = (UsageKey(queue, user=user),) if user else ()
    return dict.fromkeys((UsageKey(queue), UsageKey(queue, namespace=namespace), *users), part)


class UsageMeter:
    """Meter of usage: allocations of groups, averaged over time.

    An update costs time in proportion to the changed groups, and a sample in proportion to all holders.

    Args:
        past: The usage before.
        half_life: In seconds; 0: no usage is recorded.
    """

    def __init__(self, past: PastUsage, half_life: float) -> None:
        self.past, self.half_life = past, half_life
        self._holdings: dict[GroupKey, HeldAmounts] = {}  # by group
        self._written: dict[str, str] = {}  # by queue: timestamp of the status at the start of the process
        self._total: Resources | None = None  # total of the cluster; None: not known yet
        self._held: dict[UsageKey, float] = {}
        # What the average since the last sample has too much: changed amounts times the seconds before them.
        self._corrections: defaultdict[UsageKey, float] = defaultdict(float)

    def record_holdings(self, holdings: Mapping[GroupKey, HeldAmounts | None], now: float) -> None:
        """Record the amounts that groups hold from now on; None: nothing."""
        for key, holding in holdings.items():
            if holding != (before := self._holdings.get(key)):
                self._add(before, now, times=-1)
                self._add(holding, now, times=1)
                if before is None and holding is not None and holding.since:
                    self._count_earlier_usage(holding, now)
                if holding is None:
                    del self._holdings[key]
                else:
                    self._holdings[key] = holding

    def restore(self, queue: str, written: QueueUsage | None) -> None:
        """Restore the usage in the status of a queue, unless some is known already."""
        if self.half_life and written is not None and UsageKey(queue) not in self.past.parts:
            self.past = self.past.restored(queue, written, self.half_life)
            self._written[queue] = written.at

    def is_due(self, now: float) -> bool:
        return bool(self.half_life) and (self._total is None or self.past.is_due(now, self.half_life))

    def is_to_be_shown(self, now: float) -> bool:
        """Return whether the usage in statuses is due to change."""
        if not (self.half_life and (self._held or self.past.parts)):
            return False
        return self.is_due(now) and now >= self.past.shown_at + self.half_life / _STATUS_CHANGES

    def sample(self, now: float, total: Resources) -> None:
        """Take a sample: averages since the last one. `total`: what all nodes offer."""
        seconds = now - self.past.at
        held = dict(self._held) if seconds > 0 else {}
        for holder, correction in self._corrections.items() if seconds > 0 else ():
            held[holder] = max(held.get(holder, 0.0) - correction / seconds, 0.0)
        self.past = self.past.after(now, self.half_life, held)
        self._corrections.clear()
        if total != self._total:
            self._total, self._held = total, {}
            for holding in self._holdings.values():
                self._add(holding, now, times=1)

    def _count_earlier_usage(self, holding: HeldAmounts, now: float) -> None:
        """Count the usage of a group before this process saw it.

        Older seconds count less, by the integral of the decay. Usage up to its queue's last status is part
        of that status, and is not counted again.
        """
        written = self._written.get(holding.queue, holding.since)
        try:
            since = max(seconds_of(holding.since), seconds_of(written))
        except (ValueError, OverflowError):
            return
        if now - since > self.half_life / _SAMPLES:
            counted_seconds = (1.0 - 0.5 ** ((now - since) / self.half_life)) * self.half_life / log(2.0)
            for holder, part in parts_of(holding, self._total or {}).items():
                self._corrections[holder] -= part * counted_seconds

    def _add(self, holding: HeldAmounts | None, now: float, times: int) -> None:
        """Add to what is held from now on; a correction accounts for the time since the last sample."""
        for holder, part in parts_of(holding, self._total or {}).items() if holding is not None else ():
            held = self._held.get(holder, 0.0) + times * part
            self._corrections[holder] += times * part * max(now - self.past.at, 0.0)
            if held < _ROUNDED_OFF:
                self._held.pop(holder, None)
            else:
                self._held[holder] = held
