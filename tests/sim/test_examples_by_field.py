"""What a workload comes to is the same in `muster run` and `muster simulate`: each kind, by what it says."""

import fcntl
import json
from pathlib import Path

import pytest
import yaml

from extender.sim import embedded
from extender.sim.embedded import Embedded, Session
from extender.sim.files.manifests import load
from extender.sim.show.frames import View
from extender.sim.virtual.report import FAILED_CREATE
from extender.sim.virtual.runner import SimulationOptions, simulate
from tests.sim.examples_by_field import NOT_ASKED, QUEUES, STARTED, Example, examples

pytestmark = pytest.mark.timeout(300)  # the first one waits for the run of them all
ROOM = ("64", "256Gi")
NODES = 40
EXAMPLES = list(examples(quotas=True))


def written(folder: Path, found: list[Example]) -> Path:
    path = folder / "examples.yaml"
    objects = [obj for example in found for obj in example.objects]
    path.write_text(f"{QUEUES}---\n{yaml.dump_all(objects, Dumper=yaml.CSafeDumper)}")
    return path


def test_there_are_many() -> None:
    assert len(EXAMPLES) >= 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, set[str]]:
    """It takes half a minute: the first worker that needs it does it for all workers of the session."""
    if worker_id == "master":
        return outcomes(tmp_path_factory.mktemp("run"))
    shared = tmp_path_factory.getbasetemp().parent / "examples.json"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            found = outcomes(tmp_path_factory.mktemp("run"))
            shared.write_text(json.dumps({namespace: sorted(each) for namespace, each in found.items()}))
    return {namespace: set(each) for namespace, each in json.loads(shared.read_text()).items()}


def outcomes(folder: Path) -> dict[str, set[str]]:
    """Of all at once in `muster run`, each in its namespace: there is room for them all."""
    found: dict[str, set[str]] = {example.namespace: set() for example in EXAMPLES}
    manifests = load([written(folder, EXAMPLES)], create_namespaces=True)
    with Embedded(speed=1.0, seed=0) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "_PACE", 1.0)  # each look at so many takes a tenth of a second
        cluster.make_nodes(NODES, *ROOM)
        session = Session(cluster, View(), stays=False)
        session.create(manifests.objects)
        state = session.run([])
        for obj, _ in session.refused():
            found[obj["metadata"]["namespace"]].add(FAILED_CREATE)
    for left in session.unasked:
        found[left.object["metadata"]["namespace"]].add(NOT_ASKED)
    for gang in state.gangs:
        found[gang.group.namespace].add(gang.group.reason or STARTED)
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
