"""The same objects have the same outcome in `muster run -o json` and on a real control plane.

Which node a pod is on is left to chance on both; whether it is bound is not.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from extender.sim.show.cluster_state import ShownObjects, observe
from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.resources import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Resource
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.nightly

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
NEVER_STARTED = 3  # the exit status of `muster run`


class Placed(NamedTuple):
    """An object, and where a real API server keeps it."""

    resource: Resource
    object: Json


def things(namespace: str) -> Iterator[Placed]:
    """Create two nodes, gangs that run, and gangs that wait for capacity, a queue, members and a device.

    Another scheduler has a pod that runs, and one that fits nowhere.
    """
    yield from (Placed(NODES, objects.node(f"n{number}", cpu="4")) for number in range(2))
    yield Placed(QUEUES, objects.queue("research"))
    yield from gang(namespace, "a", 2, cpu="2", queue="research")
    yield from gang(namespace, "b", 3, cpu="2", queue="research")
    yield from gang(namespace, "elsewhere", 1, queue="reserch")
    yield from gang(namespace, "gpu", 1, **{GPU: "1"})
    yield Placed(POD_GROUPS, objects.pod_group("train", namespace=namespace, min_member=2))
    yield from (Placed(PODS, member(namespace, f"train-{number}", "trian")) for number in range(2))
    for name, cpu in (("small", "1"), ("large", "30")):
        plain = objects.pod(name, namespace=namespace, cpu=cpu, scheduler="default-scheduler")
        yield Placed(PODS, plain)


def gang(
    namespace: str, name: str, size: int, queue: str = "default", cpu: str = "1", **more: str
) -> Iterator[Placed]:
    group = objects.pod_group(name, namespace=namespace, min_member=size, queue=queue)
    yield Placed(POD_GROUPS, group)
    for number in range(size):
        yield Placed(PODS, member(namespace, f"{name}-{number}", name, cpu, **more))


def member(namespace: str, name: str, group: str, cpu: str = "1", **more: str) -> Json:
    new_pod = objects.pod(name, namespace=namespace, group=group, cpu=cpu)
    new_pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, **more}, "limits": more}
    return new_pod


def outcome(report: Json) -> Json:
    """Return groups and pods, without their namespace; of nodes, whether there is one."""
    groups = [{**group, "namespace": ""} for group in report["podGroups"]]
    pods = [{**pod, "namespace": "", "node": bool(pod["node"])} for pod in report["pods"]]
    return {"podGroups": _by_name(groups), "pods": _by_name(pods)}


def _by_name(found: list[Json]) -> list[Json]:
    return sorted(found, key=lambda each: str(each["name"]))


def embedded(folder: Path) -> Json:
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all([placed.object for placed in things("default")]))
    command = [str(PROGRAM), "run", "-f", str(file), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == NEVER_STARTED, done.stderr
    return outcome(json.loads(done.stdout))


def real(stage: Stage, muster: Muster) -> Json:
    shown = ShownObjects(
        queues=stage.api.items(QUEUES),
        groups=stage.api.items(POD_GROUPS, stage.namespace),
        pods=stage.api.items(PODS, stage.namespace),
        nodes=stage.api.items(NODES),
        namespaces=stage.api.items(NAMESPACES),
    )
    report = observe(shown, lambda page: muster.debug(f"/debug/{page}")).report
    return outcome(msgspec.to_builtins(report))


@pytest.fixture
def muster(stage: Stage, muster_user: User) -> Iterator[Muster]:
    """Start the sidecar pair with gates as the policy puts them, and a stock scheduler alone.

    They start once all objects are there, as in `muster run`.
    """
    with stage.policy("gates/admission-policy.yaml"):
        for resource, body in things(stage.namespace):
            stage.api.create(resource, body)
        started = stage.start_muster(user=muster_user)
        stage.start_sidecar(started)
        stage.start_scheduler()
        yield started


def test_the_outcome_is_the_same_on_a_real_control_plane(
    stage: Stage, muster: Muster, tmp_path: Path
) -> None:
    ours = embedded(tmp_path)
    reasons = {group["name"]: group["reason"] for group in ours["podGroups"]}
    assert reasons == {
        "a": "",
        "b": "NoRoom",
        "elsewhere": "QueueNotFound",
        "gpu": "NeverFits",
        "train": "NotEnoughMembers",
    }
    wait_for(lambda: real(stage, muster) == ours, what=f"the outcome {ours}")
    assert real(stage, muster) == ours
