"""Random workloads with devices: Muster places each that the stock scheduler places, and no other."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.e2e.harness.devices import Devices
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS, RESOURCE_CLAIMS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
STOCK = "default-scheduler"
KINDS = ("template", "two templates", "claim", "shared claim", "explicit", "implicit", "both", "selected")
QUIET = (
    3.0  # seconds without a change: the scheduler refuses pods for a short time while it allocates for others
)


@pytest.fixture
def devices(stage: Stage) -> Iterator[Devices]:
    """Yield devices behind an extended resource, which a device plugin offers on another node."""
    extended = f"{stage.namespace}.example.com/gpu"
    made = Devices(stage, extended)
    nodes = stage.nodes(2, cpu="16")
    made.on(nodes[0], 4)
    made.on(nodes[1], 2)
    stage.nodes(1, prefix="plugin", cpu="16", **{extended: "3"})
    yield made
    made.end()


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 50), marks=pytest.mark.nightly)])
def test_muster_places_what_the_stock_scheduler_places(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, devices: Devices, seeds: range
) -> None:
    stage.start_controller_manager()
    stage.start_scheduler()
    for seed in seeds:
        chosen = random.Random(seed)
        kind, number = chosen.choice(KINDS), chosen.randint(1, 3)
        amounts = [chosen.randint(1, 3) for _ in range(2)]
        shared = [_spec(devices, "claim", f"{seed}", amounts)] * number if kind == "shared claim" else []
        specs = shared or [_spec(devices, kind, f"{seed}-{n}", amounts) for n in range(number)]
        with _made(stage, f"stock-{seed}", specs, STOCK) as pods:
            wait_for(partial(_are_tried, stage, pods), what="the stock scheduler has tried each pod")
            expected = _settled(stage, pods)
        with _made(stage, f"muster-{seed}", specs, "muster") as pods:
            what = f"seed {seed}: {len(pods)} pods, {kind}, {amounts}"
            wait_for(partial(_are_bound, stage, pods, expected), what=what)
            assert _settled(stage, pods) == expected, what


def _spec(devices: Devices, kind: str, name: str, amounts: list[int]) -> Json:
    """Return the fields of a pod that requests devices."""
    one, other = amounts
    implicit = f"deviceclass.resource.kubernetes.io/{devices.name}"
    match kind:
        case "template":
            return devices.template(name, one)
        case "two templates":
            both = [devices.template(f"{name}-{which}", n) for which, n in enumerate(amounts)]
            claims = [{**each["resourceClaims"][0], "name": f"gpu-{n}"} for n, each in enumerate(both)]
            return {"resourceClaims": claims}
        case "selected":
            return devices.template(name, one, first=other)
        case "claim":
            return devices.claimed(name, one)
        case "explicit":
            return {"limits": {devices.extended: str(one)}}
        case "implicit":
            return {"limits": {implicit: str(one)}}
    return {**devices.template(name, one), "limits": {devices.extended: str(other)}}


def _are_tried(stage: Stage, pods: list[str]) -> bool:
    """Return whether each pod has a node, or a condition that says why it has none."""
    known = [each for each in stage.api.items(PODS, stage.namespace) if each["metadata"]["name"] in pods]
    return all(each["spec"].get("nodeName") or each["status"].get("conditions") for each in known)


def _are_bound(stage: Stage, pods: list[str], number: int) -> bool:
    return len(stage.bound(pods)) >= number


@contextmanager
def _made(stage: Stage, name: str, specs: list[Json], scheduler: str) -> Iterator[list[str]]:
    made = (stage.pods(name, 1, first=n, scheduler=scheduler, **spec) for n, spec in enumerate(specs))
    pods = [pod for (pod,) in made]
    yield pods
    stage.delete_pods(pods)
    wait_for(lambda: not _left(stage), what="no pod and no allocation is left")


def _settled(stage: Stage, pods: list[str]) -> int:
    """Return how many pods have a node, once nothing changes any more."""
    placed, since = -1, time.monotonic()
    while placed < len(pods) and time.monotonic() < since + QUIET:
        time.sleep(0.1)
        if (now := len(stage.bound(pods))) != placed:
            placed, since = now, time.monotonic()
    return placed


def _left(stage: Stage) -> list[str]:
    """Return the pods and allocated claims that are left."""
    claims = stage.api.items(RESOURCE_CLAIMS, stage.namespace)
    held = [each["metadata"]["name"] for each in claims if each.get("status", {}).get("allocation")]
    return held + [each["metadata"]["name"] for each in stage.api.items(PODS, stage.namespace)]
