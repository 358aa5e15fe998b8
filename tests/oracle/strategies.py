"""Random small clusters: with all kinds of settings, or crowded with gangs."""

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from extender.domain.model.resources import CPU, MEMORY, PODS
from tests.oracle.placement import Amounts, Node, Pod, fit, free_capacity
from tests.oracle.states import GONE, GPU, Group, Queue, State

GIB = 2**30
_CPUS, _GPUS, _GIBS = (500, 1000, 1000, 1500, 2000, 3000), (0, 0, 0, 0, 1, 2), (0, 0, 0, 1, 2)
_KINDS = ("",) * 6 + ("a", "b")
_UNITS = {CPU: 500, GPU: 1}
AmountTuple = tuple[tuple[str, int], ...]


def _amounts(amounts: Amounts) -> AmountTuple:
    return tuple(sorted((name, n) for name, n in amounts.items() if n))


def _once_in(draw: st.DrawFn, times: int) -> bool:
    """Draw a boolean that is true once in `times` times."""
    return draw(st.integers(1, times)) == times


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    requests = {
        CPU: draw(st.sampled_from(_CPUS)),
        MEMORY: draw(st.sampled_from(_GIBS)) * GIB,
        GPU: draw(st.sampled_from(_GPUS)),
        PODS: 1,
    }
    return Pod(_amounts(requests), draw(st.sampled_from(_KINDS)), tolerates=_once_in(draw, 4))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    offers = {
        CPU: draw(st.sampled_from((1000, 2000, 3000, 4000, 6000))),
        MEMORY: draw(st.sampled_from((2, 4, 8))) * GIB,
        PODS: draw(st.sampled_from((3, 110, 110))),
        GPU: draw(st.sampled_from((0, 0, 1, 2, 4))),
    }
    kind = draw(st.sampled_from(("", "a", "a", "b")))
    return Node(name, _amounts(offers), kind, is_tainted=_once_in(draw, 5))


@st.composite
def queues(draw: st.DrawFn, name: str, parents: Sequence[str], equal_share: Amounts) -> Queue:
    """Draw a queue. `equal_share`: an equal share of the cluster, which bounds its guarantee."""

    def draw_amounts(maximum: Amounts, times: int, minimum: int = 0) -> AmountTuple:
        names = [resource for resource in _UNITS if resource in equal_share and _once_in(draw, times)]
        counts = {
            resource: draw(st.integers(minimum, max(maximum[resource] // _UNITS[resource], minimum)))
            for resource in names
        }
        return tuple((resource, n * _UNITS[resource]) for resource, n in counts.items())

    if draw(st.booleans()):
        return draw(plain_queues(name, parents))
    capability = draw_amounts({resource: 3 * n for resource, n in equal_share.items()}, 4, minimum=2)
    deserved = draw_amounts(equal_share, 4)
    nominal = dict(deserved)
    return Queue(
        name,
        draw(st.integers(1, 4)),
        draw(st.sampled_from(parents)),
        draw(st.sampled_from((0, 0, 0, 1))),
        draw(st.sampled_from(("", "", "fifo"))),
        capability,
        tuple(
            (resource, min(n, dict(capability).get(resource, n)))
            for resource, n in draw_amounts(equal_share, 6)
        ),
        deserved,
        draw_amounts({CPU: 1000, GPU: 1}, 6),
        tuple(
            (resource, n)
            for resource, n in draw_amounts({CPU: 0, GPU: 0} | nominal, 4)
            if resource in nominal
        ),
        is_stopped=_once_in(draw, 16),
        is_restricted=_once_in(draw, 16),
        is_for_others=_once_in(draw, 16),
        groups=draw(st.sampled_from((None, None, None, None, 1, 2))),
        reclaims=_once_in(draw, 4),
    )


@st.composite
def plain_queues(draw: st.DrawFn, name: str, parents: Sequence[str]) -> Queue:
    """Draw a queue without limits."""
    weight, parent = draw(st.integers(1, 3)), draw(st.sampled_from(parents))
    return Queue(name, weight, parent, reclaims=draw(st.booleans()))


@st.composite
def groups(draw: st.DrawFn, name: str, queues: Sequence[str], shapes: Sequence[Pod]) -> Group:
    """Draw a group with members of at most two shapes; optional members have one shape."""
    kinds = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=2))
    members = tuple(sorted(draw(st.sampled_from(kinds)) for _ in range(draw(st.integers(1, 4)))))
    surplus = draw(st.sampled_from((0, 0, 0, 0, -1, 1))) if len(set(members)) == 1 else 0
    return Group(
        name,
        draw(st.sampled_from(queues)),
        max(len(members) + surplus, 1),
        members,
        age=float(draw(st.integers(1, 500))),
        priority=draw(st.sampled_from((0, 0, 0, 5))),
    )


@st.composite
def mixed(draw: st.DrawFn) -> State:
    """Draw a state in which running pods fit.

    A few gangs of up to four members wait; most could start alone.
    """
    cluster_nodes = tuple(draw(nodes(f"n{n}")) for n in range(draw(st.integers(1, 4))))
    state = State(cluster_nodes, (), (), window=draw(st.sampled_from((1000, 1000, 1000, 3, 6))))
    names, number = [""], draw(st.integers(1, 4))
    for n in range(number):
        queue = draw(
            queues(f"q{n}", names, {resource: amount // number for resource, amount in state.offers.items()})
        )
        state = state._replace(queues=(*state.queues, queue))
        names.append(queue.name)
    for queue in state.queues:
        is_leaf = all(other.parent != queue.name for other in state.queues)
        if is_leaf and _once_in(draw, 10):
            state = state.with_queue(queue._replace(is_closed=True))
    others = list[tuple[Pod, str]]()
    for _ in range(draw(st.integers(0, 2))):
        pod, node = draw(pods()), draw(st.sampled_from(cluster_nodes))
        if fit([pod], {node: free_capacity(cluster_nodes, others)[node]}):
            others.append((pod, node.name))
    empty = free_capacity(cluster_nodes, ())
    shapes = [pod for pod in draw(st.lists(pods(), min_size=4, max_size=4)) if fit([pod], empty)]
    drawn_groups = list[Group]()
    for n in range(draw(st.integers(2, 9))):
        group = draw(groups(f"g{n}", [*names[1:] * 12, GONE], shapes or [draw(pods())]))
        if not fit(group.pods, empty) and draw(st.integers(0, 4)):
            group = group._replace(pods=group.pods[:1], needed=min(group.needed, 1))
        group = group._replace(is_held=_once_in(draw, 16), exists=not _once_in(draw, 16))
        group = group._replace(timeouts=draw(st.sampled_from((0,) * 12 + (2, 3))))
        group = group._replace(retry_in=draw(st.sampled_from((0.0,) * 12 + (3.0,))))
        if n < 5 and draw(st.booleans()) and group.queue != GONE and group.exists:
            group = _placed(draw, group, cluster_nodes, [*others, *_places(drawn_groups)])
        drawn_groups.append(group)
    return state._replace(groups=tuple(drawn_groups), others=tuple(others))


@st.composite
def crowded(draw: st.DrawFn) -> State:
    """Draw a state of cpus alone, with more groups than capacity."""
    sizes = draw(st.lists(st.sampled_from((2000, 3000, 4000, 5000)), min_size=2, max_size=4))
    cluster_nodes = tuple(
        Node(f"n{n}", _amounts({CPU: size, MEMORY: GIB, PODS: 110})) for n, size in enumerate(sizes)
    )
    names = [""]
    reserved = list[Queue]()
    for n in range(draw(st.integers(2, 3))):
        reserved.append(draw(plain_queues(f"q{n}", names if _once_in(draw, 4) else [""])))
        names.append(f"q{n}")
    shapes = [Pod(_amounts({CPU: size, PODS: 1})) for size in (1000, 1500, 2000, 3000)]
    drawn_groups = list[Group]()
    for n in range(draw(st.integers(3, 8))):
        group = draw(groups(f"g{n}", names[1:], shapes))
        if n < 3 and draw(st.booleans()):
            group = _placed(draw, group, cluster_nodes, _places(drawn_groups))
        drawn_groups.append(group)
    return State(cluster_nodes, tuple(reserved), tuple(drawn_groups))


@st.composite
def growing(draw: st.DrawFn) -> State:
    """Draw a state in which running groups lack optional members; nothing is reclaimed."""
    state = draw(states())
    for queue in state.queues:
        state = state.with_queue(queue._replace(reclaims=False, is_closed=False))
    for group in state.groups:
        if group.nodes:
            count = draw(st.integers(1, len(group.nodes)))
            further_pods = tuple(draw(st.sampled_from(group.pods)) for _ in range(draw(st.integers(0, 3))))
            nodes, minimum = group.nodes[:count], draw(st.integers(1, count))
            state = state.with_group(
                group._replace(nodes=nodes, needed=minimum, pods=(*group.pods, *further_pods))
            )
    return state


def states() -> st.SearchStrategy[State]:
    return mixed() | crowded()


def _places(drawn_groups: Iterable[Group]) -> list[tuple[Pod, str]]:
    return [placement for group in drawn_groups for placement in zip(group.pods, group.nodes, strict=False)]


def _placed(
    draw: st.DrawFn, group: Group, cluster_nodes: Sequence[Node], placed_pods: Sequence[tuple[Pod, str]]
) -> Group:
    """Return the group placed on nodes, if all its members fit on the drawn ones."""
    names = list[str]()
    for pod in group.pods:
        capacity = free_capacity(cluster_nodes, [*placed_pods, *zip(group.pods, names, strict=False)])
        suitable = [node.name for node in cluster_nodes if fit([pod], {node: capacity[node]})]
        if not suitable:
            return group
        names.append(draw(st.sampled_from(suitable)))
    return group._replace(nodes=tuple(names), needed=len(group.pods), retry_in=0.0)
