"""Smallest change that would start a group, applied to the objects instead of their snapshot."""

import re
from collections.abc import Callable
from typing import NamedTuple

from extender.api import keys
from extender.domain.explain.holders import StartChange
from extender.domain.model.evictions import Reclaim
from extender.domain.model.resources import CPU
from tests.oracle.evictions import name_of
from tests.oracle.states import Group, State


class Change(NamedTuple):
    """State after a change, and the states after slightly smaller changes."""

    after: State
    smaller: tuple[State, ...]


_NUMBERED: tuple[tuple[str, Callable[[State, Group, int, str], State]], ...] = (
    (r"with (\d+) more nodes? like (\S+)", lambda state, _, n, node_name: with_nodes(state, n, node_name)),
    (
        r"with (\d+) more places? in the window()",
        lambda state, _, n, __: state._replace(window=state.window + n),
    ),
    (r"with a window of (\d+) members()", lambda state, _, n, __: state._replace(window=n)),
    (r"with (\d+) more members?()", lambda state, group, n, _: with_members(state, group, n)),
    (
        r"with a limit of (\d+) groups instead of \d+ in queue (\S+)",
        lambda state, _, n, queue: with_group_limit(state, queue, n),
    ),
)


def changed_state(state: State, group: Group, change: StartChange, reclaim: Reclaim | None) -> Change | None:
    """Return the states after a change; None for a change without an amount."""
    queue = state.queue(group.queue)
    if change.ends:
        ends = [name_of(end) for end in change.ends]
        spared = (state.without({*ends} - {name}) for name in ends)
        return Change(state.without(ends), tuple(spared))
    if change.capability:
        return _capability(state, change)
    for pattern, after in _NUMBERED:
        if match := re.match(pattern, change.text):
            n = int(match[1])
            smaller = (after(state, group, n - 1, match[2]),) if n > 1 else ()
            return Change(after(state, group, n, match[2]), smaller)
    if change.text.startswith("with requests of at most"):
        return _requests(state, group, change.text)
    if change.text.startswith("once the pods") and reclaim is not None:
        return Change(state.without(name_of(member.group or member.name) for member in reclaim.victims), ())
    if keys.HOLD in change.text:
        return Change(state.with_group(group._replace(is_held=False)), ())
    if keys.START_TIMEOUTS in change.text:
        return Change(state.with_group(group._replace(timeouts=0)), ())
    if "stopPolicy" in change.text and queue is not None:
        return Change(state.with_queue(queue._replace(is_stopped=False)), ())
    return None  # a change of annotations or of a namespace, which a State does not have


def _capability(state: State, change: StartChange) -> Change:
    queue = state.queue(change.queue)
    assert queue is not None
    before = dict(queue.capability)

    def with_amounts(amounts: dict[str, int]) -> State:
        return state.with_queue(queue._replace(capability=tuple((before | amounts).items())))

    raised = dict(change.capability)
    return Change(
        with_amounts(raised),
        tuple(with_amounts(raised | {resource: n - 1}) for resource, n in raised.items()),
    )


_AMOUNT = re.compile(r"(\S+) ([\d.]+)(m|Gi)? per member instead of ([\d.]+)(m|Gi)?")
_UNITS = {"": 1, "m": 1, "Gi": 2**30}


def _requests(state: State, group: Group, text: str) -> Change:
    """Return the change to members with smaller requests, and the state with one unit more."""

    def with_requests(surplus: int) -> State:
        pods = list(group.pods)
        for name, new, unit, old, old_unit in _AMOUNT.findall(text):
            now, before = _amount(name, new, unit), _amount(name, old, old_unit)
            for n, pod in enumerate(pods):
                if dict(group.pods[n].requests).get(name) == before:
                    requests = {**dict(pod.requests), name: now + surplus}
                    pods[n] = pod._replace(
                        requests=tuple(
                            sorted((resource, amount) for resource, amount in requests.items() if amount)
                        )
                    )
        return state.with_group(group._replace(pods=tuple(pods)))

    return Change(with_requests(0), (with_requests(1),))


def _amount(name: str, number: str, unit: str) -> int:
    return int(float(number) * (1000 if name == CPU and not unit else _UNITS[unit]))


def with_nodes(state: State, number: int, node_name: str) -> State:
    node = next(node for node in state.nodes if node.name == node_name)
    return state._replace(
        nodes=(*state.nodes, *(node._replace(name=f"{node_name}-{n}") for n in range(number)))
    )


def with_members(state: State, group: Group, number: int) -> State:
    return state.with_group(group._replace(pods=(*group.pods, *group.pods[:1] * number)))


def with_group_limit(state: State, queue: str, groups: int) -> State:
    changed_queue = state.queue(queue)
    assert changed_queue is not None
    return state.with_queue(changed_queue._replace(groups=groups))
