"""Rules of reclaim in docs/explanation/concepts.md.

Evictions suffice for the group, hit only groups that may lose capacity, and are no more than needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from extender.domain.model.evictions import EvictionCause, Reclaim
from extender.domain.snapshot.decisions import Decisions
from tests.domain.world import key
from tests.oracle.admission import Replay, Shares
from tests.oracle.placement import Pod, fit, free_capacity
from tests.oracle.states import Group, State


class Pick(NamedTuple):
    """Victims for one group: whole groups, since all their members are needed, and foreign pods."""

    group: Group
    reclaim: Reclaim
    victims: tuple[str, ...]

    @property
    def causes(self) -> dict[str, EvictionCause]:
        return {name_of(victim.group or victim.name): victim.cause for victim in self.reclaim.victims}

    @property
    def plan(self) -> list[tuple[Pod, str]]:
        pods = {f"uid-{self.group.name}-{n}": pod for n, pod in enumerate(self.group.pods)}
        return [(pods[uid], node) for uid, node in self.reclaim.plan.items()]


def name_of(victim: str) -> str:
    return victim.partition("/")[2] or victim


def allocations(state: State, decisions: Decisions) -> list[Pick]:
    picks = list[Pick]()
    for group in state.groups:
        if (reclaim := decisions.groups[key(group.name)].reclaim) is not None:
            victims = dict.fromkeys(name_of(victim.group or victim.name) for victim in reclaim.victims)
            picks.append(Pick(group, reclaim, tuple(victims)))
    return picks


def untrue(replay: Replay, decisions: Decisions) -> Iterator[str]:
    """Yield the violated rules, once all turns are over."""
    state, shares, picks = replay.state, replay.shares, allocations(replay.state, decisions)
    without_victims = state.without(victim for allocation in picks for victim in allocation.victims)
    capacity = free_capacity(
        state.nodes,
        [*without_victims.standing, *(place for allocation in picks for place in allocation.plan)],
    )
    if picks and any(n < 0 for amounts in capacity.values() for n in amounts.values()):
        yield "the whole group fits with its victims gone"
    for allocation in picks:
        pods = {victim.uid for victim in allocation.reclaim.victims}
        for victim in allocation.victims:
            group = next((group_ for group_ in state.groups if group_.name == victim), None)
            if group is not None and any(f"uid-{victim}-{n}" not in pods for n in range(len(group.pods))):
                yield f"a gang goes whole: {victim}"
            if not may_be_evicted(state, shares, allocation, group, allocation.causes[victim]):
                yield f"{victim} may be evicted for {allocation.group.name}"
    if len(picks) == 1 and set(replay.claimants) <= {
        picks[0].group
    }:  # no capacity is reserved for other groups
        yield from _needless(state, shares, picks[0])


def may_be_evicted(
    state: State, shares: Shares, allocation: Pick, group: Group | None, cause: EvictionCause
) -> bool:
    claimant = allocation.group
    if group is None:
        return claimant.priority > 0  # foreign pods have priority 0
    if cause is EvictionCause.PREEMPT:
        return group.priority < claimant.priority
    above = set(shares.queues.path(claimant.queue))
    for name in shares.queues.path(group.queue):
        if name in above:
            return True
        due = {resource: parts[name].deserved for resource, parts in shares.parts.items()}
        if not any(shares.held_at(name, resource) > due[resource] for resource in shares.offered(group.asks)):
            return False
    return True


def _needless(state: State, shares: Shares, allocation: Pick) -> Iterator[str]:
    """Yield each victim without which the reclaim would suffice."""
    from_others = any(cause is EvictionCause.RECLAIM for cause in allocation.causes.values())
    for spared in allocation.victims:
        victims = [
            state.group(name)
            for name in allocation.victims
            if name != spared and not name.startswith("other-")
        ]
        for group in victims:
            shares.take(group.queue, {name: -n for name, n in group.asks.items()})
        queue, requests = allocation.group.queue, allocation.group.asks
        is_open = not shares.is_above_ceiling(queue, requests)
        is_open = is_open and not (from_others and shares.is_above_share(queue, requests))
        for group in victims:
            shares.take(group.queue, group.asks)
        rest = state.without(name for name in allocation.victims if name != spared)
        if is_open and fit(
            allocation.group.pods[: allocation.group.needed], free_capacity(state.nodes, rest.standing)
        ):
            yield f"no unneeded victim is evicted for {allocation.group.name}: {spared}"
