"""The configuration of the scheduler next to Muster, as its workload mounts it."""

from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from extender.cli.check.findings import Installation, Serving, at
from extender.cli.output import Json
from extender.kube.resources import CONFIG_MAPS

_PROGRAM = "kube-scheduler"


class Unread(Exception):
    """Why the configuration is not known."""


class UsedKubeconfig(NamedTuple):
    """How the scheduler reaches the API server."""

    path: str  # empty: by the pod's own ServiceAccount
    made_in_pod: bool  # in a volume that begins empty, or in none


def kubeconfig_of_scheduler(site: Installation, workload: Serving) -> UsedKubeconfig:
    """Raises Unread."""
    container = next((each for each in workload.spec.get("containers", ()) if each["name"] == _PROGRAM), None)
    if container is None:
        raise Unread(f"it has no container {_PROGRAM}, so what its scheduler reads is not known")
    path = _named(site, workload, container)
    volume = workload.volume_at(container, str(PurePosixPath(path).parent)) if path else {}
    return UsedKubeconfig(path, bool(path) and (not volume or "emptyDir" in volume))


def _named(site: Installation, workload: Serving, container: Json) -> str:
    """The kubeconfig that its configuration names, else its flag."""
    if path := _flag(container, "--config"):
        document = _document(site, workload, container, path)
        return str(at(document, "clientConnection", "kubeconfig") or "")
    return _flag(container, "--kubeconfig")


def _flag(container: Json, name: str) -> str:
    """As Go's flags are written: with `=`, or with the value after it; the last one counts."""
    arguments = [*container.get("command", ()), *container.get("args", ())]
    values = [after for each, after in zip(arguments, [*arguments[1:], ""], strict=True) if each == name]
    values += [each.removeprefix(f"{name}=") for each in arguments if each.startswith(f"{name}=")]
    return values[-1] if values else ""


def _document(site: Installation, workload: Serving, container: Json, path: str) -> Any:
    source = workload.volume_at(container, str(PurePosixPath(path).parent))
    name = at(source, "configMap", "name")
    if not name:
        raise Unread(f"its scheduler's configuration, {path}, is in no ConfigMap")
    found = site.get(CONFIG_MAPS, site.namespace, name)
    text = at(found, "data", _key(source, PurePosixPath(path).name))
    if text is None:
        raise Unread(f"the ConfigMap {site.namespace}/{name} has no {PurePosixPath(path).name}")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise Unread(f"its scheduler's configuration cannot be read: {str(fault).splitlines()[0]}") from fault


def _key(source: Json, file: str) -> str:
    """Under which a ConfigMap has a file."""
    items = at(source, "configMap", "items") or ()
    return next((each["key"] for each in items if each["path"] == file), file)
