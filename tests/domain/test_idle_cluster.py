"""A group that fits an idle cluster starts, whatever its queue. tests/oracle has the rules on busy ones."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import anti_affinity, node, queue
from tests.domain.world import World, gang
from tests.property_examples import examples

kinds: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"host_port": 80}, {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}]
)


@settings(max_examples=examples(25))
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([("1", 4), ("2", 2), ("4", 1)]),
    kinds,
    st.integers(0, 9),
)
def test_no_group_starves_on_an_idle_cluster(
    nodes: int, members: int, size: tuple[str, int], kind: dict[str, Any], weight: int
) -> None:
    """One group waits, fits, and its queue is open: it starts, however small its queue's weight."""
    cpu, on_one_node = size
    fits = members <= nodes * (1 if kind else on_one_node)
    world = World([node(f"n{n}", cpu="4") for n in range(nodes)], queue("small", weight=1))
    world.add(
        queue("large", weight=1000 * weight + 1), gang("g", members, queue="small", cpu=cpu, **kind)
    ).settle()
    assert (world.verdict("g") is Verdict.STARTING) is fits
    assert fits or world.reason("g") is Reason.NEVER_FITS
