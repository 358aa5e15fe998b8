"""What `-f` reads, and how it names what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import models

from extender.api.workloads.core import CORE
from extender.api.workloads.shape import WorkloadRow
from extender.sim.apiserver.kinds import EVENTS, LEASES, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES
from extender.sim.files import fields
from extender.sim.files.manifests import InvalidManifests, load
from extender.sim.files.workload_fields import form_of

ROOT = Path(__file__).parents[2]
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: main, image: x}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.yaml"


def rejections(file: Path, text: str) -> list[str]:
    """What is said of a file with that text, without its path."""
    file.write_text(text)
    with pytest.raises(InvalidManifests) as refusal:
        load([file])
    return [line.removeprefix(f"{file}:") for line in str(refusal.value).splitlines()]


def test_the_examples_are_sound() -> None:
    assert {found.kind for found in load([ROOT / "examples"]).objects} >= {QUEUES, POD_GROUPS, PODS}


def test_several_documents_lists_and_empty_ones(file: Path) -> None:
    item = "  - {apiVersion: v1, kind: Node, metadata: {name: n}}\n"
    file.write_text(
        f"---\n{POD}---\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n{item}---\n{QUEUE}"
    )
    found = [(each.kind, each.where.rpartition(":")[2]) for each in load([file]).objects]
    assert found == [(NODES, "14"), (QUEUES, "16"), (PODS, "2")]


def test_a_folder_is_its_files_of_objects(tmp_path: Path) -> None:
    for name, text in {
        "b.yml": QUEUE,
        "a.yaml": POD,
        "c.json": '{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}',
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "notes.md").write_text("# no objects\n")
    assert [found.kind for found in load([tmp_path]).objects] == [NODES, QUEUES, PODS]


def test_times_stay_texts_and_anchors_work(file: Path) -> None:
    meta = "\n  name: q\n  labels: &l {at: 2026-01-01}\n  annotations:\n    <<: *l\n    more: x"
    file.write_text(QUEUE.replace("{name: q}", meta))
    (found,) = load([file]).objects
    assert found.object["metadata"]["annotations"] == {"at": "2026-01-01", "more": "x"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (QUEUE + "spec:\n  wieght: 2\n", "5: spec.wieght: unknown field; allowed are affinity, "),
        (QUEUE + "spec: {weight: two}\n", "4: spec.weight: got 'two'; allowed is a whole number"),
        (QUEUE + "spec: {state: Shut}\n", "4: spec.state: got 'Shut'; allowed is Open or Closed"),
        (QUEUE + "spec: [1]\n", "4: spec: got [1]; allowed is an object"),
        (
            QUEUE + "spec:\n  capability: {cpu: 2x}\n",
            "5: spec.capability: got {'cpu': '2x'}; allowed is q",
        ),
        (POD + "  tolerations: {}\n", "6: spec.tolerations: got {}; allowed is a list"),
        (
            POD + "  affinity:\n    podAfinity: {}\n",
            "7: spec.affinity.podAfinity: unknown field; allowed are",
        ),
        (POD.replace("image", "img"), "5: spec.containers[0].img: unknown field; allowed are args, "),
        (
            POD.replace("{name: p}", "{name: p, labels: {a: 1}}"),
            "3: metadata.labels: got {'a': 1}; allowed is",
        ),
        (POD.replace("name: p", "labels: {}"), "1: metadata.name: missing"),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n",
            "1: spec: missing; the pods are made of it",
        ),
        ("kind: Pod\n", "1: apiVersion: missing; every object has"),
        ("- a\n", "1: a document must be an object"),
        ("a: b\nc: [\n", "3: not YAML: "),
        ("a: b\nc: !odd x\n", "2: not YAML: "),
    ],
)
def test_a_fault_is_told_with_its_line_and_what_is_allowed(file: Path, text: str, fault: str) -> None:
    (told,) = rejections(file, text)
    assert told.startswith(fault)


def test_all_faults_are_told_at_once(file: Path) -> None:
    told = rejections(file, QUEUE + "spec: {a: 1}\n---\n" + QUEUE + "spec: {b: 1, weight: x}\n")
    assert [line.partition(":")[0] for line in told] == ["4", "9", "9"]


def test_a_file_that_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    none = tmp_path / "none.yaml"
    for path, words in ((none, "cannot be read"), (tmp_path, "no files in there that end in .yaml")):
        with pytest.raises(InvalidManifests, match=words):
            load([path])


# ---- the names of fields do not drift


@pytest.mark.parametrize(
    ("form", "model"),
    [
        (fields.METADATA, "V1ObjectMeta"),
        (fields.POD_SPEC, "V1PodSpec"),
        (fields.CONTAINER, "V1Container"),
        (fields.RESOURCES, "V1ResourceRequirements"),
        (fields.PORT, "V1ContainerPort"),
        (fields.AFFINITY, "V1Affinity"),
        (fields.NODE_AFFINITY, "V1NodeAffinity"),
        (fields.POD_AFFINITY, "V1PodAffinity"),
        (fields.POD_TERM, "V1PodAffinityTerm"),
        (fields.SELECTOR, "V1LabelSelector"),
        (fields.TOLERATION, "V1Toleration"),
        (fields.NODE_SPEC, "V1NodeSpec"),
        (fields.NODE_STATUS, "V1NodeStatus"),
        (fields.FIELDS[PRIORITY_CLASSES], "V1PriorityClass"),
        (fields.FIELDS[LEASES], "V1Lease"),
        (fields.FIELDS[EVENTS], "CoreV1Event"),
    ],
)
def test_fields_are_those_of_kubernetes(form: dict[str, Any], model: str) -> None:
    assert set(form) == set(getattr(models, model).attribute_map.values())


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.kind)
def test_fields_of_workloads_are_those_of_kubernetes(kind: WorkloadRow) -> None:
    model = getattr(models, f"V1{kind.kind}Spec")
    assert set(form_of(kind.key)["spec"].form) == set(model.attribute_map.values())


@pytest.mark.parametrize(
    ("form", "file"), [(fields.QUEUE_SPEC, "queues.yaml"), (fields.POD_GROUP_SPEC, "podgroups.yaml")]
)
def test_fields_are_those_of_the_crds(form: dict[str, Any], file: str) -> None:
    crd = yaml.safe_load((ROOT / "manifests" / "crds" / file).read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(form) == set(schema["properties"]["spec"]["properties"])
