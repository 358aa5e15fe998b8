"""decide() on what any tenant may write: numbers at their limits, the longest names, terms by the hundred.

No round raises, and no group is caught by the guard, which exists only for unforeseen faults.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.api.objects.pods import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from tests.domain.builders import HOSTNAME, ZONE, foreign_pod, group, node, pod, queue
from tests.domain.world import World, key
from tests.property_examples import examples

MOST = 2**31 - 1
LONG = "n" * 250

amount = st.sampled_from(["0", "1", "100m", "1n", "9E", "9223372036854775807", "8Ei", "1e18", "0.1"])
count = st.sampled_from([0, 1, 2, 3, 1000, MOST])
queue_name = st.sampled_from(["q", "r", LONG, "absent", ""])
group_name = st.sampled_from(["g", "h", LONG])
node_name = st.sampled_from(["a", "b", LONG])


def terms(number: int, apart: bool, key_: str) -> Affinity:
    found = [
        PodAffinityTerm(key_, LabelSelector({"app": "x"} if n == 0 else {"app": f"x{n}"}))
        for n in range(number)
    ]
    return (
        Affinity(pod_anti_affinity=PodAffinity(found)) if apart else Affinity(pod_affinity=PodAffinity(found))
    )


affinities = st.one_of(
    st.none(),
    st.builds(terms, st.sampled_from([1, 2, 300]), st.booleans(), st.sampled_from([HOSTNAME, ZONE, "none"])),
)
pods: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "cpu": amount,
        "role": st.sampled_from(["", "worker", "r" * 60]),
        "queue": queue_name,
        "gated": st.booleans(),
        "priority": st.sampled_from([None, MOST, -MOST]),
        "labels": st.sampled_from([{}, {"app": "x"}, {"l" * 63: "v" * 63}]),
        "affinity": affinities,
        "host_port": st.sampled_from([0, 0, 80, 65535]),
        "more": st.sampled_from(
            [{}, {"memory": "9E"}, {"x.io/gpu": "9223372036854775807"}, {"memory": "1n"}]
        ),
        "created": st.sampled_from(["", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
        "on": st.sampled_from(["", "", "", "a", "b", "nowhere"]),
        "phase": st.sampled_from(["", "", "Running", "Succeeded", "Failed"]),
    }
)


limits = st.sampled_from([None, {}, {"cpu": "0"}, {"cpu": "9E", "memory": "1n"}, {"x.io/gpu": "1"}])
weights, priorities = st.sampled_from([1, 2, MOST]), st.sampled_from([0, MOST, -MOST])
strategies = st.sampled_from(["", "fifo", "traverse"])


@st.composite
def clusters(draw: st.DrawFn) -> World:
    world = World()
    for name in draw(st.sets(node_name, max_size=3)):
        world.add(node(name, draw(amount), draw(amount), draw(st.sampled_from(["0", "1", "110"])), zone="z"))
    for name in draw(st.sets(st.sampled_from(["q", "r", LONG]))):
        strategy, priority = draw(strategies), draw(priorities)
        world.add(queue(name, draw(weights), draw(limits), strategy=strategy, priority=priority))
    for name in draw(st.sets(group_name)):
        roles = draw(st.sampled_from([None, {"worker": 1}, {"nobody": MOST}, {"worker": MOST, "r" * 60: 1}]))
        phase = draw(st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown", "Completed"]))
        world.add(group(name, draw(count), draw(queue_name), roles, phase=phase))
        for n in range(draw(st.integers(0, 4))):
            world.add(pod(f"{name}-{n}"[-200:], name, **draw(pods)))
    if draw(st.booleans()):
        world.add(foreign_pod("s", on="a", cpu="9E"), foreign_pod("t", on="a", cpu="9E"))
    return world


def never_faulty(world: World) -> None:
    faults = [decision.fault for decision in world.decisions.groups.values() if decision.fault]
    assert not faults, faults


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(world=clusters(), seconds=st.sampled_from([1.0, 20.0, 400.0]), data=st.data())
def test_no_cycle_raises(world: World, seconds: float, data: st.DataObject) -> None:
    never_faulty(world.settle())
    for name in list(world.pods):
        if data.draw(st.booleans()):
            getattr(world, data.draw(st.sampled_from(["delete", "mark_deleted", "finish", "ungate"])))(name)
    if data.draw(st.booleans()):
        world.ledger.intake.drop_group(key("g"))
    if data.draw(st.booleans()) and world.nodes:
        world.drop_node(next(iter(world.nodes)))
    world.pass_time(seconds)
    never_faulty(world)
