"""`muster migrate kueue`: what stands for Kueue's objects, and what is told of the rest."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from extender.cli import main
from extender.cli.kueue import migrated
from extender.files.manifests import load
from tests.cli.desk import Desk
from tests.rows import each_of

Json = dict[str, Any]
CASES = yaml.safe_load((Path(__file__).parent / "data" / "migrations.yaml").read_text())


def printed(folder: Path, text: str) -> Result:
    path = folder / "kueue.yaml"
    path.write_text(text)
    return CliRunner().invoke(main, ["migrate", "kueue", "-f", str(path)])


@each_of(*CASES["counterparts"])
def test_kueues_objects_have_counterparts(case: Json, *, tmp_path: Path) -> None:
    result = printed(tmp_path, yaml.safe_dump_all(case["kueue"]))
    assert result.exit_code == 0, result.output
    objects = [obj for obj in yaml.safe_load_all(result.stdout) if obj]
    assert {f"{obj['kind']}/{obj['metadata']['name']}": obj["spec"] for obj in objects} == case["muster"]
    (tmp_path / "made.yaml").write_text(result.stdout)
    assert len(load([tmp_path / "made.yaml"]).objects) == len(objects), "Muster takes what is printed"


@each_of(*CASES["comments"])
def test_an_object_without_a_counterpart_is_a_comment(case: Json, *, tmp_path: Path) -> None:
    lines = printed(tmp_path, yaml.safe_dump_all(case["kueue"])).stdout.splitlines()
    assert any(line.startswith(f"# {case['comment']}") for line in lines), lines


@each_of(
    ("kind: [\n", 2, "not YAML"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", 1, "no objects of Kueue in there"),
    (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\n"
        "spec: {resourceGroups: [7]}\n",
        2,
        "an object of Kueue has a form that is not known",
    ),
)
def test_faults_of_kueue_objects_are_named(text: str, status: int, reported: str, *, tmp_path: Path) -> None:
    result = printed(tmp_path, text)
    assert (result.exit_code, reported in result.stderr) == (status, True), result.stderr


def test_a_cluster_without_kueue_has_none_of_its_objects(desk: Desk) -> None:
    assert "Kueue" in desk.refuses("migrate", "kueue")


def test_a_priority_class_keeps_its_name_and_value() -> None:
    meta = {"name": "high", "namespace": "team"}  # which the API server would ignore
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass"}
    (made,) = migrated([{**head, "metadata": meta, "value": 7}])
    assert made.object is not None
    assert (made.object["metadata"], made.object["value"]) == ({"name": "high"}, 7)


def test_objects_of_others_are_passed_over() -> None:
    assert list(migrated([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, {}])) == []
