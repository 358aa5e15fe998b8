"""What a workload comes to is the same in `muster run` and `muster simulate`: each kind, by what it says."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from extender.api.workloads.children import kind_of
from extender.api.workloads.pod_sets import annotation_paths
from extender.sim.embedded import Embedded
from extender.sim.files.manifests import load
from extender.sim.session import Session
from extender.sim.show.frames import View
from extender.sim.virtual.runner import SimulationOptions, simulate

Json = dict[str, Any]
HERE = Path(__file__).parent
KINDS = (
    *("cronjob", "deployment", "indexed-job", "job", "jobset", "leaderworkerset", "mpijob-v1"),
    *("pytorchjob", "raycluster", "rayjob", "replicaset", "statefulset", "tfjob"),
)
ROOM = ("64", "256Gi")
NODES = 40
QUEUES = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: shut}
spec: {state: Closed}
"""
LOCAL = (
    "apiVersion: kube-muster.io/v1alpha1\nkind: LocalQueue\nmetadata: {name: team}\nspec: {queue: research}\n"
)
STARTED, NOT_ASKED = "Started", "NotAsked"


class Example(NamedTuple):
    name: str
    namespace: str
    objects: list[Json]
    outcome: str


def examples() -> Iterator[Example]:
    variants = yaml.safe_load((HERE / "examples_by_field.yaml").read_text())
    for path in (HERE / "workloads" / f"{kind}.yaml" for kind in KINDS):
        for number, variant in enumerate(variants):
            (base,) = yaml.safe_load_all(path.read_text())
            row = kind_of(base)
            assert row is not None
            if variant.get("suspended") and not row.manageable:
                continue
            namespace = f"{path.stem}-{number}"
            local = {**yaml.safe_load(LOCAL), "metadata": {"name": "team", "namespace": namespace}}
            objects = [local, _varied(base, variant, namespace)]
            yield Example(f"{path.stem} {variant['what']}", namespace, objects, variant["outcome"])


def _varied(base: Json, variant: Json, namespace: str) -> Json:
    obj = deepcopy(base)
    row = kind_of(obj)
    assert row is not None
    meta = obj["metadata"]
    meta["namespace"] = namespace
    for field in ("labels", "annotations"):
        meta[field] = {**(meta.get(field) or {}), **variant.get(field, {})}
    if variant.get("suspended"):
        _at(obj, row.suspend[:-1])[row.suspend[-1]] = True
    for path in annotation_paths(row, obj):
        spec = _at(obj, (*path[:-2], "spec"))
        spec.pop("schedulerName", None)
        if "scheduler" in variant:
            spec["schedulerName"] = variant["scheduler"]
        for container in spec.get("containers") or ():
            container["resources"] = {"requests": {"cpu": variant.get("cpu", "100m")}}
    return obj


def _at(obj: Any, path: Any) -> Any:
    for name in path:
        obj = obj[int(name)] if isinstance(obj, list) else obj.setdefault(name, {})
    return obj


EXAMPLES = list(examples())


def written(folder: Path, found: list[Example]) -> Path:
    path = folder / "examples.yaml"
    objects = [obj for example in found for obj in example.objects]
    path.write_text(f"{QUEUES}---\n{yaml.safe_dump_all(objects)}")
    return path


def test_there_are_many() -> None:
    assert len(EXAMPLES) >= 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """All at once, each in its namespace: there is room for them all."""
    found: dict[str, set[str]] = {example.namespace: set() for example in EXAMPLES}
    manifests = load([written(tmp_path_factory.mktemp("run"), EXAMPLES)], create_namespaces=True)
    with Embedded(speed=1.0, seed=0) as cluster:
        cluster.make_nodes(NODES, *ROOM)
        session = Session(cluster, View(), stays=False)
        session.create(manifests.objects)
        state = session.run([])
    for left in session.unasked:
        found[left.object["metadata"]["namespace"]].add(NOT_ASKED)
    for gang in state.gangs:
        found[gang.summary.namespace].add(gang.summary.reason or STARTED)
    for pod in state.loose:
        if not found[pod.namespace]:
            found[pod.namespace].add(pod.why.reason or STARTED)
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_comes_to_the_same_in_run_and_in_simulate(
    tmp_path: Path, run: dict[str, set[str]], example: Example
) -> None:
    files = (written(tmp_path, [example]),)
    result = simulate(SimulationOptions(files, True, nodes=NODES, node_cpu=ROOM[0], node_memory=ROOM[1]))
    report, notes = result.report, result.notes
    simulated = {never.reason for never in report.never_started}
    if any("Muster is not asked" in note for note in notes):
        simulated.add(NOT_ASKED)
    if report.started:
        simulated.add(STARTED)
    assert simulated == {example.outcome}
    assert run[example.namespace] == {example.outcome}
