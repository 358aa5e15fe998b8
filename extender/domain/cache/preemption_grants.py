"""Preemptions that were granted to pods of others, and what they may still take.

The scheduler is told which nodes it may clear; it picks one, nominates it, and evicts later. Until that
shows, the next preemption is judged as if the victims were gone: where the choice is not known, the worst.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from extender.domain.model.records import GroupKey, PodRecord, Uid

Losses = Counter[tuple[GroupKey, str]]  # members by group and role
Options = Mapping[str, Iterable[PodRecord]]  # victims by node

_PATIENCE = 30.0  # seconds after which a grant that nobody seems to use is void


class Grant(msgspec.Struct, frozen=True):
    options: Options
    expires: float

    def losses(self, claimant: PodRecord | None, pods: Mapping[Uid, PodRecord]) -> Losses:
        """What `claimant` may still take."""
        if claimant is not None and claimant.node:
            return Counter()
        chosen = self.options.get(claimant.nominated) if claimant is not None else None
        worst: Losses = Counter()
        for victims in self.options.values() if chosen is None else [chosen]:
            worst |= losses(pods[victim.uid] for victim in victims if victim.uid in pods)
        return worst


class Grants:
    def __init__(self) -> None:
        self._grants: dict[Uid, Grant] = {}

    def give(self, claimant: Uid, options: Options, now: float) -> None:
        self._grants[claimant] = Grant(options, now + _PATIENCE)

    def losses(self, but: Uid, pods: Mapping[Uid, PodRecord], now: float) -> Losses:
        """What all claimants but one may still take."""
        self._grants = {uid: grant for uid, grant in self._grants.items() if grant.expires > now}
        granted = (grant.losses(pods.get(uid), pods) for uid, grant in self._grants.items() if uid != but)
        return sum(granted, start=Counter())


def losses(victims: Iterable[PodRecord]) -> Losses:
    """What groups lose with these; who is on its way out is lost already."""
    return Counter((victim.group, victim.role) for victim in victims if victim.placed)
