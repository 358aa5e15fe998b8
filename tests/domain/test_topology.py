"""Gangs whose pods require one domain of a topology: they are placed, and replaced, inside one."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.workloads.sets import JOB_SET
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.jobs import JobKind
from tests.domain.builders import node, pod, queue
from tests.domain.job_world import JobWorld, job
from tests.domain.world import World, gang, key
from tests.rows import each_of

RACK = "example.com/rack"
IN_A_RACK = {keys.REQUIRED_TOPOLOGY: RACK}


def racks(**sizes: int) -> list[Any]:
    """Return nodes of 4 cpu: `racks(a=2)` has a0 and a1 in rack a."""
    return [node(f"{rack}{n}", "4", labels={RACK: rack}) for rack, size in sizes.items() for n in range(size)]


@each_of(keys.REQUIRED_TOPOLOGY, keys.KUEUE_REQUIRED_TOPOLOGY)
def test_a_gang_starts_in_the_one_rack_that_holds_it(annotation: str) -> None:
    world = World(*racks(a=2, b=3), gang("g", 3, cpu="3", annotations={annotation: RACK})).settle()
    assert set(world.plan("g").values()) == {"b0", "b1", "b2"}


def test_a_rack_is_chosen_that_holds_all_members_and_not_only_the_needed_ones() -> None:
    members = gang("g", 4, cpu="4", min_member=2, annotations=IN_A_RACK)
    world = World(*racks(a=2, b=4, c=3), members).settle()
    assert {name[0] for name in world.plan("g").values()} == {"b"}
    assert len(world.start("g").plan("g")) == 2


def test_members_that_find_no_room_in_the_rack_of_the_others_get_the_numbers() -> None:
    members = gang("g", 3, cpu="4", min_member=2, annotations=IN_A_RACK)
    world = World(*racks(a=2, b=2), members).start("g")
    world.settle()
    decision = world.decision("g")
    assert (decision.verdict, decision.reason) == (Verdict.RUNNING, Reason.NO_ROOM)
    assert decision.detail == f"no free capacity for 1 more member where the others share {RACK}"


def test_it_waits_for_a_rack_although_the_cluster_has_room() -> None:
    world = World(*racks(a=2, b=2), pod("x", on="a0", cpu="4"), pod("y", on="b0", cpu="4"))
    world.add(gang("g", 2, cpu="4", annotations=IN_A_RACK)).settle()
    decision = world.decision("g")
    assert decision.reason is Reason.NO_DOMAIN
    assert decision.detail == f"{RACK}=a has the most free capacity, for 1 of 2 members"
    world.finish("y").settle()
    assert set(world.plan("g").values()) == {"b0", "b1"}


@each_of(
    (3, RACK, f"{RACK}=a has the most free capacity, for 2 of 3 members"),
    (1, "row", "no node has the label row"),
)
def test_a_gang_that_no_domain_can_ever_hold_says_so(members: int, level: str, said: str) -> None:
    world = World(*racks(a=2, b=2), gang("g", members, cpu="4", annotations={keys.REQUIRED_TOPOLOGY: level}))
    decision = world.settle().decision("g")
    assert decision.reason is Reason.NEVER_FITS
    assert said in decision.detail


def test_a_lost_member_is_replaced_in_the_rack_of_the_others() -> None:
    world = World(*racks(a=2, b=2), gang("g", 2, cpu="4", annotations=IN_A_RACK)).settle()
    (rack,) = {name[0] for name in world.plan("g").values()}
    for name in ("g-0", "g-1"):
        world.scheduler_takes(name)
        world.run(name)
    world.settle().pass_time(60)
    world.delete("g-0").add(pod("x", cpu="4"), pod("g-2", "g", cpu="4", annotations=IN_A_RACK)).settle()
    assert {name[0] for name in world.plan("g").values()} == {rack}


def test_each_role_has_a_domain_of_its_own() -> None:
    """As each pod set of Kueue has."""
    members = [
        pod(f"{role}-{n}", "g", "4", role, annotations=IN_A_RACK) for role in ("ps", "work") for n in (0, 1)
    ]
    record = gang("g", 0, min_member=4)
    world = World(*racks(a=2, b=2), record, members).settle()
    plan = world.plan("g")
    assert len(plan) == 4
    assert all(len({plan[f"{role}-{n}"][0] for n in (0, 1)}) == 1 for role in ("ps", "work"))


def test_each_replicated_job_of_a_job_set_that_names_a_topology_has_a_domain_of_its_own() -> None:
    """As in Kueue: the driver names none, and goes anywhere."""
    made = job("set", cpu="4")
    plain = made.spec["template"]
    named = {**plain, "metadata": {"annotations": {keys.KUEUE_REQUIRED_TOPOLOGY: RACK}}}
    replicated = [
        {"name": name, "template": {"spec": {"parallelism": n, "completions": n, "template": template}}}
        for name, n, template in (("left", 2, named), ("right", 2, named), ("driver", 1, plain))
    ]
    world = JobWorld(*racks(a=2, b=2, c=1))
    record = replace(made, spec={"suspend": True, "replicatedJobs": replicated})
    world.ledger.intake.set_job(JobKind(*JOB_SET.key), record)
    plan = world.settle().decision("podgroup-uid-set").plan
    racks_of = [{node[0] for uid, node in plan.items() if uid.startswith(f"uid-set/{n}/")} for n in range(3)]
    assert sorted(map(sorted, racks_of)) == [["a"], ["b"], ["c"]]


def test_capacity_is_reclaimed_in_one_rack() -> None:
    """Evict both groups of one rack, and not one in each."""
    world = World(*racks(a=2, b=2), queue("rich"), queue("poor"))
    for number in range(4):
        world.add(gang(f"r{number}", 1, cpu="4", queue="rich", created=f"2026-01-0{number + 1}"))
    world.start(*(f"r{number}" for number in range(4)))
    world.add(gang("g", 2, cpu="4", queue="poor", annotations=IN_A_RACK)).settle()
    nodes = {world.pods[it.victim.name].spec.node_name for it in world.decisions.evictions.values()}
    assert len(nodes) == 2
    assert len({name[0] for name in nodes}) == 1


@each_of("x" * 100_000, "rack/" * 64)
def test_a_label_that_is_too_long_is_cut_and_has_no_nodes(level: str) -> None:
    annotations = {keys.REQUIRED_TOPOLOGY: level, keys.PREFERRED_TOPOLOGY: level}
    world = World(*racks(a=1), gang("g", 1, annotations=annotations)).settle()
    assert world.reason("g") is Reason.NEVER_FITS
    (member,) = world.ledger.groups.members(key("g"))
    assert max(len(member.shape.constraints.level), len(member.preferred_level)) < 300


@each_of((2, {"b0", "b1"}), (3, {"a0", "b0", "b1"}))
def test_a_preferred_rack_is_taken_if_it_holds_all(members: int, nodes: set[str]) -> None:
    world = World(*racks(a=2, b=2), pod("x", on="a1", cpu="2"))
    world.add(gang("g", members, cpu="4", annotations={keys.PREFERRED_TOPOLOGY: RACK})).settle()
    assert set(world.plan("g").values()) == nodes


sizes = st.integers(1, 4)


@given(
    nodes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=1, max_size=12),
    members=sizes,
    cpu=sizes,
)
def test_it_is_placed_where_some_rack_holds_it(nodes: list[tuple[str, int]], members: int, cpu: int) -> None:
    """Whatever counting rack by rack can place, with `used` cpu on each node, the planner places."""
    world = World()
    room: Counter[str] = Counter()
    for number, (rack, used) in enumerate(nodes):
        world.add(node(f"{rack}{number}", "4", labels={RACK: rack}))
        if used:
            world.add(pod(f"x{number}", on=f"{rack}{number}", cpu=str(used)))
        room[rack] += (4 - used) // cpu
    world.add(gang("g", members, cpu=str(cpu), annotations=IN_A_RACK)).settle()
    assert (world.verdict("g") is Verdict.STARTING) == (max(room.values()) >= members)
    assert len({name[0] for name in world.plan("g").values()}) <= 1


@given(
    moves=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=6),
    bound=st.integers(0, 2),
)
def test_a_gang_that_starts_stays_in_one_rack_when_nodes_change_theirs(
    moves: list[tuple[int, str]], bound: int
) -> None:
    """Members that the scheduler has bound keep their nodes; the others are planned next to them."""
    world = World(*[node(f"n{n}", "4", labels={RACK: "ab"[n // 3]}) for n in range(6)])
    world.add(gang("g", 3, cpu="4", annotations=IN_A_RACK)).settle()
    taken = {f"g-{n}": world.plan("g")[f"g-{n}"] for n in range(bound)}
    for name in taken:
        world.scheduler_takes(name)
    for number, rack in moves:
        world.add(node(f"n{number}", "4", labels={RACK: rack})).settle()
        labels = {name: it.metadata.labels[RACK] for name, it in world.nodes.items() if it.metadata.labels}
        planned = {labels[name] for pod, name in world.plan("g").items() if pod not in taken}
        assert planned <= {labels[name] for name in taken.values()} or not taken
        assert len(planned) <= max(1, len(taken))


@each_of((1, 1), (2, 2))
def test_the_scheduler_gets_no_node_of_another_rack(members: int, needed: int) -> None:
    """Neither for pods that start one by one, nor where it does not offer the planned node."""
    world = World(*racks(a=1, b=2), gang("g", members, needed, cpu="2", annotations=IN_A_RACK)).settle()
    planned = world.plan("g")["g-0"]
    world.ungate(*world.plan("g"))
    assert world.answer("g-0", ["a0", "b0", "b1"]) == [planned]
    assert world.answer("g-0", [name for name in ("a0", "b0", "b1") if name != planned]) is Reason.NO_ROOM


def test_two_sizes_that_fit_only_alone_say_so() -> None:
    pods = [pod("g-0", "g", "3", annotations=IN_A_RACK), pod("g-1", "g", "2", annotations=IN_A_RACK)]
    world = World(*racks(a=1, b=1), gang("g", 0, min_member=2), pods).settle()
    assert world.detail("g").endswith(f"{RACK}=a has the most free capacity, for all, but not together")
