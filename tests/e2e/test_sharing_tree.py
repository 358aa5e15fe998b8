"""A tree of queues on a real kube-scheduler: what binds at every level, and who has what."""

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for


def held(stage: Stage, *queues: str) -> dict[str, str]:
    """Return the cpu that queues hold, by their status."""
    found = {name: stage.api.get(QUEUES, name).get("status", {}) for name in queues}
    return {name: status.get("allocated", {}).get("cpu", "0") for name, status in found.items()}


def unmet(stage: Stage) -> dict[str, str]:
    """Return for each queue with the field whether it has less than its guarantee."""
    return {
        queue["metadata"]["name"]: each["status"]
        for queue in stage.api.items(QUEUES)
        for each in queue.get("status", {}).get("conditions", [])
        if each["type"] == "GuaranteeUnmet"
    }


def reported(stage: Stage) -> set[str]:
    """Return the queues with an event that they have less than their guarantee."""
    events = stage.api.items(EVENTS, "default", fieldSelector="reason=GuaranteeUnmet,source=kube-muster")
    return {event["involvedObject"]["name"] for event in events}


def running(stage: Stage, names: list[str]) -> int:
    return len(stage.bound(names))


def test_a_tree_of_three_levels_divides_at_each_and_sums_up(stage: Stage, scheduler: KubeScheduler) -> None:
    """Divide 16 cpus: research may hold 8, of which vision has three parts and speech one.

    Sales has the rest.
    """
    stage.nodes(4, cpu="4")
    stage.queue("research", capability={"cpu": "8"})
    stage.queue("sales")
    stage.queue("vision", parent="research", weight=3)
    stage.queue("speech", parent="research", weight=1)
    pods = {
        name: [
            pod for n in range(12) for pod in stage.gang(f"{name}-{n}", 1, cpu="1", queue=name, gated=True)
        ]
        for name in ("vision", "speech", "sales")
    }
    most = {"vision": 6, "speech": 2, "sales": 8}
    wait_for(lambda: {name: running(stage, each) for name, each in pods.items()} == most, what=f"{most} run")
    sums = {"vision": "6", "speech": "2", "sales": "8", "research": "8", "root": "16"}
    wait_for(lambda: held(stage, *sums) == sums, what="sums in the statuses of all queues")
    assert stage.api.get(QUEUES, "research")["status"]["running"] == 8


def test_children_stay_within_the_capability_of_their_parent(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(4, cpu="4")
    stage.queue("p", capability={"cpu": "4"})
    names = [f"c{n}" for n in range(3)]
    for name in names:
        stage.queue(name, parent="p")
    first = {name: stage.gang(f"first-{name}", 1, cpu="1", queue=name, gated=True) for name in names}
    for each in first.values():
        stage.wait_phase(each)
    large = stage.gang("large", 2, cpu="1", queue="c0", gated=True)
    stage.wait_reason("large", "QueueCeiling")
    small = stage.gang("small", 1, cpu="1", queue="c1", gated=True)
    stage.wait_phase(small)
    assert stage.bound(large) == {}
    stage.finish([*first["c1"], *first["c2"]])
    stage.wait_phase(large)


def test_a_guarantee_is_reserved_from_all_others(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="4")
    stage.queue("kept", guarantee={"resource": {"cpu": "4"}}, deserved={"cpu": "4"})
    pods = []
    for name in ("b", "c"):
        stage.queue(name)
        pods += [
            pod for n in range(4) for pod in stage.gang(f"{name}{n}", 1, cpu="1", queue=name, gated=True)
        ]
    wait_for(lambda: running(stage, pods) == 4, what="four of eight run")
    mine = stage.gang("mine", 4, cpu="1", queue="kept", gated=True)
    stage.wait_phase(mine)
    wait_for(lambda: running(stage, pods) == 4, what="four of eight run, whatever b gave back to c")


def test_a_guarantee_above_capacity_is_reported_on_its_queue_alone(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """Give greedy and kept 4 of 8 cpus each, as both have a guarantee of 1,000.

    Queue other waits until they are guaranteed less.
    """
    stage.nodes(2, cpu="4")
    for name in ("greedy", "kept"):
        stage.queue(name, guarantee={"resource": {"cpu": "1000"}}, deserved={"cpu": "1000"})
    stage.queue("other")
    early = stage.gang("early", 4, cpu="1", queue="greedy", gated=True)
    stage.wait_phase(early)
    more = stage.gang("more", 1, cpu="1", queue="greedy", gated=True)
    alone = stage.gang("alone", 2, cpu="1", queue="other", gated=True)
    for name in ("more", "alone"):
        stage.wait_reason(name, "QueueCeiling")
    wait_for(lambda: unmet(stage) == {"greedy": "True", "kept": "True"}, what="both say so")
    wait_for(lambda: reported(stage) == {"greedy", "kept"}, what="events on the queues that have too little")
    late = stage.gang("late", 4, cpu="1", queue="kept", gated=True)
    stage.wait_phase(late)
    assert stage.bound([*more, *alone]) == {}
    lower = {"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "2"}}
    for name in ("greedy", "kept"):
        stage.api.patch(QUEUES, name, {"spec": lower})
    wait_for(lambda: unmet(stage) == {"greedy": "False", "kept": "False"}, what="neither says so any more")
    stage.finish(early)
    stage.wait_phase(alone)


@pytest.mark.muster_flags("--usage-half-life", "20s")
def test_the_queue_with_the_least_recent_usage_goes_first_also_after_a_restart(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("a")
    stage.queue("b")
    early = stage.gang("early", 4, cpu="1", queue="a", gated=True)
    stage.wait_phase(early)
    wait_for(lambda: used(stage, "a") > 0.2, what="a has used some of the cluster")
    stage.api.patch(QUEUES, "root", {"spec": {"fairShare": "Historical"}})
    stage.started.callback(stage.api.patch, QUEUES, "root", {"spec": {"fairShare": None}})
    muster.restart(hard=True)
    first = stage.gang("first", 4, cpu="1", queue="a", gated=True)
    later = stage.gang("later", 4, cpu="1", queue="b", gated=True)
    for name in ("first", "later"):
        stage.wait_reason(name, "NoRoom", "QueueShare")
    assert used(stage, "a") > 0.1
    stage.finish(early)
    stage.wait_phase(later)
    assert stage.bound(first) == {}


@pytest.mark.muster_flags("--usage-half-life", "20s")
def test_a_gang_a_quarter_above_its_share_starts_next_to_a_backlog(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Its queue deserves 4 of 8 cpus; others have held more than they are due meanwhile."""
    stage.nodes(1, cpu="8")
    stage.queue("backlog")
    stage.queue("large")
    jobs = [stage.gang(f"job-{n}", 1, cpu="1", queue="backlog", gated=True)[0] for n in range(16)]
    wait_for(lambda: len(stage.bound(jobs)) == 8, what="the backlog has all cpus")
    wait_for(lambda: used(stage, "backlog") > 0.3, what="it has used much")
    gang = stage.gang("gang", 5, cpu="1", queue="large", gated=True)
    stage.wait_reason("gang", "NoRoom", "QueueShare", "Reclaiming")
    for name in list(stage.bound(jobs))[:5]:
        stage.finish([name])
    stage.wait_phase(gang)
    assert len(stage.bound(jobs)) == 8, "five that have ended, and three; no other came first"


def used(stage: Stage, queue: str) -> float:
    usage = stage.api.get(QUEUES, queue).get("status", {}).get("usage") or {}
    return float(usage.get("share", 0.0))


@pytest.mark.parametrize(("placement", "nodes"), [("Pack", 1), ("Spread", 2)])
def test_a_queue_packs_or_spreads_its_pods(
    stage: Stage, scheduler: KubeScheduler, placement: str, nodes: int
) -> None:
    """Apply the placement to pods of a gang and to single pods, which the scheduler would spread."""
    stage.nodes(2, cpu="8")
    stage.queue("q", placement=placement)
    gang = stage.gang("gang", 2, cpu="1", queue="q", gated=True)
    stage.wait_phase(gang)
    for name in ("one", "two"):
        stage.wait_phase(stage.gang(name, 1, cpu="1", queue="q", gated=True))
    assert len({*stage.bound([*gang, "one-0", "two-0"]).values()}) == nodes
    assert len({*stage.bound(["one-0", "two-0"]).values()}) == nodes


def test_a_queue_whose_parent_is_missing_waits_and_says_so(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("orphan", parent="nowhere")
    lost = stage.gang("lost", 1, cpu="1", queue="orphan", gated=True)
    stage.wait_reason("lost", "InvalidSpec")
    stage.queue("nowhere")
    stage.wait_phase(lost)
