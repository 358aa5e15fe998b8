"""What users apply is accepted by an API server to the last field, and both ways to install are the same."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.installs import Objects
from tests.e2e.harness.resources import NAMESPACES, PODS
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
STRICT = "dryRun=All&fieldManager=tests&fieldValidation=Strict&force=true"
DATA = Path(__file__).parent / "data"
OPERATORS = ("cert-manager.yaml", "prometheus-operator.yaml")
# What only one of the two has, on purpose.
HELMS_OWN_LABEL = "app.kubernetes.io/managed-by"
HELMS_OWN_ANNOTATIONS = ("helm.sh/resource-policy", "checksum/config")


class Variant(NamedTuple):
    """One thing to install: an overlay and what it adds, and the chart's values for the same."""

    install: str
    components: tuple[str, ...]
    values: dict[str, str]

    def __str__(self) -> str:
        return "+".join((self.install, *self.components))


COMPONENTS: dict[str, dict[str, str]] = {
    "monitoring": {"monitoring.enabled": "true"},
    "cert-manager": {"certManager.enabled": "true"},
    "older-kubernetes": {},
}
# The chart asks the API server how old it is.
OLDER = "v1.35.4"
VARIANTS = [
    Variant(install, components, {"install": install, **values})
    for install in ("sidecar", "default-scheduler")
    for components, values in [((), {}), *(((name,), values) for name, values in COMPONENTS.items())]
]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


@pytest.fixture(scope="module")
def release() -> str:
    """The exact release of the control plane, such as v1.36.3."""
    return build.folder(KUBERNETES).name.partition("-")[0]


@pytest.fixture
def kustomized(cluster: ControlPlane, variant: Variant, tmp_path: Path) -> Objects:
    folder = installs.overlay(tmp_path, variant.install, variant.components)
    return installs.kustomized(cluster.binaries / "kubectl", folder)


@pytest.fixture
def rendered(variant: Variant, release: str) -> Objects:
    image = {"image.repository": "registry.example/kube-muster"}
    kubernetes = OLDER if "older-kubernetes" in variant.components else release
    return installs.rendered(kubernetes, {**variant.values, **image})


@pytest.fixture(scope="module")
def operators(cluster: ControlPlane) -> Iterator[None]:
    """The kinds of other projects that our components use."""
    found = [each for name in OPERATORS for each in yaml.safe_load_all((DATA / name).read_text())]
    manifests.install(cluster.admin, found)
    yield
    manifests.remove(cluster.admin, found)


@each_variant
def test_what_kustomize_builds_is_accepted(
    cluster: ControlPlane, operators: None, kustomized: Objects
) -> None:
    assert refusals(cluster.admin, kustomized) == []


@each_variant
def test_what_helm_renders_is_accepted(cluster: ControlPlane, operators: None, rendered: Objects) -> None:
    assert refusals(cluster.admin, rendered) == []


@each_variant
def test_both_ways_install_the_same(kustomized: Objects, rendered: Objects) -> None:
    ours = {identity(each): comparable(each) for each in kustomized if each["kind"] != "Namespace"}
    theirs = {identity(each): comparable(each) for each in rendered}
    assert theirs == ours


@each_variant
def test_the_chart_has_nothing_to_complain_about(variant: Variant, release: str) -> None:
    given = [f"--set={key}={value}" for key, value in variant.values.items()]
    command = [str(installs.helm()), "lint", "--strict", f"--kube-version={release}", *given]
    done = subprocess.run(
        [*command, str(installs.INSTALL / "chart")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@each_variant
def test_the_chart_goes_to_any_namespace(variant: Variant, release: str) -> None:
    found = installs.rendered(release, variant.values, namespace="elsewhere")
    named = {each["metadata"].get("namespace", "elsewhere") for each in found}
    assert named <= {"elsewhere", "kube-system"}
    accounts = [subject for each in found for subject in each.get("subjects", [])]
    assert {each["namespace"] for each in accounts} == {"elsewhere"}
    excluded = [values for each in found if (values := left_alone(each))]
    assert excluded
    assert all(values == {"kube-system", "elsewhere"} for values in excluded)


def test_scheduler_names_are_set_in_one_place(release: str) -> None:
    """Policy, profiles and flag must agree, or pods of a name are gated and never bound."""
    found = installs.rendered(release, {"schedulerNames": "{muster,other}"})
    by_kind = {each["kind"]: each for each in found}
    policy = yaml.safe_dump(by_kind["MutatingAdmissionPolicy"], width=1000)
    assert "object.spec.schedulerName in ['muster', 'other']" in policy.replace("''", "'")
    profiles = yaml.safe_load(by_kind["ConfigMap"]["data"]["sidecar.yaml"])["profiles"]
    assert [each["schedulerName"] for each in profiles] == ["muster", "other"]
    flags = by_kind["Deployment"]["spec"]["template"]["spec"]["initContainers"][0]["args"]
    names = [each for each in flags if each.startswith("--scheduler-name")]
    assert names == ["--scheduler-name=muster", "--scheduler-name=other"]


@pytest.mark.parametrize("value", ["install=both", "schedulerNames={default-scheduler}", "crds.instal=false"])
def test_a_value_that_is_not_allowed_is_refused(release: str, value: str) -> None:
    chart = str(installs.INSTALL / "chart")
    command = [
        str(installs.helm()),
        "template",
        "muster",
        chart,
        f"--kube-version={release}",
        f"--set={value}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert value.partition("=")[0].rpartition(".")[2] in done.stderr


@pytest.mark.parametrize("install", ["sidecar", "default-scheduler"])
def test_the_pods_are_admitted_by_their_namespace(
    cluster: ControlPlane, tmp_path: Path, install: str
) -> None:
    """Each install's namespace says how much its pods may do, and the API server holds them to it."""
    found = installs.kustomized(cluster.binaries / "kubectl", installs.overlay(tmp_path, install))
    (namespace,) = [each for each in found if each["kind"] == "Namespace"]
    (workload,) = [each for each in found if each["kind"] in ("Deployment", "DaemonSet")]
    labels = namespace["metadata"]["labels"]
    shown = f"as-{install}"
    cluster.admin.create(NAMESPACES, {**namespace, "metadata": {"name": shown, "labels": labels}})
    spec = {**workload["spec"]["template"]["spec"]}
    # The class of the sidecar install is not there, and it is not what is asked here.
    spec.pop("priorityClassName")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "muster", "namespace": shown},
        "spec": spec,
    }
    cluster.admin.request("POST", f"{PODS.path(shown)}?dryRun=All&fieldValidation=Strict", pod)


def refusals(client: Client, objects: Objects) -> list[str]:
    """What the API server has against these objects, as it would for server-side apply."""
    return [f"{identity(each)}: {fault}" for each in objects if (fault := refusal(client, each))]


def refusal(client: Client, document: Json) -> str | None:
    resource = manifests.resource_of(client, document)
    metadata = document["metadata"]
    path = resource.path(metadata.get("namespace", ""), metadata["name"])
    try:
        client.request("PATCH", f"{path}?{STRICT}", document, APPLY)
    except ApiError as error:
        return str(error)
    return None


def identity(document: Json) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), unhashed(metadata["name"])


def comparable(document: Json) -> Any:
    """Without what differs on purpose: Helm's marks, the hash in a ConfigMap's name, how lines are folded,
    and the order of what has a name. Files in a ConfigMap count by what they say."""
    files = document.get("data", {}) if document["kind"] == "ConfigMap" else {}
    return _plain({**document, "data": {name: yaml.safe_load(text) for name, text in files.items()}})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if not _of_one_way(key, each)}
    if isinstance(value, list):
        named = all(isinstance(each, dict) and "name" in each for each in value)
        return [_plain(each) for each in (sorted(value, key=lambda each: each["name"]) if named else value)]
    return unhashed(" ".join(value.split())) if isinstance(value, str) else value


def _of_one_way(key: str, value: Any) -> bool:
    if key == "annotations":
        return not {name for name in value if name not in HELMS_OWN_ANNOTATIONS}
    return key in (HELMS_OWN_LABEL, "imagePullPolicy", *HELMS_OWN_ANNOTATIONS)


def unhashed(name: str) -> str:
    return re.sub(r"^(muster-scheduler-config)-[a-z0-9]{10}$", r"\1", name)


def left_alone(document: Json) -> set[str]:
    """The namespaces that an admission policy leaves out."""
    selector = document.get("spec", {}).get("matchConstraints", {}).get("namespaceSelector", {})
    return {value for each in selector.get("matchExpressions", []) for value in each["values"]}
