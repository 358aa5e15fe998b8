"""Dumps of a real control plane: the decisions elsewhere equal Muster's."""

import gzip
import json
import os
import subprocess
from pathlib import Path

from tests.e2e.harness import objects
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage

SECRET = "correct-horse-battery-staple"


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    words, environment = [str(PROGRAM), *map(str, arguments)], {**os.environ, "PYTHONHASHSEED": "7"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_dump_is_replayed(stage: Stage, muster: Muster, scheduler: KubeScheduler, tmp_path: Path) -> None:
    """One group runs, one lacks capacity, one is too large, and one pod has a secret in its environment."""
    stage.nodes(2, cpu="4")
    stage.queue("q", weight=3)
    runs = stage.gang("runs", 2, cpu="3", queue="q", gated=True)
    stage.wait_phase(runs)
    stage.gang("waits", 2, cpu="3", queue="q", gated=True)
    stage.gang("huge", 1, cpu="9", queue="q", gated=True)
    stage.wait_reason("waits", "NoRoom")
    stage.wait_reason("huge", "NeverFits")
    stage.group("secret", 1, queue="q")
    pod = objects.pod("secret", namespace=stage.namespace, group="secret", cpu="3", gated=True)
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
    stage.api.create_many(PODS, [pod])
    stage.wait_reason("secret", "NoRoom")

    file = tmp_path / "state.json.gz"
    address = f"127.0.0.1:{muster.ports['debug']}"
    assert (commands := command("dump", file, "--debug-address", address)).returncode == 0, commands.stderr
    raw = gzip.decompress(file.read_bytes())
    assert b"runs-0" in raw
    assert SECRET.encode() not in raw

    shown = command("replay", file, "-o", "json")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    found = json.loads(shown.stdout)
    assert (found["same"], found["differences"]) == (True, [])
    assert found["groups"] >= 4

    simulated = command("simulate", "--from-dump", file, "--run-seconds", "60", "-o", "json")
    assert simulated.returncode == 3, simulated.stderr  # one group is too large
    (huge,) = json.loads(simulated.stdout)["neverStarted"]
    assert huge["group"] == f"{stage.namespace}/huge"

    hidden = tmp_path / "hidden.json"
    commands = command("dump", hidden, "--debug-address", address, "--anonymous")
    assert commands.returncode == 0, commands.stderr
    assert b"runs" not in hidden.read_bytes()
    assert command("replay", hidden).returncode == 0
