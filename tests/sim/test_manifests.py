"""Input of `-f`, and the messages about faults in it."""

from pathlib import Path

import pytest

from extender.apimachinery.kinds import NODES, POD_GROUPS, PODS, QUEUES
from extender.files.manifests import InvalidManifests, load
from tests.rows import each_of

ROOT = Path(__file__).parents[2]
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
GROUP = QUEUE.replace("Queue", "PodGroup")
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
SPEC = "{spec: {containers: [{name: main, image: x}]}}"
REPLICAS = "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: r}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: main, image: x}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.yaml"


def rejections(file: Path, text: str) -> list[str]:
    """Return the messages about a file with that text, without its path."""
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


@each_of(
    (QUEUE + "spec:\n  wieght: 2\n", "5: spec.wieght: unknown field: did you mean weight?"),
    (QUEUE + "spec: {state: Shut}\n", "4: spec.state: invalid value 'Shut': must be Open or Closed"),
    (QUEUE + "spec: [1]\n", "4: spec: invalid value [1]: must be an object"),
    (
        QUEUE + "spec:\n  capability: {cpu: 2x}\n",
        "5: spec.capability: invalid value {'cpu': '2x'}: must be q",
    ),
    (POD + "  tolerations: {}\n", "6: spec.tolerations: invalid value {}: must be a list"),
    (
        POD + "  affinity:\n    podAfinity: {}\n",
        "7: spec.affinity.podAfinity: unknown field: did you mean podAffinity?",
    ),
    (POD.replace("image", "img"), "5: spec.containers[0].img: unknown field: did you mean image?"),
    (
        POD.replace("{name: p}", "{name: p, labels: {a: 1}}"),
        "3: metadata.labels: invalid value {'a': 1}: must be",
    ),
    (POD.replace("name: p", "labels: {}"), "1: metadata.name: missing"),
    (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n",
        "1: spec: missing; the pods are made of it",
    ),
    ("a: b\nc: !odd x\n", "2: not YAML: "),
    (POD + "  volumes: [{name: v, emptyDir: {medum: x}}]\n", "6: spec.volumes[0].emptyDir.medum: unkn"),
    (POD + "  volumes: [{name: v, emptyDir: {sizeLimit: 1GB}}]\n", "6: spec.volumes[0].emptyDir.size"),
    (
        POD + "  restartPolicy: never\n",
        "6: spec.restartPolicy: invalid value 'never': must be Always",
    ),
    (
        POD + "  nodeSelector: {a: 1}\n",
        "6: spec.nodeSelector: invalid value {'a': 1}: must be texts by name; ",
    ),
    (
        POD + "  overhead: {cpu: -1}\n",
        "6: spec.overhead: invalid value {'cpu': -1}: must be quantities by res",
    ),
    (
        QUEUE + "spec: {guarantee: {resource: {cpu: x}}}\n",
        "4: spec.guarantee.resource: invalid value {'cpu': 'x'}",
    ),
    (
        QUEUE + "spec: {dequeueStrategy: x}\n",
        "4: spec.dequeueStrategy: invalid value 'x': must be fifo, trav",
    ),
    (
        GROUP + "spec: {minTaskMember: {a: -1}}\n",
        "4: spec.minTaskMember: invalid value {'a': -1}: must be who",
    ),
    (NODE + "status: {capasity: {}}\n", "4: status.capasity: unknown field: did you mean capacity?"),
    (
        REPLICAS + f"spec: {{replica: 1, template: {SPEC}}}\n",
        "4: spec.replica: unknown field: did you mean replicas?",
    ),
)
def test_an_error_names_the_line_and_the_allowed_values(text: str, fault: str, *, file: Path) -> None:
    (message,) = rejections(file, text)
    assert message.startswith(fault)


def test_all_errors_are_shown_at_once(file: Path) -> None:
    faults = rejections(file, QUEUE + "spec: {a: 1}\n---\n" + QUEUE + "spec: {b: 1, weight: x}\n")
    assert [line.partition(":")[0] for line in faults] == ["4", "9", "9"]


def test_an_object_part_without_a_schema_may_have_any_fields(file: Path) -> None:
    file.write_text(GROUP + "spec: {networkTopology: {mode: hard}}\nstatus: {anything: 1}\n")
    (found,) = load([file]).objects
    assert found.object["spec"]["networkTopology"] == {"mode": "hard"}
