"""The division against its definition, in exact fractions: at each level of the tree the children have
clamp(level * weight, guarantee, min(request, ceiling)), with the level at which they have all of the room.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.domain.queues.share_tree import QueueDemand
from tests.sharing import divide

GPU = "x.io/gpu"
Bounds = tuple[int, Fraction, Fraction]  # weight, the least and the most of a child


def levelled(room: Fraction, children: Sequence[Bounds]) -> list[Fraction]:
    """What each child has. The sum of all rises with the level, in straight lines between the levels at which
    a child leaves its lower bound or reaches its upper one."""

    def at(level: Fraction) -> list[Fraction]:
        return [min(max(level * weight, least), max(most, least)) for weight, least, most in children]

    bends = sorted({bound / weight for weight, *bounds in children for bound in bounds} | {Fraction(0)})
    below = max((bend for bend in bends if sum(at(bend)) <= room), default=bends[0])
    above = min((bend for bend in bends if bend > below), default=below)
    slope = sum(at(above)) - sum(at(below))
    part = Fraction(room - sum(at(below)), slope) if slope else Fraction(0)
    return at(below + max(part, Fraction(0)) * (above - below))


class Oracle:
    def __init__(self, queues: Sequence[QueueDemand]) -> None:
        self.below: dict[str, list[QueueDemand]] = {"": []}
        for queue in queues:
            self.below[queue.name] = []
            self.below[queue.parent].append(queue)

    def kept(self, queue: QueueDemand) -> Fraction:
        own = Fraction(queue.guarantee.get(GPU, 0))
        return max(own, sum(map(self.kept, self.below[queue.name]), Fraction(0)))

    def takes_part(self, queue: QueueDemand) -> bool:
        return queue.groups or any(map(self.takes_part, self.below[queue.name]))

    def asked(self, queue: QueueDemand) -> Fraction:
        """With what is kept for it, and no more than it may hold."""
        if not self.takes_part(queue):
            return self.kept(queue)
        own = Fraction(queue.request.get(GPU, 0) if queue.groups else 0)
        total = own + sum(map(self.asked, self.below[queue.name]), Fraction(0))
        most = (queue.capability or {}).get(GPU)
        return max(total if most is None else min(total, Fraction(most)), self.kept(queue))

    def shares(
        self, parent: str, room: Fraction, ceiling: Fraction, own: Fraction
    ) -> Iterator[tuple[str, Fraction]]:
        """`own`: what the parent's own groups ask for; they are one more child."""
        queues = self.below[parent]
        unclaimed = max(ceiling - sum(map(self.kept, queues), Fraction(0)), Fraction(0))
        room -= sum((self.kept(queue) for queue in queues if not self.takes_part(queue)), Fraction(0))
        taking = [queue for queue in queues if self.takes_part(queue)]
        bounds: list[Bounds] = [(1, Fraction(0), min(own, unclaimed))]
        ceilings = {}
        for queue in taking:
            most = (queue.capability or {}).get(GPU)
            may_hold = unclaimed + self.kept(queue)
            ceilings[queue.name] = may_hold if most is None else min(may_hold, Fraction(most))
            allowed = min(self.asked(queue), ceilings[queue.name])
            bounds.append((queue.weight, self.kept(queue), allowed))
        shares = levelled(max(room, Fraction(0)), bounds)[1:]
        for queue, share in zip(taking, shares, strict=True):
            yield queue.name, share
            if self.below[queue.name]:
                asked = Fraction(queue.request.get(GPU, 0) if queue.groups else 0)
                yield from self.shares(queue.name, share, ceilings[queue.name], asked)


@st.composite
def trees(draw: st.DrawFn) -> list[QueueDemand]:
    amount, queues = st.integers(0, 100), list[QueueDemand]()
    for n in range(draw(st.integers(1, 8))):
        most = draw(st.none() | amount)
        queues.append(
            QueueDemand(
                f"q{n}",
                draw(st.integers(1, 9)),
                {GPU: draw(amount)},
                None if most is None else {GPU: most},
                {GPU: draw(st.integers(0, 60 if most is None else most))} if draw(st.booleans()) else {},
                groups=draw(st.integers(0, 4)) > 0,
                parent=draw(st.sampled_from(["", *(queue.name for queue in queues)])),
            )
        )
    return queues


def asks(name: str, request: int, parent: str = "", guaranteed: int = 0) -> QueueDemand:
    return QueueDemand(name, 1, {GPU: request}, guarantee={GPU: guaranteed}, parent=parent)


@given(st.integers(0, 200), trees())
@example(100, [asks("a", 100, guaranteed=60), asks("b", 100), asks("c", 20)])  # b and c have 20 each
@example(200, [asks("p", 0), asks("q", 100), asks("a", 99, "p", 60), asks("b", 99, "p"), asks("c", 20, "p")])
def test_every_queue_deserves_what_the_water_level_gives(total: int, queues: list[QueueDemand]) -> None:
    shares = divide({GPU: total}, queues)
    exact = dict(Oracle(queues).shares("", Fraction(total), Fraction(total), Fraction(0)))
    found = {name: share.deserved.get(GPU, 0.0) for name, share in shares.items()}
    assert found == pytest.approx({name: float(share) for name, share in exact.items()}, abs=1e-6)
