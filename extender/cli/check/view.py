"""Scheduler proxy: whether the scheduler next to Muster reads its pods through the proxy."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import yaml

from extender.api.keys import VIEW_KUBECONFIG
from extender.cli.check.findings import UNKNOWN, Finding, OutOfReach, ask_replica, error, fine, metric_value
from extender.cli.installation import Installation, ServingObject, name_of, nested
from extender.cli.output import Json
from extender.kube.resources import CONFIG_MAPS, MUTATING_BINDINGS, MUTATING_POLICIES

_PROGRAM = "kube-scheduler"
_OFF = "off"
_MAX_EVENT_AGE = 180.0  # seconds; the API server sends a bookmark each minute
_PAGE = "docs/how-to/install.md#the-scheduler-proxy"
_SHIPPED_TODO = f"scheduler-config/sidecar.yaml has it; {_PAGE}"
_GATES = ((MUTATING_POLICIES, "kube-muster-gate"), (MUTATING_BINDINGS, "kube-muster-gate"))


def uses_proxy(site: Installation) -> bool:
    """Return whether a scheduler reads its pods through the scheduler proxy, so that pods need no gates."""
    return any(workload.setting("view_listen") != _OFF for workload in site.workloads)


def view(site: Installation) -> Iterator[Finding]:
    for workload in site.workloads:
        yield from _kubeconfig_findings(site, workload)
    gates = _GATES if uses_proxy(site) else ()
    for resource, name in gates:
        # `kubectl apply` does not delete the gate policies of an earlier overlay.
        if name in map(name_of, site.muster_objects(resource)):
            message = f"{resource.plural}/{name} still puts gates on pods, which costs two writes for each"
            todo = f"kubectl delete {resource.plural} {name}; docs/how-to/upgrade.md#from-gates-to-the-proxy"
            yield error("view", message, todo)
    for pod in site.pods:
        if pod.setting("view_listen") == _OFF or nested(pod.obj, "status", "phase") != "Running":
            continue
        try:
            readiness, metrics = (ask_replica(site, pod, page) for page in ("readyz?verbose", "metrics"))
        except OutOfReach:
            continue  # the check `health` reports it
        state = re.search(r"^\[\+\]view ok: (.+)$", readiness, re.MULTILINE)
        message = f"{pod.name}: {state[1] if state else 'no state of its proxy'}"
        log = f"kubectl -n {site.namespace} logs {pod.name} -c kube-scheduler"
        if metric_value(metrics, "muster_view_detours_total"):
            todo = "Stop the scheduler that calls Muster without its proxy's kubeconfig, or give it that file"
            yield error("view", message, f"{todo}: {_SHIPPED_TODO}")
        elif metric_value(metrics, "muster_leader") and not metric_value(metrics, "muster_view_pod_watches"):
            todo = "No pod starts until a scheduler reads through the proxy. See the scheduler's log"
            yield error("view", message, f"{todo}: {log}")
        elif metric_value(metrics, "muster_view_silence_seconds") > _MAX_EVENT_AGE:
            todo = f"The API server sends something each minute: look at Muster's log, and at {log}"
            yield Finding("view", UNKNOWN, message, todo)
        else:
            yield fine("view", message)


def _kubeconfig_findings(site: Installation, workload: ServingObject) -> Iterator[Finding]:
    name = f"{workload.obj['kind'].lower()}/{name_of(workload.obj)}"
    listens = workload.setting("view_listen") != _OFF
    muster_path = str(PurePosixPath(workload.setting("view_folder")) / VIEW_KUBECONFIG)
    try:
        scheduler_path, is_made_in_pod = _kubeconfig_of_scheduler(site, workload)
    except Unread as fault:
        if listens:
            todo = f"Check that clientConnection.kubeconfig is {muster_path}"
            yield Finding("view", UNKNOWN, f"{name}: {fault}", f"{todo}; {_PAGE}")
        return
    if listens and scheduler_path == muster_path:
        yield fine("view", f"{name}: its scheduler has the kubeconfig of the scheduler proxy, {muster_path}")
    elif listens:
        current = f"the kubeconfig {scheduler_path}" if scheduler_path else "no kubeconfig"
        message = f"{name}: its scheduler has {current}, so it does not read through Muster ({muster_path})"
        yield error("view", message, f"Set clientConnection.kubeconfig to that path: {_SHIPPED_TODO}")
    elif is_made_in_pod:
        message = f"{name}: its scheduler has the kubeconfig {scheduler_path}, and Muster writes none"
        todo = f"Set --view-listen and --view-folder; {_PAGE}. Or give it sidecar-gates.yaml."
        yield error("view", f"{message} (--view-listen=off)", todo)


# ---- the configuration of the scheduler next to Muster, as its workload mounts it


class Unread(Exception):
    """Error: the configuration of the scheduler cannot be read."""


def _kubeconfig_of_scheduler(site: Installation, workload: ServingObject) -> tuple[str, bool]:
    """Return the path of the scheduler's kubeconfig, and whether the file is created in the pod.

    The path is in the scheduler's configuration file, or in the flag --kubeconfig if there is no such file.
    The path is empty if the scheduler uses the pod's ServiceAccount. A kubeconfig in an emptyDir or outside
    all volumes counts as created in the pod.

    Raises:
        Unread: The configuration of the scheduler cannot be read.
    """
    containers = workload.spec.get("containers", ())
    container = next((container for container in containers if container["name"] == _PROGRAM), None)
    if container is None:
        raise Unread(f"it has no container {_PROGRAM}, so the configuration of its scheduler is unknown")
    path = _flag(container, "--kubeconfig")
    if configuration := _flag(container, "--config"):
        source = workload.volume_at(container, str(PurePosixPath(configuration).parent))
        name, file = nested(source, "configMap", "name"), PurePosixPath(configuration).name
        if not name:
            raise Unread(f"its scheduler's configuration, {configuration}, is in no ConfigMap")
        items = nested(source, "configMap", "items") or ()
        key = next((item["key"] for item in items if item["path"] == file), file)
        text = nested(site.get(CONFIG_MAPS, site.namespace, name), "data", key)
        if text is None:
            raise Unread(f"the ConfigMap {site.namespace}/{name} has no {file}")
        try:
            path = str(nested(yaml.safe_load(text), "clientConnection", "kubeconfig") or "")
        except yaml.YAMLError as fault:
            first_line = str(fault).splitlines()[0]
            raise Unread(f"its scheduler's configuration cannot be read: {first_line}") from fault
    volume = workload.volume_at(container, str(PurePosixPath(path).parent)) if path else {}
    return path, bool(path) and (not volume or "emptyDir" in volume)


def _flag(container: Json, name: str) -> str:
    """Return the value of a flag as Go reads it: after `=`, or the next argument.

    The last occurrence counts.
    """
    arguments = [*container.get("command", ()), *container.get("args", ())]
    values = [value for flag, value in zip(arguments, [*arguments[1:], ""], strict=True) if flag == name]
    values += [flag.removeprefix(f"{name}=") for flag in arguments if flag.startswith(f"{name}=")]
    return values[-1] if values else ""
