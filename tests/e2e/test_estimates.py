"""Expected starts on a real control plane, by the status and `muster why`.

They come true, and groups with an unknown end are named.
"""

import time
from datetime import datetime
from typing import Any

from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

MILD = {"withinQueue": "Never", "unmanaged": "Never"}
RUNS = 60.0  # seconds


def estimated(stage: Stage, group: str) -> dict[str, Any]:
    """Return the estimate in the group's status, as soon as there is one."""
    found = wait_for(
        lambda: (stage.pod_group(group).get("status", {}).get("waiting") or {}).get("estimate"),
        what=f"an estimate of {group}",
    )
    assert found is not None
    return dict(found)


def test_a_group_starts_when_it_is_expected_to(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """`early` says how long it runs; `next`, which waits for it, does not."""
    stage.nodes(1, cpu="4")
    stage.queue("q", preemption=MILD)
    declared = {"kube-muster.io/run-time": f"{RUNS:.0f}s"}
    stage.group("early", 1, queue="q", annotations=declared)
    early = stage.pods("early", 1, group="early", cpu="3", gated=True)
    stage.wait_phase(early)
    ends = time.time() + RUNS
    behind = stage.gang("next", 1, cpu="3", queue="q", gated=True)
    stage.wait_reason("next", "NoRoom")

    reported = estimated(stage, "next")
    assert reported["method"] == "Declared"
    p50, p90 = (datetime.fromisoformat(reported[name]).timestamp() for name in ("atP50", "atP90"))
    assert ends - 15 < p50 <= p90 < ends + 30
    shell = Shell(stage.cluster, ADMIN, stage.namespace)
    assert shell.json("why", "podgroup/next")["estimate"] == reported
    page = muster.debug(f"/debug/why/{stage.namespace}/next")
    assert page["estimate"] == reported

    last = stage.gang("last", 1, cpu="3", queue="q", gated=True)

    def unknown() -> bool:
        """Return whether the reason is the group without an end."""
        return str(estimated(stage, "last").get("unknownBecause")).startswith(f"{stage.namespace}/next ")

    wait_for(unknown, what="the group without an end")  # the first estimate may precede the pods of the gang
    assert "unknownBecause" in shell.json("why", "podgroup/last")["estimate"]

    time.sleep(max(ends - time.time(), 0.0))
    stage.finish(early)
    stage.wait_phase(behind)
    assert time.time() <= p90 + 30  # since it is looked at after it has started
    assert muster.metric("muster_estimate_error_count") == 1.0
    assert stage.bound(last) == {}
    assert not stage.pod_group("next").get("status", {}).get("waiting")
