"""Why a group does not fit: never (NeverFits), not now (NoRoom), or only in pieces (Fragmented)."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice

import msgspec
import numpy as np

from extender.api.objects.pods import NodeSelectorTerm, Toleration
from extender.api.texts import listed
from extender.domain.model.reasons import Reason
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, show
from extender.domain.model.selectors import taint_text, tolerated
from extender.domain.model.shapes import Constraints, Shape, requests_of
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.wholeness import Missing

_MOST_SHORT = 4  # resources that are looked up for one sentence
_MOST_NAMES = 8  # in one sentence: a pod may ask for thousands of resources, and a status should stay small


def explain(round_: Round, planner: Planner, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
    """The reason and its numbers for members that have no placement in `planner`."""
    members, shapes, capacity = wanted.members, wanted.shapes, planner.capacity
    if (never := never_fits(round_, wanted)) is not None:
        return never
    is_refused = any(capacity.refuses(shape) for shape in shapes)
    if is_refused and all(capacity.could_hold_but_for_refusals(shape, n) for shape, n in shapes.items()):
        detail = group.start.failure or "the scheduler rejects the nodes that have room"
        return Reason.REFUSED_BY_SCHEDULER, detail
    if not planner.affinity.any_particular(members, shapes) and capacity.is_short_for(shapes):
        # Too little room for some shape alone, and no member looks at others: nothing needs to be placed.
        at_once = f"{_room_for(capacity, shapes)} at once"
    else:
        at_once = f"room for {len(planner.fitting(members))} of {len(members)} members at once"
    parts: list[Mapping[Shape, int]] = [{shape: count} for shape, count in shapes.items()]
    for part in (*parts, shapes) if len(parts) > 1 else parts:
        there = ((name, n, capacity.left_for(part, name)) for name, n in sorted(requests_of(part).items()))
        short = (f"{it}: {show(it, n)} needed, {show(it, left)} left" for it, n, left in there if left < n)
        if numbers := " and ".join(islice(short, _MOST_SHORT)):
            return Reason.NO_ROOM, f"{numbers} on suitable nodes; {_room_for(capacity, shapes)}"
    return Reason.FRAGMENTED, at_once


def never_fits(round_: Round, wanted: Missing) -> tuple[Reason, str] | None:
    """The reason for members that have no placement even if nothing runs; None if they have one."""
    for shape in wanted.shapes:
        if not round_.empty.capacity.total(shape):
            return Reason.NEVER_FITS, _no_node(round_, shape)
    if round_.could_stand_alone(wanted):
        return None
    detail = f"all suitable nodes together cannot hold {len(wanted.members)} members, even when empty"
    return Reason.NEVER_FITS, detail


def _no_node(round_: Round, shape: Shape) -> str:
    """What no node has at all explains more than the whole request; and of the demands that no node meets
    together, those that none meets even alone."""
    nodes, asked, offers = round_.snapshot.nodes, shape.constraints, round_.largest_offers
    lacking = sorted(name for name, n in shape.requests.items() if n > 0 >= offers.get(name, 0))
    if offers and lacking:  # without nodes, more than that is lacking
        return f"no node has {listed(lacking, _MOST_NAMES)}"
    suitable = np.count_nonzero(nodes.suitable(shape))
    if suitable or not nodes.row:
        request = amounts_text(shape.requests) or "an empty request"
        return f"no node can hold {request} (suitable nodes: {suitable})"
    demands = {
        f"the label {key}={value} that nodeSelector names": nodes.has(key, value)
        for key, value in asked.node_labels
    }
    if asked.node_terms:
        alone = Shape({}, Constraints((), asked.node_terms, (Toleration(operator="Exists"),)))
        affinity = f"what the required node affinity asks for ({_in_words(asked.node_terms)})"
        demands[affinity] = bool(nodes.suitable(alone).any())
    if (part := shape.suits.part) is not None:
        anywhere = Shape({}, Constraints(tolerations=(Toleration(operator="Exists"),)))
        own = listed([f"{key}={value}" for key, value in part.labels], _MOST_NAMES)
        is_taken = part.before and all(nodes.has(key, value) for key, value in part.labels)
        besides = " without those of an earlier flavor" if is_taken else ""
        demands[f"the flavor's labels {own}".rstrip() + besides] = bool(
            nodes.suitable(anywhere.within(part)).any()
        )
    if unmet := [text for text, is_met in demands.items() if not is_met]:
        return f"no node has {listed(unmet, _MOST_NAMES, ' and ')}"
    if not nodes.suitable(Shape({}, Constraints(tolerations=asked.tolerations))).any():
        taints = {taint for node in nodes.nodes if node for taint in node.taints}
        named = sorted(taint_text(it) for it in taints if not tolerated(it, asked.tolerations))
        return f"every node has a taint that is not tolerated: {listed(named, _MOST_NAMES)}"
    tolerated_too = (*demands, "taints that are tolerated")
    return f"no node has all at once: {listed(tolerated_too, _MOST_NAMES)}"


def _in_words(node_terms: bytes) -> str:
    texts: list[str] = []
    for term in msgspec.json.decode(node_terms or b"[]", type=list[NodeSelectorTerm]):
        asked = (*(term.match_expressions or ()), *(term.match_fields or ()))
        phrases = [f"{it.key} {it.operator} {listed(it.values or (), _MOST_NAMES)}".rstrip() for it in asked]
        texts.append(listed(phrases, _MOST_NAMES, " and "))
    return listed(texts, _MOST_NAMES, " or ")


def _room_for(capacity: Capacity, shapes: Counter[Shape]) -> str:
    """Of several shapes each is counted alone."""
    fitting = sum(min(capacity.total(shape), n) for shape, n in shapes.items())
    return f"room for {'at most ' * (len(shapes) > 1)}{fitting} of {shapes.total()} members"


def amounts_text(amounts: Resources) -> str:
    """`cpu 4 memory 64Gi`; pods are left out, and of very many resources all but the first few."""
    names = sorted(amounts.keys() - {PODS}, key=lambda name: (name != CPU, name != MEMORY, name))
    return listed([f"{name} {show(name, amounts[name])}" for name in names], _MOST_NAMES, " ")
