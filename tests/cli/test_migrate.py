"""`muster migrate kueue`: the replacements of Kueue's objects and jobs, and reports on the rest."""

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from extender.api.workloads.shape import value_at
from extender.cli import main
from extender.cli.kueue import as_yaml, migrate_objects
from extender.files.manifests import load
from tests.cli.cluster import Cluster
from tests.rows import each_of

Json = dict[str, Any]
Folder = Path(__file__).parent / "data"
CASES = yaml.safe_load((Folder / "migrations.yaml").read_text())


KUEUE = "kueue.x-k8s.io/v1beta1"
DOOR: list[Json] = [
    {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {"tolerations": [{"key": "a", "operator": "Exists"}]},
    },
    {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "f"}]}]},
    },
    {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "door", "namespace": "default"},
        "spec": {"clusterQueue": "q"},
    },
]


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
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", 1, "no objects of Kueue with a counterpart"),
    (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\n"
        "spec: {resourceGroups: [7]}\n",
        2,
        "ClusterQueue a has a form that is not known",
    ),
    (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: f}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {namespace: team}\n",
        2,
        "LocalQueue without a name has a form that is not known",
    ),
)
def test_faults_of_kueue_objects_are_named(text: str, status: int, reported: str, *, tmp_path: Path) -> None:
    result = printed(tmp_path, text)
    assert (result.exit_code, reported in result.stderr) == (status, True), result.stderr


def test_a_cluster_without_kueue_has_none_of_its_objects(cluster: Cluster) -> None:
    assert "Kueue" in cluster.refuses("migrate", "kueue")


def test_a_priority_class_keeps_its_name_and_value() -> None:
    meta = {"name": "high", "namespace": "team"}  # which the API server would ignore
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass"}
    (migrated,) = migrate_objects([{**head, "metadata": meta, "value": 7}])
    assert migrated.object is not None
    assert (migrated.object["metadata"], migrated.object["value"]) == ({"name": "high"}, 7)


@each_of(*CASES["jobs"])
def test_jobs_name_muster_their_local_queue_and_their_priority(case: Json) -> None:
    *_, (comments, migrated) = migrate_objects([case["given"], *DOOR])
    assert {path: value_at(migrated, tuple(path.split("."))) for path in case["made"]} == case["made"]
    assert comments == case.get("comments", [])


def test_jobs_without_a_label_enter_the_local_queue_default_of_their_namespace() -> None:
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    spec: Json = {"template": {"spec": {"containers": []}}}
    deployments = [{**head, "metadata": {"name": "a", "namespace": name}, "spec": spec} for name in "xy"]
    local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "default", "namespace": "x"}}
    *_, first, second = migrate_objects([*deployments, local])
    assert first.object is not None
    assert first.object["metadata"]["labels"] == {"kube-muster.io/local-queue": "default"}
    assert second == ([], deployments[1])


def test_a_group_of_pods_becomes_a_podgroup() -> None:
    meta = {
        "labels": {"kueue.x-k8s.io/queue-name": "door", "kueue.x-k8s.io/pod-group-name": "pair"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": {"containers": []}}
        for name in ("a", "b")
    ]
    group, *members = (each.object or {} for each in migrate_objects(pods))
    assert (group["kind"], group["metadata"]["name"], group["spec"]) == ("PodGroup", "pair", {"minMember": 2})
    assert group["metadata"]["labels"] == {"kube-muster.io/local-queue": "door"}
    names = [each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for each in members]
    assert names == ["pair", "pair"]


def test_other_objects_stay_as_they_are_and_come_first() -> None:
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    found = [each.object for each in migrate_objects([pod, *DOOR, config])]
    assert (found[0], found[-1]) == (config, pod)
    assert list(migrate_objects([pod, config, {}])) == [], "nothing of Kueue in there"


def test_a_runtime_in_the_files_names_muster() -> None:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    meta = {"name": "fit", "labels": {"kueue.x-k8s.io/queue-name": "door"}}
    job = {**head, "kind": "TrainJob", "metadata": meta, "spec": {"runtimeRef": {"name": "torch"}}}
    template = {"spec": {"containers": [{"name": "node"}]}}
    runtimes = [
        {**head, "kind": "ClusterTrainingRuntime", "metadata": {"name": name}, "spec": {"template": template}}
        for name in ("torch", "other")
    ]
    named, other, migrated = migrate_objects([*runtimes, job])
    assert value_at(named.object, ("spec", "template", "spec", "schedulerName")) == "muster"
    assert (other, migrated.comments) == (([], runtimes[1]), [])


def test_a_priority_class_of_the_files_stays() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    mine, lost = migrate_objects(
        [high, {**high, "apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "value": 7}]
    )
    assert (mine.object, lost.object) == (high, None)


def test_what_is_printed_has_no_aliases_and_keeps_lines() -> None:
    shared = {"cpu": "1"}
    assert (
        as_yaml({"a": shared, "b": shared, "c": "x\ny\n"}) == "a:\n  cpu: '1'\nb:\n  cpu: '1'\nc: |\n  x\n  y"
    )


def test_jobs_of_kueue_run_in_their_queue(tmp_path: Path) -> None:
    result = printed(tmp_path, (Folder / "kueue.yaml").read_text())
    (tmp_path / "made.yaml").write_text(result.stdout)
    flags = ["-f", str(tmp_path / "made.yaml"), "--run-seconds", "60", "-o", "json"]
    report = json.loads(CliRunner().invoke(main, ["simulate", *flags]).stdout)
    assert [(each["name"], each["groups"], each["started"]) for each in report["queues"]] == [
        ("main", 12, 12)
    ]
    assert (report["neverStarted"], report["outsiders"]) == ([], 0)
