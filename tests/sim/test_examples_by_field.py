"""Outcomes of workloads in `muster run` and `muster simulate`: the same for each kind, by its fields."""

from pathlib import Path

import pytest
import yaml

from extender.files.manifests import load
from extender.sim import embedded
from extender.sim.embedded import Embedded, Session
from extender.sim.show.frames import View
from extender.sim.virtual.report import FAILED_CREATE
from extender.sim.virtual.runner import SimulationOptions, simulate, workload
from tests.sim.examples_by_field import NOT_ASKED, QUEUES, STARTED, Example, examples

CAPACITY = ("64", "256Gi")
NODES = 40
EXAMPLES = list(examples(quotas=True))


def written(folder: Path, found: list[Example]) -> Path:
    path = folder / "examples.yaml"
    objects = [obj for example in found for obj in example.objects]
    path.write_text(f"{QUEUES}---\n{yaml.dump_all(objects, Dumper=yaml.CSafeDumper)}")
    return path


def test_the_table_has_many_examples() -> None:
    assert len(EXAMPLES) >= 120


def test_each_has_its_outcome_in_run(tmp_path: Path) -> None:
    """Run all at once, each in its namespace, on nodes with capacity for all.

    It takes half a minute, for Muster writes their reasons at its pace.
    """
    found: dict[str, set[str]] = {example.namespace: set() for example in EXAMPLES}
    manifests = load([written(tmp_path, EXAMPLES)], create_namespaces=True)
    with Embedded(speed=1.0, seed=0) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "_PERIOD", 1.0)  # each look at so many takes a tenth of a second
        cluster.make_nodes(NODES, *CAPACITY)
        session = Session(cluster, View(), stays_open=False)
        session.create(manifests.objects)
        state = session.run([])
        for obj, _ in session.refusals():
            found[obj["metadata"]["namespace"]].add(FAILED_CREATE)
    for left in session.unmanaged_objects:
        found[left.object["metadata"]["namespace"]].add(NOT_ASKED)
    for gang in state.gangs:
        found[gang.group.namespace].add(gang.group.reason or STARTED)
    for pod in state.single_pods:
        if not found[pod.namespace]:
            found[pod.namespace].add(pod.wait_reason.reason or STARTED)
    assert found == {example.namespace: {example.outcome} for example in EXAMPLES}


def test_each_has_its_outcome_in_simulate(tmp_path: Path) -> None:
    files, (cpu, memory) = (written(tmp_path, EXAMPLES),), CAPACITY
    options = SimulationOptions(files, True, nodes=NODES, node_cpu=cpu, node_memory=memory)
    result = simulate(options)
    found: dict[str, set[str]] = {example.namespace: set() for example in EXAMPLES}
    for never in result.report.never_started:
        found[never.group.partition("/")[0]].add(never.reason)
    for group in result.measurements.timelines.values():
        if group.started_at is not None:
            found[group.key.partition("/")[0]].add(STARTED)
    for left in workload(options).unmanaged_objects:
        found[left.object["metadata"]["namespace"]].add(NOT_ASKED)
    remarks = sum("Muster is not asked" in record for record in result.notes)
    assert remarks == sum(example.outcome == NOT_ASKED for example in EXAMPLES)
    assert found == {example.namespace: {example.outcome} for example in EXAMPLES}
