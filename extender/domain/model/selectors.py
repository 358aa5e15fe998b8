"""Label selectors, node selectors and taints, with the meaning that kube-scheduler gives each operator."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import LabelSelector, NodeSelectorTerm, Requirement, Toleration

Labels = Mapping[str, str]
_REPELLING = ("NoSchedule", "NoExecute")
_MAX_DIGITS = 20  # characters of a 64-bit number with its sign


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether a selector selects labels.

    An absent selector selects nothing, an empty selector everything.
    """
    if selector is None:
        return False
    pairs = selector.match_labels or {}
    has_labels = all(labels.get(key) == value for key, value in pairs.items())
    return has_labels and _meets_all(selector.match_expressions, labels)


def allows(term: NodeSelectorTerm, labels: Labels, node_name: str) -> bool:
    """Return whether one term of a node affinity admits a node. An empty term admits no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node_name}
    return _meets_all(term.match_expressions, labels) and _meets_all(term.match_fields, fields)


def _meets_all(requirements: list[Requirement] | None, labels: Labels) -> bool:
    return all(_meets_requirement(requirement, labels) for requirement in requirements or [])


def _meets_requirement(requirement: Requirement, labels: Labels) -> bool:
    """Return whether labels meet a requirement of a selector, as in Kubernetes."""
    value, values = labels.get(requirement.key), requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as comparison:
            number, bound = as_number(value or ""), as_number(values[0] if values else "")
            if number is None or bound is None:
                return False
            return number > bound if comparison == "Gt" else number < bound
    return False


def as_number(text: str) -> int | None:
    """Return the 64-bit number that `Gt` and `Lt` compare; None for a text that is no such number."""
    try:
        number = int(text) if len(text) <= _MAX_DIGITS else None
    except ValueError:
        return None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether a taint lets a pod with these tolerations onto the node.

    PreferNoSchedule always does.
    """
    return taint.effect not in _REPELLING or any(_tolerates(toleration, taint) for toleration in tolerations)


def taint_text(taint: Taint) -> str:
    """Return a taint in the form KEY=VALUE:EFFECT."""
    return f"{taint.key}{taint.value and '='}{taint.value}:{taint.effect}"


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration tolerates a taint, as in Kubernetes."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
    return False


LabelPairs = tuple[tuple[str, str], ...]


class NodePart:
    """Part of the nodes: the nodes with certain labels that are not in any of the `earlier_parts`.

    Equal parts contain the same nodes.
    """

    __slots__ = ("_hash", "earlier_parts", "labels")

    def __init__(self, labels: LabelPairs, before: tuple[LabelPairs, ...] = ()) -> None:
        self.labels = labels
        self.earlier_parts = before
        self._hash = hash((labels, before))

    def has(self, labels: Labels) -> bool:
        """Return whether a node with these labels is in the part."""
        return _match_all_pairs(self.labels, labels) and not any(
            _match_all_pairs(pairs, labels) for pairs in self.earlier_parts
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        fields = self.labels, self.earlier_parts
        return isinstance(other, NodePart) and fields == (other.labels, other.earlier_parts)

    def __hash__(self) -> int:
        return self._hash


# Equal parts are one object, because dictionaries compare identities first.
_part_of = lru_cache(4096)(NodePart)
NOWHERE = _part_of((("", ""),))  # no label has this key


def parts_of(labels: Sequence[Mapping[str, str] | None]) -> list[NodePart]:
    """Return the parts into which labels divide the nodes, in order.

    A node belongs to the first part whose labels it has. A None among the labels stands for a part without
    nodes. The `earlier_parts` of a part include an earlier part only if a node could have the labels of both
    parts. Therefore, parts with the same nodes are equal in any list.
    """
    pairs = [NOWHERE.labels if part is None else tuple(sorted(part.items())) for part in labels]
    parts = []
    for number, current in enumerate(pairs):
        earlier_pairs = {other for other in pairs[:number] if other != NOWHERE.labels}
        other_pairs = {other for other in earlier_pairs if not _is_contradictory(current, other)}
        parts.append(NOWHERE if current == NOWHERE.labels else _part_of(current, tuple(sorted(other_pairs))))
    return parts


def _is_contradictory(pairs: LabelPairs, other_pairs: LabelPairs) -> bool:
    """Return whether no node can have the labels of both parts."""
    values = dict(pairs)
    return any(key in values and values[key] != value for key, value in other_pairs)


def _match_all_pairs(pairs: LabelPairs, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in pairs)
