"""Amounts at the limits, and resources that no node offers: they cost only the pods that name them."""

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from extender.api.objects.pods import Container, Pod, ResourceRequirements
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.model.resources import MAX_AMOUNT, pod_requests
from tests.domain.builders import SCHEDULER, foreign_pod, group, node, on_nodes, pod, queue
from tests.domain.world import World, gang, key, single

STRANGE = {f"x.io/r{n}": "1" for n in range(4000)}


def of_containers(each: Pod, *requests: Mapping[str, str]) -> Pod:
    containers = [Container(ResourceRequirements(dict(amounts))) for amounts in requests]
    return replace(each, spec=replace(each.spec, containers=containers))


def idle(world: World, name: str = "n0") -> Mapping[str, int]:
    return next(left for each, _, left, _ in world.ledger.nodes() if each == name)


def test_two_containers_that_are_too_large_for_64_bits_cost_their_group_alone() -> None:
    world = World(node("n0"), gang("a", 2), group("huge", 1))
    world.add(of_containers(pod("huge-0", "huge"), {"memory": "9E"}, {"memory": "9E"})).settle()
    assert world.verdict("a") is Verdict.STARTING
    assert world.reason("huge") is Reason.NEVER_FITS


def test_requests_are_capped_where_they_are_summed() -> None:
    huge = of_containers(pod("p"), {"memory": "9E", "cpu": "9E"}, {"memory": "9E", "x.io/a": "-5"})
    assert pod_requests(huge.spec) == {"memory": MAX_AMOUNT, "cpu": MAX_AMOUNT, "pods": 1}


def test_a_pod_beyond_the_cap_fits_no_node_beyond_it() -> None:
    world = World(node("n0", memory="9E"), group("huge", 1))
    world.add(of_containers(pod("huge-0", "huge"), {"memory": "8E"})).settle()
    assert world.reason("huge") is Reason.NEVER_FITS


def test_bound_pods_beyond_64_bits_leave_no_free_capacity_and_release_it_when_they_end() -> None:
    world = World(node("n0"), gang("a", 2))
    before = idle(world)
    names = [f"huge-{n}" for n in range(3)]
    world.add(
        [of_containers(foreign_pod(name, on="n0"), {"memory": "8E"}, {"memory": "9E"}) for name in names]
    )
    assert idle(world)["memory"] < 0
    assert (world.ledger.snapshot().capacity[:, 1] <= 0).all()
    world.delete(*names)
    assert idle(world) == before
    assert world.settle().verdict("a") is Verdict.STARTING


def test_sums_of_more_than_64_bits_on_one_node_are_exact_again_later() -> None:
    world = World(node("n0"))
    each = of_containers(foreign_pod("huge", on="n0"), {"memory": "9E"})
    record = world.add(each).claim("huge")
    assert record is not None
    capacity = world.ledger.claims.capacity
    for times in (1, -1):
        for _ in range(2**16):
            capacity.add(record, times)
        assert (capacity.columns.capacity[0] < 0).any()
    world.delete("huge")
    assert idle(world)["memory"] == 64 * 2**30


def test_pods_make_no_columns() -> None:
    world = World(node("n0"))
    world.add([of_containers(foreign_pod(f"s{n}", on="n0"), STRANGE) for n in range(3)])
    assert world.ledger.snapshot().dimensions == ("cpu", "memory", "pods")
    assert idle(world)["pods"] == 107


def test_a_column_comes_with_the_first_node_that_offers_it_and_goes_with_the_last() -> None:
    world = World(node("n0"), node("n1"))
    world.add(of_containers(foreign_pod("s", on="n0"), {"x.io/gpu": "3"}))
    world.add(node("n1", more={"x.io/gpu": "4"}))
    snapshot = world.ledger.snapshot()
    assert snapshot.dimensions == ("cpu", "memory", "pods", "x.io/gpu")
    assert [snapshot.capacity[snapshot.nodes.row_of[name], 3] for name in ("n0", "n1")] == [-3, 4]
    world.drop_node("n1")
    assert world.ledger.snapshot().dimensions == ("cpu", "memory", "pods")
    world.add(node("n0", more={"x.io/gpu": "4"}))
    snapshot = world.ledger.snapshot()
    assert snapshot.capacity[snapshot.nodes.row_of["n0"], 3] == 1


def test_a_node_that_offers_none_of_a_resource_any_more_still_names_it() -> None:
    world = World(node("n0"), node("n1"))
    world.add(node("n0", more={"x.io/gpu": "0"}))
    assert world.ledger.snapshot().dimensions == ("cpu", "memory", "pods", "x.io/gpu")
    world.add(node("n0"))
    assert world.ledger.snapshot().dimensions == ("cpu", "memory", "pods")


def test_a_column_that_goes_leaves_the_others_as_they_are() -> None:
    world = World(node("n0", more={"x.io/a": "1"}), node("n1", more={"x.io/b": "2"}))
    world.add(node("n0"))
    snapshot = world.ledger.snapshot()
    assert snapshot.dimensions == ("cpu", "memory", "pods", "x.io/b")
    rows = [snapshot.nodes.row_of[name] for name in ("n0", "n1")]
    assert np.array_equal(snapshot.capacity[rows], [[4000, 2**36, 110, 0], [4000, 2**36, 110, 2]])


def test_a_pod_whose_annotations_leave_no_space_for_those_of_its_binding_waits() -> None:
    """The API server does not measure them there, and would refuse any later change, an eviction, too."""
    world = World(node("n0"), group("a", 1))
    world.add(pod("a-0", "a", annotations={"note": "x" * (256 * 1024 - 900)})).settle()
    assert world.reason("a") is Reason.TOO_COMPLEX
    assert "pod a-0 has annotations" in world.decision("a").detail
    world.add(pod("a-0", "a", annotations={"note": "x" * (255 * 1024 - 500)})).settle()
    assert world.verdict("a") is Verdict.STARTING


def test_a_group_whose_annotations_leave_no_space_for_records_waits() -> None:
    world = World(node("n0"), gang("b", 1))
    world.add(group("a", 1, annotations={"note": "x" * (256 * 1024 - 900)}), pod("a-0", "a")).settle()
    assert world.reason("a") is Reason.INVALID_SPEC
    assert world.detail("a").startswith("metadata.annotations: more than 261120 bytes")
    assert world.verdict("b") is Verdict.STARTING
    world.add(group("a", 1, annotations={"note": "x" * (255 * 1024 - 500)})).settle()
    assert world.verdict("a") is Verdict.STARTING


def test_a_resource_that_no_node_offers_never_fits() -> None:
    world = World(node("n0"), gang("a", 1, more={"x.io/gpu": "1"})).settle()
    assert world.reason("a") is Reason.NEVER_FITS
    world.add(node("n1", more={"x.io/gpu": "1"})).settle()
    assert world.verdict("a") is Verdict.STARTING


def test_requests_of_any_form_make_no_decision_long() -> None:
    world = World(node("n0"), group("wide", 2), group("other", 1))
    world.add([of_containers(pod(f"wide-{n}", "wide"), STRANGE) for n in range(2)])
    world.add(of_containers(pod("placed", "other", on="n0"), STRANGE)).settle()
    decision = world.queue("default")
    for amounts in (decision.allocated, decision.requested, decision.deserved, decision.ceiling):
        assert amounts.keys() <= {"cpu", "memory", "pods"}
    assert world.reason("wide") is Reason.TOO_COMPLEX
    assert len(world.detail("wide")) < 300


def test_a_queue_holds_of_a_resource_as_soon_as_a_node_offers_it() -> None:
    world = World(node("n0"), gang("a", 1, on="n0", more={"x.io/gpu": "2"})).settle()
    assert "x.io/gpu" not in world.queue("default").allocated
    world.add(node("n1", more={"x.io/gpu": "4"})).settle()
    assert world.queue("default").allocated["x.io/gpu"] == 2
    world.delete("a-0").settle()
    assert world.queue("default").allocated == {}


def test_groups_of_queues_that_do_not_exist_get_no_part_of_the_cluster() -> None:
    world = World(node("n0"), queue("q"), gang("a", 4, queue="q"), gang("b", 4, queue="absent")).settle()
    assert world.queue("q").deserved["cpu"] == 4000
    assert world.reason("b") is Reason.QUEUE_NOT_FOUND
    assert world.queue("absent").deserved == {}


def test_pods_of_others_share_all_that_they_have_in_common() -> None:
    """Pods like those of a DaemonSet, each of which requires its own node."""
    world = World(node("n0"), node("n1"))
    for name in ("n0", "n1"):
        daemon = foreign_pod(f"daemon-{name}", on=name, labels={"app": "daemon"})
        affinity = on_nodes("metadata.name", "In", name)
        world.add(replace(daemon, spec=replace(daemon.spec, affinity=affinity)))
    first, second = (world.ledger.pods.get(Uid(f"uid-daemon-{name}")) for name in ("n0", "n1"))
    assert first is not None
    assert second is not None
    assert first.shape is second.shape
    assert first.labels is second.labels
    world.delete("daemon-n0", "daemon-n1")
    del first, second
    assert len(world.ledger.pods.shapes.labels) == 0


def test_a_pod_that_changes_to_muster_gets_a_full_record() -> None:
    world = World(node("n0"))
    each = foreign_pod("p")
    selected = replace(each, spec=replace(each.spec, node_selector={"no": "such"}))
    ours = replace(selected, spec=replace(selected.spec, scheduler_name=SCHEDULER))
    world.add(selected).settle()
    world.add(ours).settle()
    assert world.reason(single("p")) is Reason.NEVER_FITS


def test_a_pod_that_cannot_be_taken_in_is_not_half_recorded() -> None:
    """The pod's role is not a string, which is noticed late: when its group is counted."""
    world = World(node("n0"), group("a", 1))
    before = idle(world)
    with pytest.raises(TypeError):
        world.add(pod("a-0", "a", on="n0", role=["worker"]))  # type: ignore[arg-type]
    assert world.ledger.pods.get(Uid("uid-a-0")) is None
    assert world.ledger.groups.members(key("a")) == []
    assert idle(world) == before
    world.add(pod("a-0", "a", on="n0"))
    assert idle(world)["pods"] == before["pods"] - 1
