"""Reclaimed capacity on a real control plane: the victims, the claimants, and the reports to both."""

from collections.abc import Iterable
from typing import Any

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import BUDGETS, EVENTS, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
DEFAULT_SCHEDULER = "default-scheduler"


def borrowed(stage: Stage, sizes: Iterable[int], **pod: Any) -> list[list[str]]:
    """Start gangs of queue `rich` on all four nodes of two cpus, while queue `poor` has no groups."""
    stage.nodes(4, cpu="2")
    stage.queue("rich")
    stage.queue("poor")
    gangs = [
        stage.gang(f"rich{number}", size, cpu="2", queue="rich", gated=True, **pod)
        for number, size in enumerate(sizes)
    ]
    for gang in gangs:
        stage.wait_phase(gang)
    return gangs


def alive(stage: Stage, gangs: Iterable[list[str]]) -> list[int]:
    """Return how many members of each gang run."""
    return [sum(stage.phases([name]) == {"Running"} for name in gang) for gang in gangs]


def messages(stage: Stage, name: str) -> list[str]:
    """Return the reasons of the Events on an object."""
    events = stage.api.items(EVENTS, stage.namespace)
    return [event["reason"] for event in events if event["involvedObject"]["name"] == name]


def test_a_full_cluster_is_reclaimed_for_a_starved_queue(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    gangs = borrowed(stage, [2, 2])
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_phase(poor)
    assert sorted(alive(stage, gangs)) == [0, 2]
    (gone,) = [gang for gang, left in zip(gangs, alive(stage, gangs), strict=True) if not left]
    group = gone[0].partition("-")[0]
    wait_for(
        lambda: "Reclaimed" in messages(stage, group) and "Reclaimed" in messages(stage, gone[0]),
        what="reported",
    )
    assert muster.metric("muster_evictions_total", outcome="done", cause="Reclaim") == 2
    poorer = wait_for(lambda: stage.api.get(QUEUES, "poor")["status"].get("reclaimed"), what="remembered")
    assert [each["queue"] for each in poorer] == ["rich"]
    late = stage.gang("late", 2, cpu="2", queue="poor", gated=True)
    stage.wait_reason("late", "NoRoom", "QueueShare")
    assert stage.bound(late) == {}
    assert sorted(alive(stage, gangs)) == [0, 2]


def test_machines_with_gpus_are_given_back_however_short_memory_is(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """Reclaim the GPUs, although without two of its gangs rich holds less memory than it deserves.

    It holds half of the GPUs then.
    """
    stage.nodes(2, cpu="200", memory="2000Gi", **{GPU: "8"})
    stage.queue("rich")
    stage.queue("poor")
    share: dict[str, Any] = {"memory": "240Gi", "limits": {GPU: "1"}, "gated": True}
    gangs = [stage.gang(f"rich{number}", 4, queue="rich", **share) for number in range(5)]
    for gang in gangs[:4]:
        stage.wait_phase(gang)
    stage.wait_phase(stage.gang("poor", 8, queue="poor", **share))
    assert sorted(alive(stage, gangs[:4])) == [0, 0, 4, 4]


def test_recreated_members_of_an_evicted_gang_start_as_a_gang(stage: Stage, scheduler: KubeScheduler) -> None:
    """The controller of a gang recreates its members: none starts before there is capacity for all."""
    gangs = borrowed(stage, [2, 2])
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_phase(poor)
    (gone,) = [gang for gang, left in zip(gangs, alive(stage, gangs), strict=True) if not left]
    group = gone[0].partition("-")[0]
    again = stage.pods(f"{group}-again", 2, group=group, cpu="2", gated=True)
    stage.wait_reason(group, "NoRoom", "QueueShare")
    stage.finish(poor[:1])
    stage.wait_reason(group, "NoRoom", "QueueShare", "Fragmented")
    assert stage.bound(again) == {}
    stage.finish(poor[1:])
    stage.wait_phase(again)


def test_surplus_members_go_before_whole_gangs(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(4, cpu="2")
    stage.queue("rich")
    stage.queue("poor")
    elastic = stage.gang("elastic", 3, min_member=1, cpu="2", queue="rich", gated=True)
    stage.wait_phase(elastic)
    whole = stage.gang("whole", 1, cpu="2", queue="rich", gated=True)
    stage.wait_phase(whole)
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_phase(poor)
    assert alive(stage, [elastic, whole]) == [1, 1]


def test_no_group_of_a_queue_that_is_not_reclaimable_is_reclaimed(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    gangs = borrowed(stage, [2, 2])
    stage.api.patch(QUEUES, "rich", {"spec": {"reclaimable": False}})
    stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_reason("poor", "NoRoom")
    assert alive(stage, gangs) == [2, 2]
    stage.api.patch(QUEUES, "rich", {"spec": {"reclaimable": True}})
    stage.wait_reason("poor", "Running")


def test_a_group_of_one_gets_its_queues_due(stage: Stage, scheduler: KubeScheduler) -> None:
    gangs = borrowed(stage, [1, 1, 1, 1])
    stage.wait_phase(stage.pods("alone", 1, queue="poor", cpu="2", gated=True))
    assert sorted(map(sum, (alive(stage, [gang]) for gang in gangs))) == [0, 1, 1, 1]


def test_a_higher_priority_inside_a_queue(stage: Stage, scheduler: KubeScheduler) -> None:
    high = stage.priority("high", 1000)
    stage.nodes(2, cpu="2")
    stage.queue("q")
    low = stage.gang("low", 2, cpu="2", gated=True, queue="q")
    stage.wait_phase(low)
    urgent = stage.gang("urgent", 1, cpu="2", gated=True, priorityClassName=high, queue="q")
    stage.wait_phase(urgent)
    assert stage.phases(low) == {"Gone"}
    wait_for(lambda: "Preempted" in messages(stage, "low"), what="reported")


def test_no_group_is_evicted_where_the_queue_forbids_it(stage: Stage, scheduler: KubeScheduler) -> None:
    high = stage.priority("high", 1000)
    stage.nodes(2, cpu="2")
    stage.queue("q", preemption={"withinQueue": "Never"})
    low = stage.gang("low", 2, cpu="2", gated=True, queue="q")
    stage.wait_phase(low)
    stage.gang("urgent", 1, cpu="2", gated=True, priorityClassName=high, queue="q")
    stage.wait_reason("urgent", "NoRoom")
    assert stage.phases(low) == {"Running"}


def test_pods_of_others_give_way_to_a_whole_gang_or_stay(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    high = stage.priority("high", 1000)
    stage.nodes(3, cpu="2")
    stage.queue("q")
    others = stage.pods("other", 3, cpu="2", scheduler=DEFAULT_SCHEDULER)
    for number, name in enumerate(others):
        stage.api.bind(stage.namespace, name, f"n{number}")
    stage.wait_phase(others)
    stage.gang("huge", 4, cpu="2", gated=True, priorityClassName=high, queue="q")
    stage.wait_reason("huge", "NeverFits")
    assert stage.phases(others) == {"Running"}
    fits = stage.gang("fits", 2, cpu="2", gated=True, priorityClassName=high, queue="q")
    stage.wait_phase(fits)
    assert sum(alive(stage, [others])) == 1
    assert muster.metric("muster_evictions_total", outcome="done", cause="PreemptUnmanaged") == 2


def test_a_victim_with_a_budget_stays_and_another_one_goes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """No controller counts the pods of the budget here, so it allows no disruption at all."""
    gangs = borrowed(stage, [1, 1, 1], labels={"guarded": "yes"})
    free = stage.gang("free", 1, cpu="2", queue="rich", gated=True)
    stage.wait_phase(free)
    budget(stage)
    poor = stage.gang("poor", 1, cpu="2", queue="poor", gated=True)
    stage.wait_phase(poor)
    assert stage.phases(free) == {"Gone"}
    assert alive(stage, gangs) == [1, 1, 1]


def test_a_gang_of_which_a_budget_allows_half_stays_whole(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Spare the two of three gangs that would go first, which the budget covers.

    Once the budget lets one go whole, it goes.
    """
    stage.nodes(6, cpu="2")
    stage.queue("rich")
    stage.queue("poor")
    free = stage.gang("free", 2, cpu="2", queue="rich", gated=True)
    stage.wait_phase(free)
    covered = []
    for name in ("one", "two"):
        covered.append(stage.gang(name, 2, cpu="2", queue="rich", gated=True, labels={"guarded": "yes"}))
        stage.wait_phase(covered[-1])
    budget(stage)
    allow(stage, 1)
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_phase(poor)
    assert stage.phases(free) == {"Gone"}
    assert alive(stage, covered) == [2, 2]
    assert muster.metric("muster_evictions_total", outcome="refused", cause="Reclaim") == 0
    stage.queue("third")
    third = stage.gang("third", 2, cpu="2", queue="third", gated=True)
    stage.wait_reason("third", "NoRoom")
    allow(stage, 2)
    stage.wait_phase(third)
    assert sorted(alive(stage, covered)) == [0, 2]


def budget(stage: Stage) -> None:
    """Create a budget for the guarded pods; without its controller it allows no eviction at first."""
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    spec = {"minAvailable": "100%", "selector": {"matchLabels": {"guarded": "yes"}}}
    meta = {"name": "guard", "namespace": stage.namespace}
    stage.api.create(BUDGETS, {**kind, "metadata": meta, "spec": spec})


def allow(stage: Stage, disruptions: int) -> None:
    """Write the status of the budget as its controller."""
    amounts = {"currentHealthy": 4, "desiredHealthy": 4 - disruptions, "expectedPods": 4}
    status = {**amounts, "disruptionsAllowed": disruptions, "observedGeneration": 1}
    stage.api.patch(BUDGETS, "guard", {"status": status}, stage.namespace, "status")


def test_muster_killed_between_evictions_and_start(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The victims are terminating: no other pod is evicted, and the starved queue gets the capacity."""
    gangs = borrowed(stage, [2, 2], terminationGracePeriodSeconds=600)
    stage.kubelet.off()
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    wait_for(lambda: len(leaving(stage)) == 2, what="the victims are leaving")
    muster.kill()
    muster.start()
    muster.wait_decision(stage.namespace, "poor", verdict="Waiting")
    rivals = stage.gang("rivals", 2, cpu="2", queue="rich", gated=True)
    muster.wait_decision(stage.namespace, "rivals", verdict="Waiting")
    assert len(leaving(stage)) == 2
    stage.kubelet.on()
    stage.wait_phase(poor)
    assert stage.bound(rivals) == {}
    assert sorted(alive(stage, gangs)) == [0, 2]


def test_victims_say_why_they_go(stage: Stage, scheduler: KubeScheduler) -> None:
    borrowed(stage, [2, 2], terminationGracePeriodSeconds=600)
    stage.kubelet.off()
    stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
    stage.wait_reason("poor", "Reclaiming")
    wait_for(lambda: len(leaving(stage)) == 2, what="the victims are leaving")

    def disruptions() -> list[Json]:
        return [
            each
            for pod in leaving(stage)
            for each in pod["status"]["conditions"]
            if each["type"] == "DisruptionTarget" and each["reason"] == "PreemptionByScheduler"
        ]

    wait_for(lambda: len(disruptions()) == 2, what="the victims say why they go")
    assert all(f"{stage.namespace}/poor" in disruption["message"] for disruption in disruptions())
    stage.kubelet.on()
    stage.wait_reason("poor", "Running")


def test_a_drained_queue_is_emptied_group_by_group(stage: Stage, scheduler: KubeScheduler) -> None:
    gangs = borrowed(stage, [2, 2])
    stage.api.patch(QUEUES, "rich", {"spec": {"stopPolicy": "HoldAndDrain"}})
    for gang in gangs:
        stage.wait_phase(gang, "Gone")


def leaving(stage: Stage) -> list[Json]:
    pods = stage.api.items(PODS, stage.namespace)
    return [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]


def test_pods_of_jobs_move_so_that_a_gang_gets_a_whole_node(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Two machines with 6 of 8 GPUs free each, and a gang that wants all 8 of one."""
    stage.start_controller_manager()
    stage.nodes(2, cpu="64", **{GPU: "8"})
    stage.queue("q", placement="Spread", preemption={"consolidation": True})
    first = {}
    for name in ("left", "right"):
        stage.job(name, queue="q", limits={GPU: "2"})
        first[name] = stage.jobs.wait_pods(name, 1, "Running")
    assert len(set(stage.bound(first["left"] + first["right"]).values())) == 2
    stage.wait_phase(stage.gang("whole", 1, queue="q", limits={GPU: "8"}, gated=True))
    (moved,) = [name for name, pods in first.items() if stage.phases(pods) != {"Running"}]
    (again,) = stage.jobs.wait_pods(moved, 1, "Running")
    nodes = stage.bound(["whole-0", again, *(pod for pods in first.values() for pod in pods)])
    assert len(nodes) == 3
    assert len({node for name, node in nodes.items() if name != "whole-0"}) == 1
    wait_for(lambda: "Consolidated" in messages(stage, first[moved][0]), what="reported")
    assert muster.metric("muster_evictions_total", outcome="done", cause="Consolidate") == 1
