"""Objects of an install, which kustomize builds from an overlay or Helm renders from the chart."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import build

Json = dict[str, Any]
Objects = list[Json]
ROOT = Path(__file__).parents[3]
INSTALL = ROOT / "install"
HELM = "helm.sh/helm/v3/cmd/helm"


def kustomized(kubectl: Path, folder: Path) -> Objects:
    """Build an overlay with kustomize, and return its objects."""
    return _objects(_output([str(kubectl), "kustomize", str(folder)]))


def rendered(
    kubernetes: str, values: Mapping[str, str] | None = None, *, namespace: str = "kube-muster"
) -> Objects:
    """Render the Helm chart, and return its objects. `values` has the keys and values of `--set`."""
    value_flags = [f"--set={key}={value}" for key, value in (values or {}).items()]
    command = [str(helm()), "template", "muster", str(INSTALL / "chart"), f"--namespace={namespace}"]
    return _objects(_output([*command, f"--kube-version={kubernetes}", *value_flags]))


def helm() -> Path:
    """Return the path of Helm, built if necessary."""
    return build.tool(ROOT / "tests" / "e2e" / "helm", HELM)


def overlay(folder: Path, install: str, components: Iterable[str], release: str) -> Path:
    """Write an overlay of an install with components of manifests/, and return the overlay's folder.

    `release` is the version of Kubernetes, which becomes the tag of the kube-scheduler image.
    """
    target = folder / "overlay"
    target.mkdir()
    # kustomize accepts relative paths only.
    path_to_root = "/".join([".."] * (len(target.resolve().parts) - 1))
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{path_to_root}{INSTALL}/{install}"],
        "components": [f"{path_to_root}{ROOT}/manifests/{component}" for component in components],
        "images": [
            {"name": "kube-muster", "newName": "registry.example/kube-muster"},
            {"name": "registry.k8s.io/kube-scheduler", "newTag": release},
        ],
    }
    (target / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return target


def _output(command: list[str]) -> str:
    """Run a command, and return its output. Fail if the command fails."""
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 0, f"{' '.join(command[:2])}: {completed.stderr}"
    return completed.stdout


def _objects(text: str) -> Objects:
    """Return the objects of a YAML text with several documents, without empty documents."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]
