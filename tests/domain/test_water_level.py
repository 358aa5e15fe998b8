"""Division against its definition, in exact fractions (tests/oracle/shares.py).

At each level of the tree the children have clamp(level * weight, guarantee, min(request, ceiling)), with the
level at which they have all of the capacity.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.domain.queues.share_tree import QueueDemand
from tests.oracle.shares import Queues
from tests.sharing import divide

GPU = "x.io/gpu"


@st.composite
def trees(draw: st.DrawFn) -> list[QueueDemand]:
    amount, queues = st.integers(0, 100), list[QueueDemand]()
    for n in range(draw(st.integers(1, 8))):
        most, due = draw(st.none() | amount), draw(st.none() | amount)
        queues.append(
            QueueDemand(
                f"q{n}",
                draw(st.integers(1, 9)),
                {GPU: draw(amount)},
                None if most is None else {GPU: most},
                {GPU: draw(st.integers(0, 60 if most is None else most))} if draw(st.booleans()) else {},
                groups=draw(st.integers(0, 4)) > 0,
                parent=draw(st.sampled_from(["", *(queue.name for queue in queues)])),
                deserved=None if due is None else {GPU: due},
                borrowing_limit=draw(st.sampled_from([None, None, {GPU: 5}])),
                lending_limit=draw(st.sampled_from([None, {GPU: 10}])) if due else None,
            )
        )
    return queues


def asks(name: str, request: int, parent: str = "", guaranteed: int = 0) -> QueueDemand:
    return QueueDemand(name, 1, {GPU: request}, guarantee={GPU: guaranteed}, parent=parent)


@given(st.integers(0, 200), trees())
@example(100, [asks("a", 100, guaranteed=60), asks("b", 100), asks("c", 20)])  # b and c have 20 each
@example(200, [asks("p", 0), asks("q", 100), asks("a", 99, "p", 60), asks("b", 99, "p"), asks("c", 20, "p")])
def test_every_queue_deserves_its_amount_at_the_water_level(total: int, queues: list[QueueDemand]) -> None:
    shares = divide({GPU: total}, queues)
    parts = Queues(queues).divide(GPU, total)
    for name, share in shares.items():
        exact = float(parts[name].deserved), float(parts[name].ceiling)
        assert (share.deserved.get(GPU, 0.0), share.ceiling[GPU]) == pytest.approx(exact, abs=1e-6), name
