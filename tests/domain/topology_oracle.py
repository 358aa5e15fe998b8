"""Exhaustive search of placements for gangs that share domains, and of the fewest domains."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

Node = str
Level = Mapping[Node, str]  # domains by node, for nodes with the level's label


class Member(NamedTuple):
    """Member of a gang: its request, and the names of its sets."""

    cpu: int
    sets: tuple[str, ...] = ()


def is_placeable(members: Sequence[Member], free: Mapping[Node, int], levels: Mapping[str, Level]) -> bool:
    """Return whether all members fit. `levels`: for each set, the level of which it needs one domain."""
    for domains in choices(members, levels):
        if _fits(members, free, [_nodes_for(member, domains, levels, free) for member in members]):
            return True
    return False


def fewest_domains(members: Sequence[Member], free: Mapping[Node, int], level: Level) -> int | None:
    """Return the fewest domains of a level on which all members fit; None if they do not fit."""
    names = sorted({*level.values()})
    for count in range(1, len(names) + 1):
        for are_picked in product((False, True), repeat=len(names)):
            picked_names = {name for name, is_picked in zip(names, are_picked, strict=True) if is_picked}
            nodes = [node for node in free if level.get(node) in picked_names]
            if len(picked_names) == count and _fits(members, free, [nodes] * len(members)):
                return count
    return None


def choices(members: Sequence[Member], levels: Mapping[str, Level]) -> Iterator[dict[str, str]]:
    """Yield all assignments of domains to sets."""
    names = sorted({name for member in members for name in member.sets})
    for domains in product(*(sorted({*levels[name].values()}) for name in names)):
        yield dict(zip(names, domains, strict=True))


def _nodes_for(
    member: Member, chosen: Mapping[str, str], levels: Mapping[str, Level], free: Mapping[Node, int]
) -> list[Node]:
    return [node for node in free if all(levels[name].get(node) == chosen[name] for name in member.sets)]


def _fits(members: Sequence[Member], free: Mapping[Node, int], nodes: Sequence[Sequence[Node]]) -> bool:
    """Return whether all members fit at the same time, each on one of its nodes."""
    remaining = dict(free)
    order = sorted(
        range(len(members)), key=lambda index: (-members[index].cpu, len(nodes[index]), nodes[index])
    )
    visited: set[tuple[int, tuple[int, ...]]] = set()

    def place_from(position: int) -> bool:
        if position == len(order):
            return True
        state = position, tuple(remaining.values())
        if state in visited:
            return False
        visited.add(state)
        member = order[position]
        for node in nodes[member]:
            if remaining[node] >= members[member].cpu:
                remaining[node] -= members[member].cpu
                if place_from(position + 1):
                    return True
                remaining[node] += members[member].cpu
        return False

    return place_from(0)
