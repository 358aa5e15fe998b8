"""Preemptions that were granted to pods that are not ours, and what they may still take.

The scheduler is told which nodes it may clear; it picks one, nominates it, and evicts later. Until the watch
shows that, the next preemption is judged as if the victims were gone: those of the nominated node or, while
that is not known, the worst case over all granted nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from extender.domain.cache.claims import Claims
from extender.domain.cache.registry import Registry
from extender.domain.model.records import GroupKey, PodRecord, Uid

Losses = Counter[tuple[GroupKey, str]]  # members by group and role
Options = Mapping[str, Iterable[PodRecord]]  # victims by node

_PATIENCE = 30.0  # seconds after which an unused grant is void


class Grant(msgspec.Struct, frozen=True):
    options: Options  # the nodes that may be cleared, with victims that are ours
    expires: float  # monotonic, in seconds

    def losses(self, claimant: PodRecord | None, pods: Mapping[Uid, PodRecord]) -> Losses:
        """The members that `claimant` may still evict."""
        if claimant is not None and claimant.node:
            return Counter()
        chosen = self.options.get(claimant.nominated) if claimant is not None else None
        worst: Losses = Counter()
        for victims in self.options.values() if chosen is None else [chosen]:
            worst |= losses(pods[victim.uid] for victim in victims if victim.uid in pods)
        return worst


class PreemptionGrants:
    """Callers hold the ledger's lock."""

    def __init__(
        self,
        pods: Mapping[Uid, PodRecord],
        registry: Registry,
        claims: Claims,
        clock: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._registry = registry
        self._claims = claims
        self._clock = clock
        self._grants: dict[Uid, Grant] = {}

    def may_clear(
        self, claimant: Uid, victims: Mapping[str, Sequence[Uid]], is_confirmed: bool = False
    ) -> set[str]:
        """The nodes whose victims a pod that is not ours may evict without breaking a gang or a start under
        way. A pod that neither the watch has shown nor the API server has confirmed may evict none of ours:
        any caller of the port could have invented it."""
        is_real = is_confirmed or claimant in self._pods
        now = self._clock()
        promised = self._losses(claimant, now)
        options = {
            node: [pod for uid in uids if (pod := self._pods.get(uid)) and pod.group]
            for node, uids in victims.items()
        }
        granted = {
            node: pods
            for node, pods in options.items()
            if not pods or (is_real and self._could_lose(pods, promised))
        }
        self._grants.pop(claimant, None)
        if any(granted.values()):
            self._grants[claimant] = Grant(granted, now + _PATIENCE)
        return set(granted)

    def _losses(self, but: Uid, now: float) -> Losses:
        """The members that all claimants except one may still evict."""
        self._grants = {uid: grant for uid, grant in self._grants.items() if grant.expires > now}
        granted = (
            grant.losses(self._pods.get(uid), self._pods) for uid, grant in self._grants.items() if uid != but
        )
        return sum(granted, start=Counter())

    def _could_lose(self, victims: Sequence[PodRecord], promised: Losses) -> bool:
        """Whether the groups can lose these victims together with what other claimants were promised."""
        if any((claim := self._claims.get(pod.uid)) and claim.in_flight for pod in victims):
            return False
        lost = promised + losses(victims)
        return all(
            self._registry.group(key).could_lose(
                Counter({role: n for (of, role), n in lost.items() if of == key})
            )
            for key in {pod.group for pod in victims}
        )


def losses(victims: Iterable[PodRecord]) -> Losses:
    """The members that groups lose with `victims`; those that are being deleted are lost already."""
    return Counter((victim.group, victim.role) for victim in victims if victim.placed)
