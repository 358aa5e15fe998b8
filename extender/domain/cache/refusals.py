"""The scheduler's refusals, remembered for a while: which shape, on which node.

Otherwise the same plan would be tried endlessly. A refusal is forgotten when its node changes, or after a
time.
"""

from extender.domain.cache.claims import Claims
from extender.domain.model.shapes import Shape


class Refusals:
    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._known: dict[tuple[Shape, str], tuple[int, float]] = {}  # the node's epoch, and when it expires

    def learn(self, shape: Shape, node: str, expires: float) -> None:
        self._known[shape, node] = (self._claims.capacity.epochs.get(node, 0), expires)

    def rows(self, now: float) -> dict[Shape, frozenset[int]]:
        """By shape the rows of nodes that still refuse it; refusals that no longer count are forgotten."""
        self._forget(now)
        rows: dict[Shape, set[int]] = {}
        for shape, node in self._known:
            row = self._claims.capacity.row(node)
            if row is not None:
                rows.setdefault(shape, set()).add(row)
        return {shape: frozenset(of_shape) for shape, of_shape in rows.items()}

    def forget(self, node: str) -> bool:
        """Whether anything was refused on a node: it may not be any more."""
        kept = {key: known for key, known in self._known.items() if key[1] != node}
        was_known = len(kept) < len(self._known)
        self._known = kept
        return was_known

    def until(self) -> float | None:
        """When the next refusal expires; None: there is none."""
        return min((expires for _, expires in self._known.values()), default=None)

    def _forget(self, now: float) -> None:
        self._known = {
            (shape, node): (epoch, expires)
            for (shape, node), (epoch, expires) in self._known.items()
            if expires > now and self._claims.capacity.epochs.get(node, 0) == epoch
        }
