"""Why a group waits, on a real control plane: condition, event, `muster why` and debug pages say the same."""

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

MILD = {"withinQueue": "Never", "unmanaged": "Never"}
EXPECTED_CHANGE = "it starts once {}/early (1 pod) ends"


def events(stage: Stage, group: str) -> list[str]:
    return [
        each["message"]
        for each in stage.api.items(EVENTS, stage.namespace)
        if each["involvedObject"]["name"] == group and each["reason"] == "NoRoom"
    ]


def two_that_wait(stage: Stage) -> tuple[list[str], list[str]]:
    """Create `early`, which holds 3 of 4 cpus, and `first` and `second`, which need 3 each."""
    stage.nodes(1, cpu="4")
    stage.queue("q", preemption=MILD)
    early = stage.gang("early", 1, cpu="3", queue="q", gated=True)
    stage.wait_phase(early)
    first = stage.gang("first", 1, cpu="3", queue="q", gated=True)
    stage.wait_reason("first", "NoRoom")
    stage.gang("second", 1, cpu="3", queue="q", gated=True)
    stage.wait_reason("second", "NoRoom")
    return early, first


def test_status_command_and_dashboard_give_one_explanation(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    early, first = two_that_wait(stage)
    change = EXPECTED_CHANGE.format(stage.namespace)

    page = muster.debug(f"/debug/why/{stage.namespace}/first")
    assert (page["position"], page["waiting"]) == (1, 2)
    assert [(each["name"], each["queue"], each["amounts"]["cpu"]) for each in page["holders"]] == [
        (f"{stage.namespace}/early", "q", 3000)
    ]
    assert f"it starts {page['change']['text']}" == change
    shown = f"{page['message']}; {change}"
    assert "; position 1 " in page["message"]
    wait_for(lambda: stage.message("first") == shown, what=f"the condition says {shown!r}")
    wait_for(lambda: any(shown in event for event in events(stage, "first")), what="the event says so, too")
    wait_for(
        lambda: "position 2 in queue q" in stage.message("second"), what="the second one knows its place"
    )
    assert muster.decision(stage.namespace, "second")["position"] == 2

    stage.finish(early)
    stage.wait_phase(first)
    wait_for(lambda: "position 1 in queue q" in stage.message("second"), what="the second one is next")
