"""Properties of every decision, on any cluster."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.domain.model.reasons import Reason, Verdict
from tests.domain.builders import anti_affinity, node, queue
from tests.domain.world import World, gang, timestamp
from tests.property_examples import examples

FEW = settings(max_examples=examples(25))


def started(cpus: list[int], gangs: list[int], **spec: Any) -> set[str]:
    """Return the gangs of one queue that start; members of one cpu each."""
    world = World([node(f"n{n}", cpu=str(cpu)) for n, cpu in enumerate(cpus)], queue("q", **spec))
    names = [f"g{n}" for n in range(len(gangs))]
    for n, (name, members) in enumerate(zip(names, gangs, strict=True)):
        world.add(gang(name, members, queue="q", created=timestamp(n)))
    world.settle()
    return {name for name in names if world.verdict(name) is Verdict.STARTING}


cpus = st.lists(st.integers(1, 4), min_size=1, max_size=5)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=8)
capabilities = st.sampled_from([None, {"cpu": "3"}, {"cpu": "6"}])


@FEW
@given(cpus, cpus, st.integers(1, 4), st.integers(1, 8), capabilities)
def test_more_nodes_never_start_fewer_equal_gangs(
    few: list[int], more: list[int], members: int, count: int, capability: Any
) -> None:
    """Compare gangs of one size: otherwise a large one may take the capacity of several small ones."""
    gangs = [members] * count
    assert started(few, gangs, capability=capability) <= started(few + more, gangs, capability=capability)


@FEW
@given(cpus, cpus, sizes, capabilities)
def test_more_nodes_never_start_fewer_gangs_in_strict_order(
    few: list[int], more: list[int], gangs: list[int], capability: Any
) -> None:
    """Compare gangs of any size where none passes the first one.

    Gangs that no node holds are no obstacle: with more nodes they are, so here all of them fit.
    """
    few = [*few, max(gangs)]
    fifo: dict[str, Any] = {"strategy": "fifo", "capability": capability and {"cpu": "6"}}
    assert started(few, gangs, **fifo) <= started(few + more, gangs, **fifo)


kinds: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"host_port": 80}, {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}]
)


@FEW
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
