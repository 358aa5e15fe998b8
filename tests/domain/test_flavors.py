"""Queues whose amounts are divided by the labels of nodes."""

import re

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import Toleration
from extender.api.objects.queues import QueueFlavor
from extender.domain.admission.queues import review_queue
from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import Resources
from extender.domain.queues.flavors import MAX_FLAVORS
from extender.domain.queues.records import queue_record
from tests.domain.builders import NO_QUANTITY, flavor, foreign_pod, group, node, on_flavor, pod, queue
from tests.domain.world import World, gang
from tests.rows import each_of

STARTS, WAITS = Verdict.STARTING, Verdict.WAITING
SPOT_FLAVOR, ONDEMAND_FLAVOR = flavor("spot", {"cpu": "4"}), flavor("ondemand", {"cpu": "2"})


def cluster(*flavors: QueueFlavor, spot: str = "8", ondemand: str = "8") -> World:
    """Return a node of each flavor and one of none; a queue has the flavors spot, then ondemand."""
    return World(
        node("spot", cpu=spot, labels=on_flavor("spot")),
        node("ondemand", cpu=ondemand, labels=on_flavor("ondemand")),
        node("other", cpu="8"),
        queue("q", flavors=flavors or (SPOT_FLAVOR, ONDEMAND_FLAVOR)),
    )


def held(world: World, queue: str = "q") -> dict[str, Resources]:
    """Return the allocated resources by flavor."""
    return {name: each.allocated for name, each in world.queue(queue).flavors.items()}


def nodes_of(world: World, group: str) -> set[str]:
    return set(world.plan(group).values())


# ---- which flavor


def test_the_first_flavor_with_nodes_for_the_group_is_used_in_the_order_of_the_queue() -> None:
    for there, used in (
        (cluster(), "spot"),
        (cluster(spot="1"), "ondemand"),
        (cluster(ONDEMAND_FLAVOR, SPOT_FLAVOR), "ondemand"),
    ):
        assert nodes_of(there.add(gang("g", 2, queue="q")).settle(), "g") == {used}


def test_the_next_flavor_is_used_when_the_amount_of_the_first_is() -> None:
    world = cluster().add(gang("a", 3, queue="q", created="2026-01-01")).start("a")
    world.add(gang("b", 2, queue="q", created="2026-01-02")).settle()
    assert nodes_of(world, "b") == {"ondemand"}


@each_of(("3", 4), ("1", 2))
def test_a_group_uses_neither_two_flavors_nor_nodes_of_no_flavor(cpu: str, members: int) -> None:
    world = cluster(flavor("spot"), flavor("ondemand"), spot=cpu, ondemand=cpu)
    assert world.add(gang("g", members, queue="q")).settle().verdict("g") is WAITS


def with_roles(**roles: int) -> list[object]:
    """Return a gang g with so many members of each role."""
    record = group("g", sum(roles.values()), queue="q", roles=roles)
    return [
        record,
        *(pod(f"{role}-{n}", "g", role=role) for role, members in roles.items() for n in range(members)),
    ]


def test_the_reason_names_the_role_that_finds_no_flavor() -> None:
    world = cluster().add(*with_roles(driver=2, worker=5)).settle()
    assert world.reason("g") is Reason.NEVER_FITS
    assert world.detail("g") == (
        "role worker: flavor spot: NeverFits (cpu: 0 held + 7 asked > 4); "
        "flavor ondemand: NeverFits (cpu: 0 held + 5 asked > 2)"
    )


def test_an_earlier_role_makes_way_for_a_later_one() -> None:
    """Both fit on spot, alone: the workers fit nowhere else."""
    world = cluster().add(*with_roles(driver=2, worker=3)).settle()
    plan = world.plan("g")
    assert {name.partition("-")[0]: where for name, where in plan.items()} == {
        "driver": "ondemand",
        "worker": "spot",
    }


def test_roles_get_the_capacity_that_earlier_roles_left() -> None:
    world = cluster().add(*with_roles(driver=3, worker=2)).settle()
    assert world.plan("g") == {
        "driver-0": "spot",
        "driver-1": "spot",
        "driver-2": "spot",
        "worker-0": "ondemand",
        "worker-1": "ondemand",
    }


@each_of(("spot", "spot"), ("ondemand", "ondemand"))
def test_a_pod_that_asks_for_another_value_does_not_get_the_flavor(wish: str, where: str) -> None:
    world = cluster().add(gang("g", 2, queue="q", selector=on_flavor(wish))).settle()
    assert nodes_of(world, "g") == {where}


@each_of((False, "ondemand"), (True, "spot"))
def test_pods_tolerate_the_taints_of_a_flavors_nodes_themselves(tolerates: bool, where: str) -> None:
    world = cluster()
    world.add(
        node("spot", cpu="8", labels=on_flavor("spot"), taints=[Taint("spot", "NoSchedule", value="yes")])
    )
    tolerations = [Toleration(key="spot", operator="Exists")] if tolerates else []
    world.add(gang("g", 2, queue="q", tolerations=tolerations)).settle()
    assert nodes_of(world, "g") == {where}


def test_a_flavor_without_labels_has_the_nodes_that_no_earlier_one_has() -> None:
    rest = QueueFlavor("rest", None, {"cpu": "2"})
    world = cluster(flavor("spot", {"cpu": "1"}), rest).add(gang("g", 2, queue="q")).settle()
    assert "spot" not in nodes_of(world, "g")
    world.start("g")
    assert held(world) == {"spot": {}, "rest": {"cpu": 2000, "pods": 2}}


def test_queues_without_flavors_use_all_nodes() -> None:
    world = cluster().add(queue("r"), gang("g", 24, queue="r")).settle()
    assert nodes_of(world, "g") == {"spot", "ondemand", "other"}


# ---- reasons


def tried(world: World) -> list[tuple[str, str]]:
    """Return the flavors that were tried for g, each with its reason."""
    return re.findall(r"flavor (\w+): (\w+) \(", world.detail("g"))


def test_the_reason_names_the_flavors_that_were_tried() -> None:
    world = cluster(spot="1", ondemand="3").add(gang("a", 1, queue="q")).start("a")
    world.add(gang("g", 3, queue="q")).settle()
    assert world.reason("g") is Reason.NEVER_FITS
    assert tried(world) == [("spot", "NeverFits"), ("ondemand", "NeverFits")]
    assert world.detail("g").endswith(" (cpu: 0 held + 3 asked > 2)")
    assert not world.decision("g").exceeds_queue


def test_the_reason_nearest_to_a_start_counts_among_flavors() -> None:
    world = cluster(spot="4", ondemand="3").add(gang("a", 3, queue="q", created="2026-01-01")).start("a")
    world.add(gang("b", 2, queue="q")).start("b").add(queue("r"))
    world.add(queue("q", flavors=(flavor("spot"), ONDEMAND_FLAVOR)), gang("g", 2, queue="q")).settle()
    assert world.reason("g") is Reason.NO_ROOM
    assert tried(world) == [("spot", "NoRoom"), ("ondemand", "QueueCeiling")]


def test_a_group_waits_for_the_only_choice_of_flavors_with_which_it_ever_fits() -> None:
    """The driver's flavor is busy. With it on the other one, the workers never fit."""
    world = World(node("n0", cpu="1", labels=on_flavor("a")), node("n1", cpu="2", labels=on_flavor("b")))
    world.add(foreign_pod("s", on="n0"), queue("q", flavors=(flavor("a"), flavor("b"))))
    world.add(*with_roles(driver=1, worker=2)).settle()
    assert tried(world) == [("a", "NoRoom"), ("b", "NeverFits")]
    assert world.detail("g").startswith("role driver: ")
    assert world.detail("g").endswith(" (no flavor remains for the other roles, even when empty)")
    assert world.reason("g") is Reason.NO_ROOM
    world.drop_node("n0")
    assert world.settle().reason("g") is Reason.NEVER_FITS


def test_amounts_alone_exceed_the_queue() -> None:
    world = cluster().add(gang("g", 5, queue="q")).settle()
    assert world.decision("g").exceeds_queue


def test_equal_groups_with_other_roles_are_evaluated_alone() -> None:
    """Evaluate them alone: four members of one role fit on no flavor, but four of two roles do."""
    world = cluster(flavor("spot", {"cpu": "3"}), flavor("ondemand", {"cpu": "3"}))
    world.add(gang("a", 4, queue="q", created="2026-01-01"))
    world.add(group("b", 4, queue="q", roles={"x": 2, "y": 2}))
    world.add(*(pod(f"{role}-{n}", "b", role=role) for role in "xy" for n in range(2))).settle()
    assert world.verdicts("a", "b") == [WAITS, STARTS]


# ---- amounts


def test_amounts_bind_per_queue() -> None:
    world = cluster().add(
        queue("r", flavors=(SPOT_FLAVOR,)), gang("a", 4, queue="q"), gang("b", 4, queue="r")
    )
    world.settle()
    assert [nodes_of(world, "a"), nodes_of(world, "b")] == [{"spot"}, {"spot"}]


def test_usage_above_the_deserved_amount_of_a_flavor_is_borrowed() -> None:
    """R has a claim on the last two cpus of spot; the share of q there is used up."""
    world = cluster(flavor("spot", deserved={"cpu": "2"}), spot="5").add(foreign_pod("s", on="spot"))
    world.add(queue("r", flavors=(flavor("spot", deserved={"cpu": "3"}),)))
    world.add(gang("a", 2, queue="q", created="2026-01-01")).start("a")
    world.add(gang("claimant", 3, queue="r"), gang("b", 1, queue="q")).settle()
    assert world.decision("claimant").claims_capacity
    assert world.reason("b") is Reason.QUEUE_SHARE
    world.delete("claimant-0", "claimant-1", "claimant-2").settle()
    assert world.verdict("b") is STARTS


def test_which_flavor_is_held_follows_from_the_labels_of_the_node() -> None:
    world = cluster().add(gang("a", 2, queue="q")).start("a")
    assert held(world) == {"spot": {"cpu": 2000, "pods": 2}, "ondemand": {}}
    world.add(node("spot", cpu="8", labels=on_flavor("ondemand"))).settle()
    assert held(world) == {"spot": {}, "ondemand": {"cpu": 2000, "pods": 2}}
    world.drop_node("spot")
    assert held(world.settle()) == {"spot": {}, "ondemand": {}}


def test_a_terminating_pod_still_holds_its_flavor() -> None:
    world = cluster().add(gang("a", 3, queue="q")).start("a")
    world.mark_deleted("a-0")
    assert held(world.settle())["spot"]["cpu"] == 3000


# ---- the way of a group


def test_filter_offers_no_node_of_another_flavor() -> None:
    world = cluster().add(node("spot-2", labels=on_flavor("spot")), gang("g", 2, queue="q")).settle()
    planned = world.plan("g")["g-0"]
    others = sorted({"spot", "spot-2"} - {planned})
    world.ungate("g-0")
    assert world.answer("g-0", ["ondemand", "other"]) is Reason.NO_ROOM
    assert world.answer("g-0", ["ondemand", *others]) == others


def test_a_single_pod_is_offered_all_nodes_of_its_flavor() -> None:
    world = cluster().add(node("spot-2", labels=on_flavor("spot")), pod("p", queue="q")).settle()
    world.ungate("p")
    answer = world.answer("p")
    assert isinstance(answer, list)
    assert sorted(answer) == ["spot", "spot-2"]


def test_no_bind_call_is_held_on_another_flavor() -> None:
    world = cluster().add(gang("g", 2, queue="q")).settle()
    world.ungate("g-0")
    world.answer("g-0")
    assert world.hold("g-0", "ondemand") is Reason.NO_ROOM
    assert world.stage("g-0") is ClaimStage.ANSWERED


def test_a_plan_on_a_node_that_left_the_flavor_is_made_again() -> None:
    world = cluster().add(gang("g", 2, queue="q")).settle()
    world.add(node("spot", cpu="8")).settle()
    assert nodes_of(world, "g") == {"ondemand"}


def test_missing_members_of_a_start_follow_the_others() -> None:
    """spot-2 goes while one member stands there already bound: the others stay on spot, or wait."""
    world = cluster(flavor("spot"), flavor("ondemand"), spot="2")
    world.add(node("spot-2", cpu="1", labels=on_flavor("spot")), gang("g", 3, queue="q")).settle()
    assert nodes_of(world, "g") == {"spot", "spot-2"}
    on_spot = [name for name, where in world.plan("g").items() if where == "spot"]
    for name in on_spot:
        world.bind(name, "spot")
    world.drop_node("spot-2")
    assert not nodes_of(world.settle(), "g")
    world.add(node("spot-3", labels=on_flavor("spot"))).settle()
    assert nodes_of(world, "g") == {"spot-3"}


def test_replacements_take_the_flavor_of_their_role() -> None:
    world = cluster(flavor("spot", {"cpu": "4"}), flavor("ondemand")).add(gang("g", 3, queue="q"))
    world.start("g").finish("g-0", phase="Failed").add(pod("g-9", "g")).settle()
    assert world.plan("g") == {"g-9": "spot"}
    world.drop_node("spot")
    world.add(node("spot-2", cpu="8", labels=on_flavor("spot"))).settle()
    assert world.plan("g") == {"g-9": "spot-2"}


def test_replacements_do_not_go_to_another_flavor_that_has_free_capacity_by_now() -> None:
    """G is on ondemand because spot was full; now spot has capacity."""
    world = cluster(flavor("spot"), flavor("ondemand"), spot="2", ondemand="3")
    world.add(gang("a", 2, queue="q", created="2026-01-01")).start("a").add(gang("g", 2, queue="q")).start(
        "g"
    )
    world.finish("a-0", "a-1").finish("g-0", phase="Failed").add(pod("g-9", "g")).settle()
    assert world.plan("g") == {"g-9": "ondemand"}
    world.add(group("g", 1, queue="q"), pod("g-8", "g", cpu="2")).settle()
    assert nodes_of(world, "g") == {"ondemand"}
    assert world.reason("g") is Reason.NO_ROOM


def test_elastic_members_take_the_flavor_of_the_others_within_its_amount() -> None:
    world = cluster(flavor("spot", {"cpu": "3"}), flavor("ondemand")).add(
        gang("g", 6, min_member=2, queue="q")
    )
    world.settle().start("g")
    assert nodes_of(world, "g") == {"spot"}
    assert len(world.plan("g")) == 1
    assert [world.reason("g"), world.detail("g")] == [
        Reason.QUEUE_CEILING,
        "flavor spot of queue q is used up",
    ]


def test_capacity_reserved_on_other_nodes_is_no_reason_for_elastic_members() -> None:
    world = cluster(flavor("spot"), spot="2", ondemand="4").add(queue("r"), foreign_pod("s", on="ondemand"))
    world.add(gang("g", 4, min_member=2, queue="q")).start("g")
    claimant = gang("claimant", 4, queue="r", selector=on_flavor("ondemand"))
    world.add(claimant).settle()
    assert world.decision("claimant").claims_capacity
    assert world.reason("g") is Reason.NO_ROOM


def test_elastic_members_beyond_what_the_queue_deserves_of_a_flavor_come_last() -> None:
    world = cluster(flavor("spot", {"cpu": "4"}, {"cpu": "2"})).add(gang("g", 6, min_member=2, queue="q"))
    world.settle().start("g")
    assert len(world.plan("g")) == 2


def test_freed_capacity_of_a_flavor_is_noticed() -> None:
    """No decision is reused that depended on the capacity of several flavors."""
    world = cluster(flavor("spot"), flavor("ondemand"), spot="2", ondemand="2")
    world.add(gang("a", 2, queue="q")).start("a").add(gang("b", 2, queue="q")).start("b")
    world.add(gang("g", 2, queue="q", created="2027-01-01")).settle()
    assert world.verdict("g") is WAITS
    world.finish("b-0", "b-1").settle()
    assert nodes_of(world, "g") == {"ondemand"}


# ---- what an owner may write


@each_of(
    ([SPOT_FLAVOR, SPOT_FLAVOR], "spec.flavors[1].name: 'spot' is the name of an earlier flavor"),
    ([QueueFlavor("")], "spec.flavors[0].name: '' is no name"),
    ([flavor("f", {"cpu": "a lot"})], f"flavor f: 'a lot' {NO_QUANTITY}"),
    (
        [flavor(f"f{n}") for n in range(MAX_FLAVORS + 1)],
        f"spec.flavors has {MAX_FLAVORS + 1} entries; at most {MAX_FLAVORS} are allowed",
    ),
)
def test_faults(flavors: list[QueueFlavor], fault: str) -> None:
    record = queue_record(queue("q", flavors=flavors))
    assert record.fault == f"queue q: {fault}"
    world = cluster().add(queue("q", flavors=flavors), gang("g", 1, queue="q")).settle()
    assert [world.reason("g"), world.detail("g")] == [Reason.INVALID_SPEC, record.fault]


def test_the_webhook_names_the_field_of_an_invalid_amount() -> None:
    world = World(queue("root"))
    written = queue("q", flavors=[SPOT_FLAVOR, flavor("f", {"cpu": "a lot"}, {"cpu": "-1"})])
    faults = review_queue(written, None, world.ledger.queues.tree(), 5)
    assert [fault.field for fault in faults] == [
        "spec.flavors[1].capability[cpu]",
        "spec.flavors[1].deserved[cpu]",
    ]


def test_amounts_below_zero_take_nothing() -> None:
    world = cluster(flavor("spot", {"cpu": "-3"})).add(gang("g", 1, queue="q")).settle()
    assert world.reason("g") is Reason.NEVER_FITS
