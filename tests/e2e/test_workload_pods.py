"""Pods of workloads in `muster run`, compared to the controllers of Kubernetes."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.files.creation import Creation
from extender.files.manifests import load
from tests.e2e.harness.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.sim.test_workloads import FOLDER

pytestmark = pytest.mark.nightly

Json = dict[str, Any]
FILES: dict[str, Resource] = {
    "job": JOBS,
    "indexed-job": JOBS,
    "deployment": DEPLOYMENTS,
    "replicaset": REPLICA_SETS,
    "statefulset": STATEFUL_SETS,
}
_CHANCE = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[a-z0-9]{5}$|[a-z0-9]{8,10}(?=-[a-z0-9]{5}$|$)"
)


def written(name: str, namespace: str) -> Json:
    """Return the object; pods of a StatefulSet come at once here, and there only if it says so."""
    found: Json = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    found["metadata"]["namespace"] = namespace
    if found["kind"] == "StatefulSet":
        found["spec"]["podManagementPolicy"] = "Parallel"
    return found


def here(name: str) -> list[Json]:
    creation = Creation(Service(Store(), random.Random(0)))
    creation.create(load([FOLDER / f"{name}.yaml"]).objects)
    return [obj for obj, _ in creation.objects if obj["kind"] == "Pod"]


def without_random_parts(pods: Sequence[Json]) -> list[Json]:
    """Return the pods without random parts: UIDs, hashes and random letters."""
    return sorted((_seen(pod["metadata"]) for pod in pods), key=str)


def _seen(meta: Json) -> Json:
    (owner,) = meta["ownerReferences"]
    return {
        "name": _CHANCE.sub("*", meta["name"]),
        "generateName": _CHANCE.sub("*", meta.get("generateName", "").rstrip("-")),
        "labels": {key: _CHANCE.sub("*", text) for key, text in (meta.get("labels") or {}).items()},
        "annotations": set(meta.get("annotations") or {}),
        "owner": {key: _CHANCE.sub("*", str(value)) for key, value in owner.items()},
    }


@pytest.mark.parametrize("name", FILES)
def test_pods_are_as_the_controllers_make_them(stage: Stage, name: str) -> None:
    stage.start_controller_manager()
    stage.api.create(FILES[name], written(name, stage.namespace))
    made = here(name)

    def all_there() -> bool:
        return len(stage.api.items(PODS, stage.namespace)) == len(made)

    wait_for(all_there, what=f"the pods of {name}")
    assert without_random_parts(made) == without_random_parts(stage.api.items(PODS, stage.namespace))
