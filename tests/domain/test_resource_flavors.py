"""Flavors of queues whose nodes a ResourceFlavor says."""

from typing import Any

from extender.api.objects.cluster import Taint
from extender.api.objects.pods import Toleration
from extender.api.objects.queues import QueueFlavor
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.queues.records import queue_record
from extender.domain.snapshot.decisions import FLAVOR_NOT_FOUND, conditions_of
from tests.domain.builders import node, on_flavor, queue, shared
from tests.domain.test_flavors import held, nodes_of
from tests.domain.world import World, gang
from tests.rows import each_of

TAINT = Taint("gpu", "NoSchedule", value="h100")
TOLERATES = [Toleration(key="gpu", operator="Exists")]


def naming(name: str, cpu: str = "4", **more: Any) -> QueueFlavor:
    return QueueFlavor(name, capability={"cpu": cpu}, resource_flavor=name, **more)


def cluster(*objects: Any) -> World:
    """Return a node of each flavor; queue q names h100, then a100."""
    nodes = [node(name, cpu="8", labels=on_flavor(name)) for name in ("h100", "a100")]
    return World(*nodes, queue("q", flavors=[naming("h100"), naming("a100")]), *objects)


@each_of(True, False)
def test_a_flavor_has_the_nodes_of_the_resource_flavor_that_it_names(is_flavor_first: bool) -> None:
    flavors = [shared("h100"), shared("a100")]
    world = cluster(*flavors) if is_flavor_first else cluster().settle().add(*flavors)
    world.add(gang("a", 3, queue="q", created="2026-01-01")).settle()
    assert nodes_of(world, "a") == {"h100"}
    world.start("a").add(gang("b", 3, queue="q", created="2026-01-02")).settle()
    assert nodes_of(world, "b") == {"a100"}
    assert held(world)["h100"]["cpu"] == 3000


def test_a_resource_flavor_equals_a_flavor_with_its_labels() -> None:
    """Count 6 of 8 cpus for x, which claims them by another name."""
    mine = QueueFlavor("mine", on_flavor("h100"), deserved={"cpu": "6"})
    world = cluster(shared("h100"), queue("x", flavors=[mine]))
    world.add(gang("g", 3, queue="q")).start("g").add(gang("x", 6, queue="x")).settle()
    assert world.queue("q").flavors["h100"].borrowed == {"cpu": 1000}


@each_of(([], "a100"), (TOLERATES, "h100"))
def test_only_pods_that_tolerate_its_taints_get_it(tolerations: list[Toleration], where: str) -> None:
    """Check the tolerations alone: here the nodes have no taints."""
    world = cluster(shared("h100", TAINT), shared("a100"))
    world.add(gang("g", 2, queue="q", tolerations=tolerations)).settle()
    assert nodes_of(world, "g") == {where}


@each_of("NoSchedule", "PreferNoSchedule")
def test_a_group_that_tolerates_no_flavor_is_reported(effect: str) -> None:
    taint = Taint("gpu", effect)
    world = cluster(shared("h100", taint), shared("a100", taint)).add(gang("g", 2, queue="q")).settle()
    if effect == "PreferNoSchedule":
        assert nodes_of(world, "g") == {"h100"}
        return
    assert world.reason("g") is Reason.NEVER_FITS
    assert world.detail("g").startswith(
        "flavor h100: NeverFits (pods do not tolerate its taint gpu:NoSchedule)"
    )
    assert world.decision("g").exceeds_queue


def conditions(world: World, name: str) -> dict[str, bool]:
    return {each.type: each.holds for each in conditions_of(world.queue(name))}


def test_a_missing_one_keeps_only_its_own_from_starting() -> None:
    world = cluster(shared("a100"), queue("other", flavors=[naming("a100")]), queue("none"))
    world.add(gang("other", 4, queue="other"), gang("none", 2, queue="none")).settle()
    assert nodes_of(world, "other") == {"a100"}
    world.start("other", "none").add(gang("g", 4, queue="q")).settle()
    assert nodes_of(world, "g") == {"a100"}
    assert conditions(world, "q")[FLAVOR_NOT_FOUND]
    assert not conditions(world, "other")[FLAVOR_NOT_FOUND]


def test_a_group_whose_only_flavor_is_missing_waits_for_it() -> None:
    world = (
        cluster().add(queue("q", flavors=[naming("h100")], strategy="fifo"), gang("g", 2, queue="q")).settle()
    )
    assert world.reason("g") is Reason.INVALID_SPEC
    assert world.detail("g") == "flavor h100: InvalidSpec (ResourceFlavor h100 does not exist)"
    assert not world.decision("g").position
    world.add(shared("h100")).settle()
    assert nodes_of(world, "g") == {"h100"}
    assert not conditions(world, "q")[FLAVOR_NOT_FOUND]


def test_a_deleted_resource_flavor_stops_starts_and_no_running_group() -> None:
    world = cluster(shared("h100")).add(gang("g", 2, queue="q")).start("g")
    world.ledger.intake.drop_flavor("h100")
    world.add(gang("late", 1, queue="q")).settle()
    assert world.verdict("g") is Verdict.RUNNING
    assert not world.decisions.evictions
    assert world.queue("q").allocated["cpu"] == 2000
    assert world.reason("late") is Reason.INVALID_SPEC
    world.add(shared("h100")).settle()
    assert nodes_of(world, "late") == {"h100"}


def test_a_changed_resource_flavor_counts_for_running_and_pending_groups() -> None:
    world = cluster(shared("h100"), shared("a100", TAINT)).add(gang("g", 4, queue="q")).start("g")
    world.add(gang("late", 4, queue="q")).settle()
    assert world.verdict("late") is Verdict.WAITING
    world.add(shared("h100", **on_flavor("a100"))).settle()
    assert held(world)["h100"] == {}
    assert nodes_of(world, "late") == {"a100"}


def test_elastic_members_do_not_join_on_a_flavor_that_repels_them() -> None:
    world = cluster(shared("h100"), shared("a100")).add(gang("g", 3, min_member=2, queue="q"))
    world.add(shared("h100", TAINT)).settle()
    assert nodes_of(world, "g") == {"a100"}


def test_a_change_of_taints_requeues_only_groups_of_that_flavor() -> None:
    """Leave groups of other queues inadmissible."""
    world = cluster(shared("h100"), shared("a100"), queue("other", flavors=[naming("a100", "0")]))
    world.add(gang("g", 9, queue="q"), gang("far", 1, queue="other")).settle()
    before = world.decision("far")
    world.add(shared("h100", TAINT)).settle()
    assert "does not" not in world.detail("g")
    assert "do not tolerate" in world.detail("g")
    assert world.decision("far") is before


def test_queues_below_have_it_too() -> None:
    world = cluster(queue("below", parent="q")).add(gang("g", 2, queue="below")).settle()
    assert world.reason("g") is Reason.INVALID_SPEC
    world.add(shared("a100")).settle()
    assert nodes_of(world, "g") == {"a100"}


def test_labels_next_to_a_resource_flavor_are_a_fault() -> None:
    both = QueueFlavor("f", {"a": "b"}, resource_flavor="f")
    says = "queue q: spec.flavors[0] has both nodeLabels and resourceFlavor: must have one"
    assert queue_record(queue("q", flavors=[both])).fault == says


def test_a_flavor_without_labels_has_the_nodes_that_are_left() -> None:
    """Leave out nodes of a missing flavor before it, too: which these are is unknown."""
    world = cluster(shared("a100")).add(queue("q", flavors=[naming("h100"), QueueFlavor("rest")]))
    world.add(gang("g", 12, queue="q")).settle()
    assert nodes_of(world, "g") == {"h100", "a100"}
