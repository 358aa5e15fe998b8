"""Cost of evictions on a real control plane: victims, times, and the record of it."""

from datetime import datetime
from typing import Any

from extender.api.keys import CHECKPOINT, LOST_WORK
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]


def group(stage: Stage, name: str) -> Json:
    return stage.api.get(POD_GROUPS, name, stage.namespace)


def why(stage: Stage, name: str) -> str:
    """Return the reason to wait in the message of its PodGroup."""
    conditions = group(stage, name).get("status", {}).get("conditions", ())
    return " ".join(each["message"] for each in conditions if each["type"] == "Scheduled")


def test_the_gang_with_a_checkpoint_is_evicted_of_two(stage: Stage, scheduler: KubeScheduler) -> None:
    """Evict it although it has run for longer; after 12 s, the other one has work to lose."""
    stage.nodes(4, cpu="2")
    stage.queue("rich")
    stage.queue("poor", preemption={"after": "12s"})
    saves = stage.gang("saves", 2, cpu="2", queue="rich", gated=True)
    stage.wait_phase(saves)
    loses = stage.gang("loses", 2, cpu="2", queue="rich", gated=True)
    stage.wait_phase(loses)
    record = {"metadata": {"annotations": {CHECKPOINT: "1s"}}}
    stage.api.patch(POD_GROUPS, "saves", record, stage.namespace)
    stage.wait_phase(stage.gang("poor", 2, cpu="2", queue="poor", gated=True))
    assert (stage.phases(saves), stage.phases(loses)) == ({"Gone"}, {"Running"})


def test_an_eviction_waits_for_its_price_and_comes_at_the_latest(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="2")
    stage.queue("rich")
    stage.queue("poor", preemption={"after": "12s", "atMost": "25s", "patience": "0"})
    rich = stage.gang("rich", 2, cpu="2", queue="rich", gated=True)
    stage.wait_phase(rich)
    poor = stage.gang("poor", 1, cpu="2", queue="poor", gated=True)
    wait_for(lambda: "more work" in why(stage, "poor"), what="it says what it waits for")
    assert stage.phases(rich) == {"Running"}
    stage.wait_phase(poor)
    pod = stage.api.get(PODS, poor[0], stage.namespace)
    started, created = pod["status"]["startTime"], pod["metadata"]["creationTimestamp"]
    waited = datetime.fromisoformat(started) - datetime.fromisoformat(created)
    assert waited.total_seconds() >= 24.0  # timestamps are of whole seconds

    def lost() -> int:
        recorded = group(stage, "rich")["metadata"].get("annotations", {}).get(LOST_WORK, "0")
        return int(recorded.partition("/")[0])

    wait_for(lambda: lost() >= 12, what="its group remembers what it lost")
