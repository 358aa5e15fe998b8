"""Installs on an API server: it accepts all fields, and both ways to install give the same objects."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import cert_manager, installs, manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.installs import Objects
from tests.e2e.harness.policy import GATES, IN_PLACE, WITHOUT_POLICIES, needed
from tests.e2e.harness.resources import NAMESPACES, PODS
from tests.e2e.harness.watch import ApiError
from tools.chart_changes import JOB_KINDS

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
STRICT = "dryRun=All&fieldManager=tests&fieldValidation=Strict&force=true"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
# What only one of the two has, on purpose.
HELMS_OWN_LABEL = "app.kubernetes.io/managed-by"
HELMS_OWN_ANNOTATIONS = ("helm.sh/resource-policy", "checksum/config")


RELEASE = build.release(KUBERNETES)
NEEDED = needed(KUBERNETES)


class Variant(NamedTuple):
    """One thing to install: an overlay and what it adds, and the chart's values for the same."""

    install: str
    components: tuple[str, ...]
    values: dict[str, str]

    @property
    def release(self) -> str:
        """Return the API server's release, or an older one if the component exists only for that."""
        older = IN_PLACE in self.components and not NEEDED
        return build.release(WITHOUT_POLICIES[-1]) if older else RELEASE

    def __str__(self) -> str:
        return "+".join((self.install, *self.components))


# With the chart's values for the same; it knows by itself how old the API server is.
WITH_GATES = {"view.enabled": "false"}
MODES: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
    ("sidecar", (), {}),
    ("sidecar", (GATES,), WITH_GATES),
    ("sidecar", (IN_PLACE,), {}),
    ("default-scheduler", (), {}),
    ("default-scheduler", (IN_PLACE,), {}),
]
ADDED: dict[tuple[str, ...], dict[str, str]] = {
    (): {},
    ("monitoring",): {"monitoring.enabled": "true"},
    ("cert-manager",): {"certManager.enabled": "true"},
    ("dashboard",): {"dashboard.enabled": "true"},
    ("history",): {"history.enabled": "true"},
    ("provisioning",): {"provisioning.enabled": "true"},
    ("jobs/ray",): {"jobs.kinds": "{batch,ray}"},
    ("jobs",): {"jobs.kinds": f"{{{','.join(JOB_KINDS)}}}"},
    ("quota",): {"quota.enabled": "true"},
    ("volcano-jobs",): {"volcanoJobs.enabled": "true"},
    ("volcano-jobs", "volcano-jobs-ssh"): {"volcanoJobs.enabled": "true", "volcanoJobs.ssh": "true"},
}


def _whole(install: str, mode: tuple[str, ...], components: tuple[str, ...]) -> tuple[str, ...]:
    """Return all components: the chart marks pods for quotas where policies can mark pods."""
    marks = install == "default-scheduler" and components == ("quota",) and IN_PLACE not in mode
    return (*mode, *components, *(("quota-marks",) if marks else ()))


VARIANTS = [
    Variant(install, _whole(install, mode, components), {"install": install, **values, **more})
    for install, mode, values in MODES
    if set(NEEDED) <= set(mode)
    for components, more in ADDED.items()
    if install == "sidecar" or components != ("history",)  # a DaemonSet has no volume for each pod
]


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def variant(request: pytest.FixtureRequest) -> Variant:
    """Return a variant, built once for all of its tests, which follow each other."""
    found: Variant = request.param
    return found


@pytest.fixture(scope="module")
def kustomized(cluster: ControlPlane, variant: Variant, tmp_path_factory: pytest.TempPathFactory) -> Objects:
    folder = installs.overlay(
        tmp_path_factory.mktemp("variant"), variant.install, variant.components, variant.release
    )
    return installs.kustomized(cluster.binaries / "kubectl", folder)


@pytest.fixture(scope="module")
def rendered(variant: Variant) -> Objects:
    image = {"image.repository": "registry.example/kube-muster"}
    return installs.rendered(variant.release, {**variant.values, **image})


@pytest.fixture(scope="module")
def operators(cluster: ControlPlane) -> Iterator[None]:
    """Install the kinds of other projects that our components use, as these projects define them."""
    folder = build.sources(PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    monitoring = [
        folder / f"monitoring.coreos.com_{each}.yaml" for each in ("servicemonitors", "prometheusrules")
    ]
    found = [yaml.safe_load(path.read_text()) for path in monitoring]
    found += cert_manager.crds("Issuer", "Certificate")
    manifests.install(cluster.admin, found)
    yield
    manifests.remove(cluster.admin, found)


def test_the_kustomized_manifests_are_accepted(
    cluster: ControlPlane, operators: None, kustomized: Objects
) -> None:
    assert refusals(cluster.admin, kustomized) == []


def test_the_rendered_chart_is_accepted(cluster: ControlPlane, operators: None, rendered: Objects) -> None:
    assert refusals(cluster.admin, rendered) == []


def test_manifests_that_stay_for_a_while_after_muster_are_accepted(cluster: ControlPlane) -> None:
    """Without Muster, nothing may gate pods or call webhooks. This holds on every release."""
    found = installs.kustomized(cluster.binaries / "kubectl", installs.INSTALL / "leaving")
    asking = ("MutatingAdmissionPolicy", "WebhookConfiguration")
    assert [each["kind"] for each in found if any(word in each["kind"] for word in asking)] == []
    assert refusals(cluster.admin, found) == []


def test_kustomize_and_helm_install_the_same_objects(kustomized: Objects, rendered: Objects) -> None:
    ours = {identity(each): comparable(each) for each in kustomized if each["kind"] != "Namespace"}
    theirs = {identity(each): comparable(each) for each in rendered}
    assert theirs == ours


def test_the_chart_has_nothing_to_complain_about(variant: Variant) -> None:
    given = [f"--set={key}={value}" for key, value in variant.values.items()]
    command = [str(installs.helm()), "lint", "--strict", f"--kube-version={variant.release}", *given]
    done = subprocess.run(
        [*command, str(installs.INSTALL / "chart")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_chart_goes_to_any_namespace(variant: Variant) -> None:
    found = installs.rendered(variant.release, variant.values, namespace="elsewhere")
    named = {each["metadata"].get("namespace", "elsewhere") for each in found}
    assert named <= {"elsewhere", "kube-system"}
    accounts = [subject for each in found for subject in each.get("subjects", [])]
    assert {account["namespace"] for account in accounts} == {"elsewhere"}
    excluded = [values for each in found for values in left_alone(each)]
    assert excluded
    assert all(values == {"kube-system", "elsewhere"} for values in excluded)


ADOPTED_POLICY = ("MutatingAdmissionPolicy", "", "kube-muster-gate-adopted")


@pytest.mark.parametrize(
    ("kubernetes", "gating"),
    [
        ("1.36", ("MutatingAdmissionPolicy", "", "kube-muster-gate")),
        ("1.35", ("MutatingWebhookConfiguration", "", "kube-muster-pods")),
    ],
)
def test_scheduler_names_are_set_in_one_place(kubernetes: str, gating: tuple[str, str, str]) -> None:
    """Policies or webhook, profiles and flag must agree, or pods of a name are gated and never bound."""
    values = {**WITH_GATES, "schedulerNames": "{muster,other}"}
    found = installs.rendered(build.release(kubernetes), values)
    by_kind = {each["kind"]: each for each in found}
    gates = [each for each in found if identity(each) in (gating, ADOPTED_POLICY)]
    assert gates
    for each in gates:
        assert "in ['muster', 'other']" in yaml.safe_dump(each, width=1000).replace("''", "'")
    for file in by_kind["ConfigMap"]["data"].values():
        assert [each["schedulerName"] for each in yaml.safe_load(file)["profiles"]] == ["muster", "other"]
    flags = by_kind["Deployment"]["spec"]["template"]["spec"]["initContainers"][0]["args"]
    names = [flag for flag in flags if flag.startswith("--scheduler-name")]
    assert names == ["--scheduler-name=muster", "--scheduler-name=other"]


@pytest.mark.parametrize("kubernetes", ["1.36", "1.35"])
def test_the_view_takes_the_place_of_gates_and_needs_no_more_rights(kubernetes: str) -> None:
    """Nothing gates pods at birth any more; the shared service account may do what it could do before."""
    release = build.release(kubernetes)
    with_gates, with_view = (
        {identity(each): each for each in installs.rendered(release, values)} for values in (WITH_GATES, {})
    )
    gone = {kind for kind, _, _ in with_gates.keys() - with_view.keys()}
    policy = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert gone == (policy if kubernetes == "1.36" else set())
    assert with_view.keys() <= with_gates.keys()
    changed = {key for key, each in with_view.items() if each != with_gates[key]}
    assert {kind for kind, _, _ in changed} == {"Deployment"}


@pytest.mark.parametrize("value", ["install=both", "schedulerNames={default-scheduler}", "crds.instal=false"])
def test_a_value_that_is_not_allowed_is_refused(value: str) -> None:
    chart = str(installs.INSTALL / "chart")
    command = [
        str(installs.helm()),
        "template",
        "muster",
        chart,
        f"--kube-version={RELEASE}",
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
    components = NEEDED if install == "default-scheduler" else ()
    folder = installs.overlay(tmp_path, install, components, RELEASE)
    found = installs.kustomized(cluster.binaries / "kubectl", folder)
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
    """Return the errors of the API server about these objects, as for server-side apply."""
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
    """Return the document without intended differences.

    These are Helm's marks, the hash in a ConfigMap's name, line folding, and the order of named items.
    Files in a ConfigMap are compared by content.
    """
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


def left_alone(document: Json) -> Iterator[set[str]]:
    """Yield the namespaces that an admission policy or the webhooks of a configuration leave out."""
    judging = [document.get("spec", {}).get("matchConstraints", {}), *document.get("webhooks", [])]
    for selector in [each["namespaceSelector"] for each in judging if "namespaceSelector" in each]:
        yield {value for each in selector["matchExpressions"] for value in each["values"]}
