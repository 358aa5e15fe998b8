"""Quotas of a tree of queues as room: which amounts of each flavor which queues may use.

A tree's quota is what its queues and cohorts bring along. What a lending limit keeps back is room of its own,
which only those below it may use.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Given = Mapping[str, Any]
Quota = dict[tuple[str, str], int]  # by flavor and resource


class Pool(NamedTuple):
    """Room for some queues. `owner`: the queue or cohort whose it is."""

    owner: str
    queues: tuple[str, ...]
    quota: Quota


class QuotaTree:
    """`queues` have a `cohort`, `cohorts` a `parent`; a cohort that is only named has no quota of its own."""

    def __init__(self, queues: Iterable[Given], cohorts: Iterable[Given]) -> None:
        self._above: dict[str, str] = {}
        self._own: dict[str, Given] = {}
        for cohort in cohorts:
            self._put(f"cohort-{cohort['name']}", cohort.get("parent"), cohort)
        for queue in queues:
            self._put(queue["name"], queue.get("cohort"), queue)
        self._queues = [name for name in self._own if not name.startswith("cohort-")]

    def _put(self, name: str, above: str | None, given: Given) -> None:
        self._own[name] = given
        if above is not None:
            self._above[name] = f"cohort-{above}"
            self._own.setdefault(f"cohort-{above}", {})

    def pools(self) -> list[Pool]:
        """Those of queues before those of cohorts, and these from the bottom up."""
        order = sorted(self._own, key=lambda name: -len(self.path(name)))
        return [
            Pool(name, tuple(queue for queue in self._queues if name in self.path(queue)), quota)
            for name in order
            if (quota := self._kept(name) if name in self._above else self._sum(name))
        ]

    def path(self, name: str) -> list[str]:
        """A queue or cohort and all above it; what stands in a circle is above itself only once."""
        path = [name]
        while (above := self._above.get(path[-1])) is not None and above not in path:
            path.append(above)
        return path

    def _sum(self, name: str) -> Quota:
        """What a queue or cohort brings along, and what those below it do not keep back."""
        sums: Quota = {key: given["nominal"] for key, given in limits(self._own[name])}
        for child in (child for child, above in self._above.items() if above == name):
            kept = self._kept(child)
            for key, amount in self._sum(child).items():
                sums[key] = sums.get(key, 0) + amount - kept.get(key, 0)
        return sums

    def _kept(self, name: str) -> Quota:
        """What it does not lend."""
        lent = {
            key: given["lending_limit"] for key, given in limits(self._own[name]) if "lending_limit" in given
        }
        sums = self._sum(name) if lent else {}
        return {key: sums[key] - limit for key, limit in lent.items() if sums[key] > limit}


def limits(given: Given) -> Iterable[tuple[tuple[str, str], Given]]:
    """What a queue or cohort says of each flavor and resource."""
    for group in given.get("resource_groups", ()):
        for flavor in group:
            for resource, shown in flavor["resources"].items():
                yield (flavor["flavor"], resource), shown
