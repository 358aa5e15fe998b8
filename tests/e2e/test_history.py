"""History of a real control plane's groups, with Muster killed at any time."""

import json
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.test_reclaim import alive

GPU = "nvidia.com/gpu"
TRUNCATED_SECONDS = 1.0  # second: times of the API are whole ones
CHECK_SECONDS = 10.0  # seconds from one look at what an eviction costs to the next


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def muster_flags(file: Path) -> tuple[str, ...]:
    return ("--history", str(file))


def reported(*source: object) -> dict[str, dict[str, Any]]:
    words = [str(PROGRAM), "report", "--since", "1h", "-o", "json", *map(str, source)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    return {row["name"]: row for row in json.loads(found.stdout)["rows"]}


def test_a_report_has_the_right_numbers_although_muster_is_killed(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, file: Path
) -> None:
    """Report two gangs, a reclaim, and the end of the claimant; Muster is killed after each.

    Reported numbers lie between timestamps of known order, however busy the machine is.
    """
    debug = ("--debug-address", f"127.0.0.1:{muster.ports['debug']}")
    stage.nodes(4, cpu="2", **{GPU: "2"})
    for name in ("rich", "poor"):
        stage.queue(name)
    share: dict[str, Any] = {"cpu": "2", "limits": {GPU: "2"}, "gated": True}
    begun = time.monotonic()
    gangs = [stage.gang(f"rich{number}", 2, queue="rich", **share) for number in range(2)]
    wait_for(lambda: "rich" in (said := reported(*debug)) and said["rich"]["starts"] == 2, what="both start")
    all_run = time.monotonic()
    wait_for(lambda: seconds(reported(*debug)["rich"]) > 8 * 1.5 * CHECK_SECONDS, what="it adds up")
    muster.restart(hard=True)

    asked = time.monotonic()
    poor = stage.gang("poor", 2, queue="poor", **share)
    stage.wait_phase(poor)
    assert sorted(alive(stage, gangs)) == [0, 2]
    wait_for(lambda: reported(*debug)["rich"]["evictions"] == 2, what="evictions reported")
    wait_for(lambda: reported(*debug)["poor"]["starts"] == 1, what="the third start reported")
    taken = time.monotonic()
    muster.restart(hard=True)

    wait_for(lambda: seconds(reported(*debug)["poor"]) > 20, what="it adds up")
    finished = time.monotonic()
    stage.finish(poor)
    wait_for(lambda: seconds(reported(*debug)["poor"]) == seconds(reported(*debug)["poor"]), what="its end")
    ended, until_ended = time.monotonic(), seconds(reported(*debug)["poor"])
    muster.restart(hard=True)

    def runs_on(source: tuple[object, ...]) -> bool:
        return seconds(reported(*source)["rich"]) > 4 * (asked - all_run) + 4 * (ended - all_run)

    for source in (debug, ("--history", file)):
        wait_for(partial(runs_on, source), what="it runs on")
        found, now = reported(*source), time.monotonic()
        rich, of_poor = found["rich"], found["poor"]
        assert (rich["starts"], rich["evictions"], rich["waiting"]) == (2, 2, 0)
        assert (of_poor["starts"], of_poor["evictions"], of_poor["waiting"]) == (1, 0, 0)
        assert seconds(rich) < 4 * (taken - begun) + 4 * (now - begun)
        assert seconds(of_poor) == until_ended
        lost = 3600 * rich["lostGpuHours"]
        assert 4 * (asked - all_run - CHECK_SECONDS) < lost < 4 * (taken - begun + TRUNCATED_SECONDS)
    assert 4 * (finished - taken) < until_ended < 4 * (ended - asked)


def seconds(row: dict[str, Any]) -> float:
    gpu_hours: float = row["gpuHours"]
    return 3600 * gpu_hours
