"""Queues on a real kube-scheduler: shares, ceilings, and being open."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import CRDS, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

PODGROUP_CRD = "podgroups.scheduling.volcano.sh"
LEAST_MEMBER = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/minMember/minimum"


def test_a_queue_above_its_share_waits_while_another_could_use_the_capacity(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """Greedy holds 6 of 8 cpus. Modest wants 4: until they are free, greedy borrows none of the last 2."""
    stage.nodes(4, cpu="2")
    stage.queue("greedy", reclaimable=False)
    stage.queue("modest")
    early = stage.gang("early", 3, cpu="2", queue="greedy", gated=True)
    stage.wait_phase(early)
    modest = stage.gang("modest", 2, cpu="2", queue="modest", gated=True)
    stage.wait_reason("modest", "NoRoom")
    late = stage.gang("late", 1, cpu="2", queue="greedy", gated=True)
    stage.wait_reason("late", "QueueShare")
    assert stage.bound([*modest, *late]) == {}
    stage.finish(early[:1])
    stage.wait_phase(modest)
    stage.wait_reason("late", "NoRoom")
    stage.finish(modest)
    stage.wait_phase(late)


def test_a_queue_stays_above_its_share_while_no_other_queue_wants_the_capacity(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(4, cpu="2")
    stage.queue("greedy", reclaimable=False)
    stage.queue("modest")
    stage.wait_phase(stage.gang("early", 3, cpu="2", queue="greedy", gated=True))
    modest = stage.gang("modest", 2, cpu="2", queue="modest", gated=True)
    stage.wait_reason("modest", "NoRoom")
    late = stage.gang("late", 1, cpu="2", queue="greedy", gated=True)
    stage.wait_reason("late", "QueueShare")
    stage.delete_pods(modest)
    stage.api.delete(POD_GROUPS, "modest", stage.namespace)
    stage.wait_phase(late)


def test_two_gangs_above_the_shares_of_their_queues_do_not_leave_the_cluster_idle(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """kube-batch#492: each deserves 4 cpus and asks for 6."""
    stage.nodes(4, cpu="2")
    gangs = {}
    for name in ("a", "b"):
        stage.queue(name)
        gangs[name] = stage.gang(name, 3, cpu="2", queue=name, gated=True)
    first = stage.first_with_reason(gangs, "Running")
    second = ({*gangs} - {first}).pop()
    stage.wait_reason(second, "NoRoom")
    assert stage.bound(gangs[second]) == {}
    stage.wait_phase(gangs[first])
    stage.finish(gangs[first])
    stage.wait_phase(gangs[second])


def test_a_group_in_a_closed_queue_waits_until_it_opens(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    early = stage.gang("early", 2, queue="q", gated=True)
    stage.wait_phase(early)
    stage.set_queue_state("q", "Closed")
    gated = stage.gang("gated", 1, queue="q", gated=True)
    ungated = stage.gang("ungated", 1, queue="q")
    stage.wait_reason("gated", "QueueNotOpen")
    stage.wait_reason("ungated", "QueueNotOpen")
    assert stage.bound([*gated, *ungated]) == {}
    assert stage.phases(early) == {"Running"}
    stage.set_queue_state("q", "Open")
    stage.wait_phase([*gated, *ungated])


def test_a_group_from_before_its_queue_was_closed_still_starts(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    early = stage.gang("early", 4, queue="q", gated=True)
    stage.wait_phase(early)
    waiting = stage.gang("waiting", 2, queue="q", gated=True)
    stage.wait_reason("waiting", "NoRoom")
    stage.set_queue_state("q", "Closed")
    late = stage.gang("late", 1, queue="q", gated=True)
    stage.wait_reason("late", "QueueNotOpen")
    stage.finish(early)
    stage.wait_phase(waiting)
    assert stage.bound(late) == {}


def test_a_queue_stops_at_its_capability(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="4")
    stage.queue("q", capability={"cpu": "4"})
    first = stage.gang("first", 3, queue="q", gated=True)
    stage.wait_phase(first)
    second = stage.gang("second", 2, queue="q", gated=True)
    stage.wait_reason("second", "QueueCeiling")
    too_large = stage.gang("too-large", 5, queue="q", gated=True)
    stage.wait_reason("too-large", "NeverFits")
    assert stage.bound([*second, *too_large]) == {}
    stage.finish(first)
    stage.wait_phase(second)


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
def test_a_gang_waits_for_its_queue_to_exist(stage: Stage, scheduler: KubeScheduler, gated: bool) -> None:
    stage.nodes(1, cpu="4")
    gang = stage.gang("a", 3, queue="later", gated=gated)
    stage.wait_reason("a", "QueueNotFound")
    assert stage.bound(gang) == {}
    stage.queue("later")
    stage.wait_phase(gang)


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
def test_pods_wait_for_their_group_to_exist(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, gated: bool
) -> None:
    stage.nodes(1, cpu="4")
    gang = stage.pods("a", 3, group="a", gated=gated)
    muster.wait_decision(stage.namespace, "a", reason="GroupNotFound")
    assert _decided(stage, muster, gang[0]) == "GroupNotFound"
    assert stage.bound(gang) == {}
    stage.group("a", 3)
    stage.wait_phase(gang)
    _assert_no_start_failed(muster)


def test_a_group_that_comes_before_its_pods_loses_no_time(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.group("a", 3)
    stage.wait_reason("a", "NotEnoughMembers")
    early = stage.pods("a", 2, group="a")
    wait_for(
        lambda: all("NotEnoughMembers" in _message(stage, name) for name in early), what="two are refused"
    )
    assert stage.bound(early) == {}
    stage.wait_phase([*early, *stage.pods("a", 1, first=2, group="a")])
    _assert_no_start_failed(muster)


@pytest.mark.gaps_allowed  # the API server ends all watches of a kind whose schema changes
def test_numbers_out_of_range_are_refused_or_reported(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Our schema refuses them. Volcano's, which may be installed instead, does not."""
    stage.nodes(1, cpu="4")
    with pytest.raises(ApiError, match="minMember"):
        stage.group("refused", -1)
    with _without_least_member(stage):
        gang = stage.gang("a", 2, min_member=-1, gated=True)
        stage.wait_reason("a", "InvalidSpec")
        assert stage.bound(gang) == {}
        stage.wait_phase(stage.gang("b", 2, gated=True))


@contextmanager
def _without_least_member(stage: Stage) -> Iterator[None]:
    removal = [{"op": "remove", "path": LEAST_MEMBER}]
    stage.api.patch(CRDS, PODGROUP_CRD, removal, content="application/json-patch+json")

    negative = objects.pod_group("sample", namespace=stage.namespace, min_member=-1)
    try:
        wait_for(lambda: stage.admits(POD_GROUPS, negative), what="negative numbers admitted")
        yield
    finally:
        stage.api.delete_all(POD_GROUPS, stage.namespace)
        manifests.apply(stage.api, "crds/*.yaml")
        wait_for(lambda: not stage.admits(POD_GROUPS, negative), what="negative numbers refused again")


def _message(stage: Stage, pod: str) -> str:
    """Return the scheduler's message about a pod."""
    conditions = stage.pod(pod)["status"].get("conditions", [])
    return next(
        (condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"), ""
    )


def _decided(stage: Stage, muster: Muster, pod: str) -> str:
    decision = muster.debug(f"/debug/pods/{stage.namespace}/{pod}")["decision"]
    return decision["reason"] if decision else ""


def _assert_no_start_failed(muster: Muster) -> None:
    """Assert that no held bind was given up, and no group has backed off."""
    assert muster.metric("muster_barrier_aborts_total") == 0
    assert "BackingOff" not in {each.get("reason") for each in muster.debug("/debug/decisions?limit=1000")}


def test_a_pod_that_names_its_node_takes_no_other_pod_past_the_ceiling(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """Let the pod run, as it needs no admission; the missing members of its group wait all the same."""
    (node,) = stage.nodes(1, cpu="32")
    stage.queue("small", capability={"cpu": "4"})
    stage.group("a", 5, queue="small")
    seed = stage.pods("seed", 1, group="a", nodeName=node)
    stage.wait_phase(seed)
    others = stage.pods("a", 4, group="a", gated=True)
    stage.wait_reason("a", "QueueCeiling")
    assert stage.bound(others) == {}
    stage.delete_pods([*seed, *others])


def test_thousands_of_missing_queues_delay_no_gang(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Start a gang among 3,000 groups that name as many missing queues, and one after their report.

    Muster stays well all the while.
    """
    stage.nodes(2, cpu="4")
    stage.queue("there")
    absent = [
        objects.pod_group(f"absent-{n}", namespace=stage.namespace, min_member=1, queue=f"absent-{n}")
        for n in range(3000)
    ]
    stage.api.create_many(POD_GROUPS, absent)
    stage.wait_phase(stage.gang("soon", 4, queue="there", gated=True))
    assert muster.live()
    stage.wait_reason("absent-2999", "QueueNotFound")
    late = stage.gang("late", 4, queue="there", gated=True)
    stage.wait_phase(late)
    assert muster.live()
    assert len(muster.debug("/debug/queues")) >= 1
    assert muster.metric("muster_faults_total") == 0
