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


class EvictionPlan(NamedTuple):
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


def eviction_plans(state: State, decisions: Decisions) -> list[EvictionPlan]:
    plans = list[EvictionPlan]()
    for group in state.groups:
        if (reclaim := decisions.groups[key(group.name)].reclaim) is not None:
            victims = dict.fromkeys(name_of(victim.group or victim.name) for victim in reclaim.victims)
            plans.append(EvictionPlan(group, reclaim, tuple(victims)))
    return plans


def violated_rules(replay: Replay, decisions: Decisions) -> Iterator[str]:
    """Yield the violated rules, once all turns are over."""
    state, shares, plans = replay.state, replay.shares, eviction_plans(replay.state, decisions)
    without_victims = state.without(victim for plan in plans for victim in plan.victims)
    capacity = free_capacity(
        state.nodes,
        [*without_victims.placed_pods, *(placement for plan in plans for placement in plan.plan)],
    )
    if plans and any(n < 0 for amounts in capacity.values() for n in amounts.values()):
        yield "the whole group fits with its victims gone"
    for plan in plans:
        pods = {victim.uid for victim in plan.reclaim.victims}
        for victim in plan.victims:
            group = next((other for other in state.groups if other.name == victim), None)
            if group is not None and any(f"uid-{victim}-{n}" not in pods for n in range(len(group.pods))):
                yield f"a gang goes whole: {victim}"
            if not may_be_evicted(state, shares, plan, group, plan.causes[victim]):
                yield f"{victim} may be evicted for {plan.group.name}"
    has_other_claimants = set(replay.claimants) - {plans[0].group} if plans else set()
    if len(plans) == 1 and not has_other_claimants:  # no capacity is reserved for other groups
        yield from _needless_victims(state, shares, plans[0])


def may_be_evicted(
    state: State, shares: Shares, plan: EvictionPlan, group: Group | None, cause: EvictionCause
) -> bool:
    claimant = plan.group
    if group is None:
        return claimant.priority > 0  # foreign pods have priority 0
    if cause is EvictionCause.PREEMPT:
        return group.priority < claimant.priority
    claimant_path = set(shares.queues.path(claimant.queue))
    for name in shares.queues.path(group.queue):
        if name in claimant_path:
            return True
        deserved = {resource: parts[name].deserved for resource, parts in shares.parts.items()}
        if not any(
            shares.usage_at(name, resource) > deserved[resource]
            for resource in shares.offered(group.requests)
        ):
            return False
    return True


def _needless_victims(state: State, shares: Shares, plan: EvictionPlan) -> Iterator[str]:
    """Yield each victim without which the reclaim would suffice."""
    from_others = any(cause is EvictionCause.RECLAIM for cause in plan.causes.values())
    for spared in plan.victims:
        victims = [
            state.group(name) for name in plan.victims if name != spared and not name.startswith("other-")
        ]
        for group in victims:
            shares.add_usage(group.queue, {name: -n for name, n in group.requests.items()})
        queue, requests = plan.group.queue, plan.group.requests
        is_open = not shares.is_above_ceiling(queue, requests)
        is_open = is_open and not (from_others and shares.is_above_share(queue, requests))
        for group in victims:
            shares.add_usage(group.queue, group.requests)
        rest = state.without(name for name in plan.victims if name != spared)
        if is_open and fit(
            plan.group.pods[: plan.group.needed], free_capacity(state.nodes, rest.placed_pods)
        ):
            yield f"no unneeded victim is evicted for {plan.group.name}: {spared}"
