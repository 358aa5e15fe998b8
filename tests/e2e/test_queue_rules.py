"""Rules of queues on a real kube-scheduler: limits, order, and evictions.

Further rules: test_queues, test_sharing_tree, test_policies, test_price; of users: test_admission; of jobs:
test_jobs.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

GPU = "nvidia.com/gpu"
KIND = "example.com/kind"


def single(stage: Stage, name: str, cpu: str = "1", queue: str = "q", **more: Any) -> list[str]:
    """Create a gang of one; it waits from now on, or starts."""
    return stage.gang(name, 1, cpu=cpu, queue=queue, gated=True, **more)


def starts(stage: Stage, queue: str, count: int, of: int) -> list[str]:
    """Start some of so many groups of 1 cpu; the next one waits at the ceiling. Return the pods."""
    pods = [pod for n in range(of) for pod in single(stage, f"{queue}-{n}", queue=queue)]
    wait_for(lambda: len(stage.bound(pods)) == count, what=f"{count} of {of} pods of {queue} are bound")
    waiting = next(pod for pod in pods if pod not in stage.bound(pods))
    stage.wait_reason(waiting.rpartition("-")[0], "QueueCeiling")
    assert len(stage.bound(pods)) == count
    return pods


def message(stage: Stage, group: str) -> str:
    conditions = stage.pod_group(group).get("status", {}).get("conditions") or []
    return next((each["message"] for each in conditions if each["type"] == "Scheduled"), "")


def evicted(muster: Muster, cause: str = "Reclaim") -> int:
    return int(muster.metric("muster_evictions_total", outcome="done", cause=cause))


# ---- how much a queue may hold


def test_oversell_admits_a_multiple_of_the_capability(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="8")
    stage.queue("q", capability={"cpu": "4"}, oversell="1.5")
    starts(stage, "q", 6, of=7)


def test_a_queue_borrows_no_more_than_its_borrowing_limit_though_nodes_are_idle(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="8")
    stage.queue("q", deserved={"cpu": "2"}, borrowingLimit={"cpu": "1"})
    starts(stage, "q", 3, of=4)


def test_capacity_that_a_queue_does_not_lend_is_free_for_it_without_an_eviction(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Lend 2 of the 6 of 8 cpus that the queue deserves."""
    stage.nodes(1, cpu="8")
    stage.queue("owner", deserved={"cpu": "6"}, lendingLimit={"cpu": "2"})
    stage.queue("q")
    others = starts(stage, "q", 4, of=5)
    stage.wait_phase(stage.gang("mine", 4, queue="owner", gated=True))
    assert len(stage.bound(others)) == 4
    assert evicted(muster) == 0


def test_a_queue_borrows_from_the_nearest_ancestor_with_free_shares(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """H100 of its team come before A100, which no queue is given by name, although it names A100 first."""
    for kind in ("a100", "h100"):
        stage.nodes(1, prefix=kind, cpu="64", labels={KIND: kind}, **{GPU: "8"})
    a100, h100 = ({"name": kind, "nodeLabels": {KIND: kind}} for kind in ("a100", "h100"))
    stage.queue("team", flavors=[{**h100, "deserved": {GPU: "8"}}])
    stage.queue("q", parent="team", flavors=[a100, h100])
    near = stage.gang("near", 8, queue="q", gated=True, limits={GPU: "1"})
    assert {*stage.wait_bound(near).values()} == {"h1000"}
    far = stage.gang("far", 8, queue="q", gated=True, limits={GPU: "1"})
    assert {*stage.wait_bound(far).values()} == {"a1000"}


# ---- the order inside a queue


def test_in_a_mixed_queue_high_priorities_let_none_pass_and_others_rotate(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    high = stage.priority("mixed-high", 10)
    stage.nodes(1, cpu="4")
    stage.queue("q", dequeueStrategy="mixed", priorityThreshold=10, preemption={"withinQueue": "Never"})
    early = single(stage, "early", "3")
    stage.wait_phase(early)
    large = single(stage, "large", "2", priorityClassName=high)
    stage.wait_reason("large", "NoRoom")
    plain = single(stage, "plain", "4")
    small = single(stage, "small", "1")
    stage.wait_reason("small", "BehindOthers")
    stage.finish(early)
    stage.wait_phase([*large, *small])  # small fits next to large, and passes plain, which does not
    stage.finish([*large, *small])
    stage.wait_phase(plain)


def test_a_group_that_has_waited_gains_priority_by_ageing(stage: Stage, scheduler: KubeScheduler) -> None:
    """Start the older group before one whose class is higher by 500: ageing gives 1,000 a second here."""
    high = stage.priority("ageing-high", 500)
    stage.nodes(1, cpu="2")
    stage.queue("q", ageing=3_600_000, preemption={"withinQueue": "Never"})
    blocker = single(stage, "blocker", "2")
    stage.wait_phase(blocker)
    old = single(stage, "old", "2")
    created = datetime.fromisoformat(stage.pod_group("old")["metadata"]["creationTimestamp"])
    wait_for(lambda: datetime.now(UTC) >= created + timedelta(seconds=1), what="the next second")
    better = single(stage, "better", "2", priorityClassName=high)
    for name in ("old", "better"):
        stage.wait_reason(name, "NoRoom")
    stage.finish(blocker)
    stage.wait_phase(old)
    assert stage.bound(better) == {}
    stage.finish(old)
    stage.wait_phase(better)


# ---- victims of evictions, and how often


def test_a_queue_may_borrow_from_lower_priorities_within_the_cohort(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Borrow for q, which holds the 2 of 6 cpus that it deserves, from b, which has more than its 2.

    Queue c waits for its 2 patiently. The group of priority 5 goes; the one above the threshold stays.
    """
    rules = {"policy": "LowerPriority", "maxPriorityThreshold": 10}
    classes = {value: stage.priority(f"cohort-{value}", value) for value in (5, 20, 30)}
    stage.nodes(1, cpu="6")
    stage.queue("q", deserved={"cpu": "2"}, preemption={"borrowWithinCohort": rules})
    stage.queue("b", deserved={"cpu": "2"})
    stage.queue("c", deserved={"cpu": "2"}, preemption={"after": "1h"})
    own = stage.gang("own", 2, queue="q", gated=True, priorityClassName=classes[30])
    high = stage.gang("high", 3, queue="b", gated=True, priorityClassName=classes[20])
    low = single(stage, "low", queue="b", priorityClassName=classes[5])
    for gang in (own, high, low):
        stage.wait_phase(gang)
    stage.gang("patient", 2, queue="c", gated=True)
    stage.wait_reason("patient", "NoRoom")
    stage.wait_phase(single(stage, "borrows", priorityClassName=classes[30]))
    assert stage.phases(low) == {"Gone"}
    single(stage, "more", priorityClassName=classes[30])
    stage.wait_reason("more", "NoRoom", "QueueShare")
    assert stage.phases(high) == {"Running"}
    assert evicted(muster, "Borrow") == 1


def test_no_group_is_evicted_before_its_queues_minimum_runtime(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="2")
    stage.queue("rich", preemption={"minRuntime": "8s"})
    stage.queue("poor")
    rich = stage.gang("rich", 2, queue="rich", gated=True)
    stage.wait_phase(rich)
    began = max(datetime.fromisoformat(stage.pod(pod)["status"]["startTime"]) for pod in rich)
    poor = single(stage, "poor", queue="poor")
    stage.wait_phase(poor)
    bound = datetime.fromisoformat(stage.pod(poor[0])["status"]["startTime"])
    assert bound - began >= timedelta(seconds=7)  # timestamps are of whole seconds


def test_two_queues_do_not_take_turns_over_a_gang_larger_than_either_share(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Queue a loses its gang of 8 cpus for the 4 that b deserves. Made again, the gang evicts no pod."""
    stage.nodes(4, cpu="2")
    stage.queue("a")
    stage.queue("b")
    stage.wait_phase(stage.gang("large", 4, cpu="2", queue="a", gated=True))
    small = stage.gang("small", 2, cpu="2", queue="b", gated=True)
    stage.wait_phase(small)
    again = stage.pods("large-again", 4, group="large", cpu="2", gated=True)
    stage.wait_reason("large", "NoRoom", "QueueShare")
    late = single(stage, "late", "2", queue="b")  # capacity that large does not use is borrowed meanwhile
    stage.wait_phase(late)
    assert stage.phases(small) == {"Running"}
    stage.finish([*small, *late])
    stage.wait_phase(again)
    assert evicted(muster) == 4


def test_short_claimants_next_to_a_service_do_not_evict_a_gang_again_and_again(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Evict for the first claimant, after 12 s.

    Later claimants of its queue have to wait for atMost until the gang is evicted for that queue again.
    """
    stage.nodes(5, cpu="2")
    stage.queue("rich")
    stage.queue("poor", preemption={"after": "12s", "atMost": "12s"})
    stage.wait_phase(single(stage, "service", "2", queue="poor"))
    stage.wait_phase(stage.gang("gang", 4, cpu="2", queue="rich", gated=True))
    first = single(stage, "short-0", "2", queue="poor")
    stage.wait_phase(first)
    rules = {"after": "0s", "atMost": "1h"}
    stage.api.patch(QUEUES, "poor", {"spec": {"preemption": rules}})
    stage.finish(first)
    again = stage.pods("again", 4, group="gang", cpu="2", gated=True)
    stage.wait_phase(again)
    short = [pod for n in (1, 2) for pod in single(stage, f"short-{n}", "2", queue="poor")]
    gave = "to queue poor already"
    wait_for(lambda: gave in message(stage, "short-1"), what="it says what it waits for")
    stage.wait_reason("short-2", "NoRoom")
    assert stage.phases(again) == {"Running"}
    stage.finish(again)
    stage.wait_phase(short)
    assert evicted(muster) == 4
