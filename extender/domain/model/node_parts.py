"""A part of the nodes, told by their labels."""

from collections.abc import Mapping

from extender.domain.model.selectors import Labels

LabelPairs = tuple[tuple[str, str], ...]


class NodePart:
    """The nodes that have certain labels, without those of the parts `before` it. Equal parts have the same
    nodes; the hash is computed once."""

    __slots__ = ("_before", "_hash", "labels")

    def __init__(self, labels: LabelPairs, before: tuple[LabelPairs, ...] = ()) -> None:
        self.labels = labels
        self._before = before
        self._hash = hash((labels, before))

    def has(self, labels: Labels) -> bool:
        """Whether a node with these labels belongs to the part."""
        return _agree(self.labels, labels) and not any(_agree(others, labels) for others in self._before)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, NodePart) and (self.labels, self._before) == (other.labels, other._before)

    def __hash__(self) -> int:
        return self._hash


def parts_of(labels: list[Mapping[str, str]]) -> list[NodePart]:
    """Parts by their labels, in order: each node belongs to the first whose labels it has."""
    pairs = [tuple(sorted(each.items())) for each in labels]
    return [NodePart(each, tuple(pairs[:number])) for number, each in enumerate(pairs)]


def _agree(pairs: LabelPairs, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in pairs)
