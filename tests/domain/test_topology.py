"""Gangs whose pods require one domain of a topology: they are placed, and replaced, inside one."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import NativePodGroup, NativePodGroupSpec, NetworkTopology
from extender.api.workloads.sets import JOB_SET
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.snapshot.jobs import JobKind
from extender.domain.snapshot.wholeness import missing
from tests.domain.builders import HOSTNAME, node, pod, queue
from tests.domain.job_world import JobWorld, job, pod_of, podgroup_name
from tests.domain.volcano_world import VolcanoWorld, task, volcano_job
from tests.domain.world import World, gang, key
from tests.rows import each_of

RACK = "example.com/rack"
IN_A_RACK = {keys.REQUIRED_TOPOLOGY: RACK}


def slices(size: int) -> dict[str, str]:
    return {keys.SLICE_TOPOLOGY: RACK, keys.SLICE_SIZE: str(size)}


SLICES = slices(2)


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
    rack = world.pods["g-0"].spec.node_name[0]
    assert (decision.verdict, decision.reason) == (Verdict.RUNNING, Reason.NO_DOMAIN)
    assert decision.detail == f"{RACK}={rack} has other members, and free capacity for 0 of 1 members"


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
    new_job = job("set", cpu="4")
    plain = new_job.spec["template"]
    named = {**plain, "metadata": {"annotations": {keys.KUEUE_REQUIRED_TOPOLOGY: RACK}}}
    replicated = [
        {"name": name, "template": {"spec": {"parallelism": n, "completions": n, "template": template}}}
        for name, n, template in (("left", 2, named), ("right", 2, named), ("driver", 1, plain))
    ]
    world = JobWorld(*racks(a=2, b=2, c=1))
    record = replace(new_job, spec={"suspend": True, "replicatedJobs": replicated})
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
    nodes = {
        world.pods[eviction.victim.name].spec.node_name for eviction in world.decisions.evictions.values()
    }
    assert len(nodes) == 2
    assert len({name[0] for name in nodes}) == 1


@each_of("x" * 100_000, "rack/" * 64)
def test_a_label_that_is_too_long_is_cut_and_has_no_nodes(level: str) -> None:
    annotations = {keys.REQUIRED_TOPOLOGY: level, keys.PREFERRED_TOPOLOGY: level}
    world = World(*racks(a=1), gang("g", 1, annotations=annotations)).settle()
    assert world.reason("g") is Reason.NEVER_FITS
    (member,) = world.ledger.groups.members(key("g"))
    assert max(map(len, member.topology[:2])) < 319


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
    asked=st.sampled_from([{"notes": IN_A_RACK}, {"annotations": IN_A_RACK}, {"annotations": SLICES}]),
    events=st.lists(st.tuples(st.sampled_from("abc-"), st.integers(0, 5)), max_size=8),
    bound=st.integers(0, 4),
)
def test_members_stay_together_when_nodes_move_fail_and_return(
    asked: dict[str, Any], events: list[tuple[str, int]], bound: int
) -> None:
    """Members that the scheduler has bound keep their nodes; the others are planned next to them."""
    world = World(*[node(f"n{n}", "4", labels={RACK: "ab"[n // 3]}) for n in range(6)])
    world.add(gang("g", 4, cpu="2", **asked)).settle()
    on = {f"g-{n}": world.plan("g")[f"g-{n}"] for n in range(bound)}
    for name in on:
        world.scheduler_takes(name)
    names = [f"g-{n}" for n in range(4)]
    sets = [names[:2], names[2:]] if asked.get("annotations") == SLICES else [names]
    for rack, number in events:
        if rack != "-":
            world.add(node(f"n{number}", "4", labels={RACK: rack}))
        elif f"n{number}" in world.nodes:
            world.drop_node(f"n{number}")
        world.settle()
        racks = {name: (node.metadata.labels or {})[RACK] for name, node in world.nodes.items()}
        plan = world.plan("g")
        for members in sets:
            planned = {racks[plan[name]] for name in members if name in plan and name not in on}
            there = {racks.get(on[name]) for name in members if name in on}
            assert planned <= there if there else len(planned) <= 1


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


def test_the_cheaper_rack_is_taken() -> None:
    """The pod with the shortest run is in rack b, next to the one with the longest."""
    world = World(*racks(a=2, b=2), queue("rich"), queue("poor"))
    names = "b1", "a0", "a1", "b0"
    world.add(*(gang(name, 1, cpu="4", queue="rich", selector={HOSTNAME: name}) for name in names))
    for name in names:
        world.start(name).pass_time(3600)
    world.add(gang("g", 2, cpu="4", queue="poor", annotations=IN_A_RACK)).settle()
    nodes = {
        world.pods[eviction.victim.name].spec.node_name for eviction in world.decisions.evictions.values()
    }
    assert nodes == {"a0", "a1"}


def test_a_group_shares_one_domain_across_its_roles() -> None:
    """Each role alone fits into the small rack; together they need the large one."""
    members = [pod(f"{role}-{n}", "g", "4", role) for role in ("ps", "work") for n in (0, 1)]
    record = gang("g", 0, min_member=4, notes=IN_A_RACK)
    world = World(*racks(a=3, b=4), record, members).settle()
    assert {name[0] for name in world.plan("g").values()} == {"b"}


def test_a_role_stays_in_a_rack_of_the_block_of_its_group() -> None:
    block = {"a": "x", "b": "x", "c": "y", "d": "y"}
    nodes = [
        node(f"{rack}{n}", "4", labels={RACK: rack, "block": block[rack]}) for rack in block for n in range(2)
    ]
    members = [
        pod(f"{role}-{n}", "g", "4", role, annotations=IN_A_RACK) for role in ("ps", "work") for n in (0, 1)
    ]
    record = gang("g", 0, min_member=4, notes={keys.REQUIRED_TOPOLOGY: "block"})
    world = World(*nodes, pod("z", on="a0", cpu="4"), record, members).settle()
    plan = world.plan("g")
    assert {plan["ps-0"][0] + plan["work-0"][0], "cd"} <= {"cd", "dc"}
    assert plan["ps-0"][0] == plan["ps-1"][0]


@each_of(
    ({"highestTierAllowed": 1}, {"b"}),
    ({"mode": "hard", "highestTierName": "1"}, {"b"}),
    ({"mode": "soft"}, {"b"}),
    ({"mode": "hard"}, {"a", "b"}),
)
def test_the_network_topology_of_volcano_names_tiers(written: Any, racks_used: set[str]) -> None:
    nodes = [node(f"{rack}{n}", "4", labels={"tier:1": rack}) for rack, n in ("a0", "b0", "b1")]
    record, *members = gang("g", 2, cpu="3")
    topology = convert(written, NetworkTopology)
    record = replace(record, spec=replace(record.spec, network_topology=topology))
    world = World(*nodes, record, members).settle()
    assert {name[0] for name in world.plan("g").values()} == racks_used


def test_a_kubernetes_podgroup_names_the_label_of_a_domain() -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
    }
    record = NativePodGroup(gang("g", 0)[0].metadata, convert(spec, NativePodGroupSpec))
    world = World(*racks(a=1, b=2), record, [pod(f"g-{n}", "g", "3") for n in range(2)]).settle()
    assert set(world.plan("g").values()) == {"b0", "b1"}


@each_of(({}, {"b"}), ({keys.PREFERRED_TOPOLOGY: "row"}, {"a", "b"}))
def test_the_annotation_of_a_job_counts_where_its_template_has_none(
    of_pods: dict[str, str], racks_used: set[str]
) -> None:
    template = job("train", cpu="3").spec["template"] | {"metadata": {"annotations": of_pods}}
    world = JobWorld(*racks(a=2, b=3), pod("x", on="b0", cpu="1"), pod("y", on="a1", cpu="1"))
    world.stopped = True
    world.submit(job("train", 3, annotations=IN_A_RACK, template=template)).work()
    assert {name[0] for name in world.decision(podgroup_name("train")).plan.values()} == racks_used


def test_the_parts_of_a_volcano_job_are_each_inside_one_rack() -> None:
    policy = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": {"highestTierAllowed": 1}}
    nodes = [node(f"{rack}{n}", "4", labels={"tier:1": rack}) for rack, n in ("a0", "b0", "b1", "c0", "c1")]
    world = VolcanoWorld(*nodes, queue("q"))
    world.submit(volcano_job("j", task("w", 4, cpu="4", partitionPolicy=policy), queue="q")).work()
    assert {world.claim(f"j-w-{n}").node for n in (0, 1)} in ({"b0", "b1"}, {"c0", "c1"})  # type: ignore[union-attr]


@each_of(slices(3), {keys.KUEUE_SLICE_TOPOLOGY: RACK, keys.KUEUE_SLICE_SIZE: "3"})
def test_each_slice_is_inside_one_rack(annotations: dict[str, str]) -> None:
    """Racks of 4, 2 and 5 nodes have capacity for 11 pods, and for two slices of 3."""
    world = World(*racks(a=4, b=2, c=5), gang("g", 6, cpu="4", annotations=annotations)).settle()
    used = [world.plan("g")[f"g-{n}"][0] for n in range(6)]
    assert used in ([*"aaaccc"], [*"cccaaa"])


def test_slices_beyond_the_capacity_of_every_rack_say_so() -> None:
    world = World(*racks(a=2, b=2), gang("g", 3, cpu="4", annotations=slices(3))).settle()
    assert world.reason("g") is Reason.NEVER_FITS
    assert world.detail("g") == f"on empty nodes: {RACK}=a has the most free capacity, for 2 of 3 members"


def test_pods_without_an_index_fill_the_slice_of_a_lost_one() -> None:
    names = "g-aaaaa", "g-bbbbb", "g-ccccc", "g-ddddd"
    record = gang("g", 0, min_member=4)
    world = World(*racks(a=3, b=3), record, [pod(name, "g", "4", annotations=slices(2)) for name in names])
    world.start("g").pass_time(60)
    (rack,) = {node.spec.node_name[0] for name, node in world.pods.items() if name == "g-bbbbb"}
    world.delete("g-bbbbb").add(pod("g-xxxxx", "g", "4", annotations=slices(2))).settle()
    assert {name[0] for name in world.plan("g").values()} == {rack}


def test_a_group_in_a_block_has_slices_in_racks() -> None:
    """Block x has more free nodes, but in racks of one and three."""
    sizes = {"a": ("x", 1), "b": ("x", 3), "c": ("y", 2), "d": ("y", 2)}
    nodes = [
        node(f"{rack}{n}", "4", labels={RACK: rack, "block": block})
        for rack, (block, size) in sizes.items()
        for n in range(size)
    ]
    annotations = {keys.REQUIRED_TOPOLOGY: "block", **slices(2)}
    world = World(*nodes, gang("g", 4, cpu="4", annotations=annotations)).settle()
    used = [world.plan("g")[f"g-{n}"][0] for n in range(4)]
    assert used in ([*"ccdd"], [*"ddcc"])


def test_members_of_several_roles_have_slices_of_their_role() -> None:
    members = [pod(f"{role}-{n}", "g", "4", role, annotations=slices(2)) for role in "vw" for n in range(2)]
    world = World(*racks(a=2, b=2), gang("g", 0, min_member=4), members).settle()
    assert world.plan("g")["v-0"][0] == world.plan("g")["v-1"][0] != world.plan("g")["w-0"][0]


def test_a_member_whose_node_has_left_the_rack_is_not_bound() -> None:
    """Between its bind call and that of the last member."""
    world = World(*racks(a=3), gang("g", 2, cpu="4", annotations=IN_A_RACK)).settle()
    plan = world.plan("g")
    world.ungate("g-0", "g-1")
    for name, planned in plan.items():
        assert world.answer(name) == [planned]
        world.hold(name, planned)
    world.add(node(plan["g-0"], "4", labels={RACK: "b"}))
    confirmation = world.confirm("g")
    assert not confirmation.claims_to_post
    assert len(confirmation.lost_claims) == 1
    world.settle()
    assert plan["g-0"] not in world.plan("g").values()


@each_of({"notes": IN_A_RACK}, {"annotations": IN_A_RACK}, {"annotations": slices(2)})
def test_a_lost_member_that_finds_no_capacity_there_says_where(asked: dict[str, Any]) -> None:
    world = World(*racks(a=2), gang("g", 2, cpu="4", **asked)).start("g")
    world.pass_time(60)
    pods = {key: value for key, value in asked.items() if key == "annotations"}
    world.add(*racks(b=2)).delete("g-0").add(pod("x", on=f"a{free_node(world)}", cpu="1"))
    world.add(pod("g-0", "g", "4", uid="again", **pods)).settle()
    assert not world.plan("g")
    assert world.reason("g") is Reason.NO_DOMAIN
    assert world.detail("g") == f"{RACK}=a has other members, and free capacity for 0 of 1 members"


def free_node(world: World) -> int:
    """Return the number of the node in rack a that has no member."""
    used = {pod.spec.node_name for pod in world.pods.values()}
    return next(number for number in (0, 1) if f"a{number}" not in used)


def test_each_pod_of_a_job_takes_over_the_node_planned_for_its_index() -> None:
    """They come in another order than that of their slices."""
    world = JobWorld(*racks(a=2, b=2))
    world.stopped = True
    world.submit(job("train", 4, cpu="4", annotations=slices(2))).work()
    planned = world.decision(podgroup_name("train")).plan
    for number in (3, 0, 2, 1):
        name = f"train-{number}"
        world.add(pod_of(world.jobs["train"], name, cpu="4"))
        claim = world.settle().claim(name)
        assert claim is not None
        assert claim.node == planned[Uid(f"uid-train/0/{number}")]


def test_victims_are_in_one_rack_of_the_block_of_the_group() -> None:
    block = {"a": "x", "b": "x", "c": "y"}
    nodes = [
        node(f"{rack}{n}", "4", labels={RACK: rack, "block": block[rack]}) for rack in block for n in range(2)
    ]
    world = World(nodes, queue("rich"), queue("poor"))
    names = [each.metadata.name for each in nodes]
    world.add(*(gang(name, 1, cpu="4", queue="rich", selector={HOSTNAME: name}) for name in names))
    world.start(*names)
    notes = {keys.REQUIRED_TOPOLOGY: "block"}
    world.add(gang("g", 2, cpu="4", queue="poor", annotations=IN_A_RACK, notes=notes)).settle()
    used = {
        world.pods[eviction.victim.name].spec.node_name for eviction in world.decisions.evictions.values()
    }
    assert used in ({"a0", "a1"}, {"b0", "b1"}, {"c0", "c1"})


def test_members_of_several_roles_count_together_in_the_set_of_their_group() -> None:
    """Groups whose decisions would be equal have one signature, and no others do."""
    sizes = {"two-roles": ("ab", 2), "one-role": ("a", 4), "half": ("a", 2)}
    world = World(*racks(a=2))
    for name, (roles, size) in sizes.items():
        world.add(gang(name, 0, min_member=len(roles) * size, notes=IN_A_RACK))
        world.add(*(pod(f"{name}-{role}{n}", name, role=role) for role in roles for n in range(size)))
    groups = world.ledger.snapshot().groups
    two_roles, one_role, half = (missing(groups[key(name)]).signature for name in sizes)
    assert two_roles == one_role != half
