"""The scheduler's refusals, remembered for a while: which shape, on which node.

Otherwise the same plan would be tried endlessly. A refusal is forgotten when its node changes, or after a
time.
"""

from extender.domain.cache.claims import Claims
from extender.domain.model.shapes import Shape


class Refusals:
    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._known: dict[str, dict[Shape, tuple[int, float]]] = {}  # by node: its epoch, and until when

    def learn(self, shape: Shape, node: str, expires: float) -> None:
        epoch = self._claims.capacity.epochs.get(node, 0)
        self._known.setdefault(node, {})[shape] = (epoch, expires)

    def rows(self, now: float) -> dict[Shape, frozenset[int]]:
        """By shape the rows of nodes that still refuse it; refusals that no longer count are forgotten."""
        self._forget(now)
        rows: dict[Shape, set[int]] = {}
        for node, shapes in self._known.items():
            row = self._claims.capacity.row(node)
            if row is not None:
                for shape in shapes:
                    rows.setdefault(shape, set()).add(row)
        return {shape: frozenset(of_shape) for shape, of_shape in rows.items()}

    def forget(self, node: str) -> bool:
        """Whether anything was refused on a node: it may not be any more."""
        return self._known.pop(node, None) is not None

    def until(self) -> float | None:
        """When the next refusal expires; None: there is none."""
        return min((end for shapes in self._known.values() for _, end in shapes.values()), default=None)

    def _forget(self, now: float) -> None:
        for node, shapes in list(self._known.items()):
            epoch = self._claims.capacity.epochs.get(node, 0)
            left = {shape: known for shape, known in shapes.items() if known[0] == epoch and known[1] > now}
            if left:
                self._known[node] = left
            else:
                del self._known[node]
