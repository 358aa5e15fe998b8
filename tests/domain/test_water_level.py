"""Division against its definition, in exact fractions (tests/oracle/shares.py).

At each level of the tree the children have clamp(level * weight, guarantee, min(request, ceiling)), with the
level at which they have all of the capacity.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.domain.queues.share_tree import QueueDemand
from tests.oracle.shares import Queues
from tests.property_examples import examples
from tests.sharing import divide

GPU = "x.io/gpu"
RESOURCES = ("cpu", GPU)
some = st.fixed_dictionaries(dict.fromkeys(RESOURCES, st.integers(0, 100)))


@st.composite
def trees(draw: st.DrawFn) -> list[QueueDemand]:
    queues = list[QueueDemand]()
    for n in range(draw(st.integers(1, 8))):
        most, due, guaranteed = draw(st.none() | some), draw(st.none() | some), draw(some)
        limit = most or dict.fromkeys(RESOURCES, 60)
        queues.append(
            QueueDemand(
                f"q{n}",
                draw(st.integers(1, 9)),
                draw(some),
                most,
                {resource: min(guaranteed[resource], limit[resource]) for resource in RESOURCES}
                if draw(st.booleans())
                else {},
                has_groups=draw(st.integers(0, 4)) > 0,
                parent=draw(st.sampled_from(["", *(queue.name for queue in queues)])),
                deserved=due,
                borrowing_limit=draw(st.sampled_from([None, None, {GPU: 5}])),
                lending_limit=draw(st.sampled_from([None, {GPU: 10}])) if due else None,
            )
        )
    return queues


def asks(name: str, request: int, parent: str = "", guaranteed: int = 0) -> QueueDemand:
    return QueueDemand(name, 1, {GPU: request}, guarantee={GPU: guaranteed}, parent=parent)


ONE_PARENT = [asks("p", 0), asks("q", 100), asks("a", 99, "p", 60), asks("b", 99, "p"), asks("c", 20, "p")]


@settings(max_examples=examples(150))
@given(some, trees())
@example({GPU: 100}, [asks("a", 100, guaranteed=60), asks("b", 100), asks("c", 20)])  # b and c have 20 each
@example({GPU: 200}, ONE_PARENT)
def test_every_queue_deserves_its_amount_at_the_water_level(
    total: dict[str, int], queues: list[QueueDemand]
) -> None:
    shares = divide(total, queues)
    for resource, amount in total.items():
        parts = Queues(queues).divide(resource, amount)
        for name, share in shares.items():
            exact = float(parts[name].deserved), float(parts[name].ceiling)
            found = share.deserved.get(resource, 0.0), share.ceiling[resource]
            assert found == pytest.approx(exact, abs=1e-6), (name, resource)
