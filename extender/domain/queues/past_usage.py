"""What the groups of each queue have held lately, and those of each user and namespace in it: averages over
time in which what was held one half-life ago counts half as much as what is held now.

They are taken at moments, many in a half-life, and survive restarts in the statuses of queues.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from extender.api.objects.queues import QueueUsage, UsedPart
from extender.api.units import as_datetime, timestamp_at
from extender.domain.model.resources import PODS, Resources

_MOMENTS = 200  # in a half-life
_NOTHING = 1e-6  # of the cluster: less is forgotten, unless it is held now
_MOST = 100  # users and namespaces that a queue's status names


class UsedBy(NamedTuple):
    """A queue; or a user or a namespace in it."""

    queue: str
    user: str = ""
    namespace: str = ""


class PastUsage(msgspec.Struct, frozen=True, eq=False):
    at: float = 0.0  # in seconds since 1970
    parts: Mapping[UsedBy, float] = {}  # of the cluster, in the resource of which it is the most

    def due_at(self, half_life: float) -> float:
        """The next moment at which it is to be taken."""
        return self.at + half_life / _MOMENTS

    def after(self, now: float, half_life: float, held: Mapping[UsedBy, float]) -> "PastUsage":
        """With what is `held` now, since the moment before."""
        kept = 0.5 ** (max(now - self.at, 0.0) / half_life)
        both = {holder: self.parts.get(holder, 0.0) * kept for holder in {**self.parts, **held}}
        parts = {holder: part + held.get(holder, 0.0) * (1.0 - kept) for holder, part in both.items()}
        return PastUsage(
            now, {holder: part for holder, part in parts.items() if part >= _NOTHING or holder in held}
        )

    def restored(self, queue: str, written: QueueUsage, half_life: float) -> "PastUsage":
        """With what the status of a queue says, of which nothing is known yet."""
        try:
            since = (self.at - as_datetime(written.at).timestamp()) / half_life
        except (ValueError, OverflowError):
            return self
        kept = 0.5 ** max(since, -10.0)  # negative: another replica, which led, wrote it later
        parts = {UsedBy(queue): written.share * kept}
        parts |= {UsedBy(queue, user=each.name): each.share * kept for each in written.users or ()}
        parts |= {UsedBy(queue, namespace=each.name): each.share * kept for each in written.namespaces or ()}
        return PastUsage(self.at, {**self.parts, **parts})

    def of_queues(self) -> dict[str, QueueUsage]:
        """As the statuses of queues say it; without those that have held nothing lately."""
        users: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        namespaces: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for holder, part in self.parts.items():
            if holder.user:
                users[holder.queue].append((part, holder.user))
            elif holder.namespace:
                namespaces[holder.queue].append((part, holder.namespace))
        at = timestamp_at(self.at)
        return {
            queue: QueueUsage(at, _rounded(part), *(_largest(of[queue]) for of in (users, namespaces)))
            for (queue, user, namespace), part in self.parts.items()
            if not (user or namespace)
        }

    def of_submitter(self, queue: str, user: str, namespace: str) -> float:
        """Of a user or, where that is not known, of all of the namespace."""
        holder = UsedBy(queue, user=user) if user else UsedBy(queue, namespace=namespace)
        return self.parts.get(holder, 0.0)


def _rounded(part: float) -> float:
    return float(f"{part:.3g}")


def _largest(named: Iterable[tuple[float, str]]) -> list[UsedPart]:
    return [UsedPart(name, _rounded(part)) for part, name in sorted(named, reverse=True)[:_MOST]]


def held_by(groups: Iterable[tuple[str, str, str, Resources]], total: Resources) -> Mapping[UsedBy, float]:
    """The parts of the cluster that groups hold. Of each group: its queue, user, namespace and amounts."""
    held: defaultdict[UsedBy, float] = defaultdict(float)
    for queue, user, namespace, amounts in groups:
        parts = (amount / total[name] for name, amount in amounts.items() if total.get(name) and name != PODS)
        if part := max(parts, default=0.0):
            held[UsedBy(queue)] += part
            held[UsedBy(queue, namespace=namespace)] += part
            if user:
                held[UsedBy(queue, user=user)] += part
    return held
