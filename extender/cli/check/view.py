"""The scheduler's view: whether the scheduler next to Muster reads its pods through it."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from extender.cli.check.findings import (
    UNKNOWN,
    Finding,
    Installation,
    OutOfReach,
    Serving,
    ask,
    at,
    fine,
    name_of,
    note,
    value,
    wrong,
)
from extender.cli.output import Json
from extender.host.ports import FILE
from extender.kube.resources import CONFIG_MAPS, MUTATING_BINDINGS, MUTATING_POLICIES, MUTATING_WEBHOOKS

# ---- The configuration of the scheduler next to Muster, as its workload mounts it.

_PROGRAM = "kube-scheduler"


class Unread(Exception):
    """Why the configuration is not known."""


class UsedKubeconfig(NamedTuple):
    """How the scheduler reaches the API server."""

    path: str  # empty: by the pod's own ServiceAccount
    made_in_pod: bool  # in a volume that begins empty, or in none


def kubeconfig_of_scheduler(site: Installation, workload: Serving) -> UsedKubeconfig:
    """Raises Unread."""
    container = next(
        (container for container in workload.spec.get("containers", ()) if container["name"] == _PROGRAM),
        None,
    )
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
    values = [
        after for argument, after in zip(arguments, [*arguments[1:], ""], strict=True) if argument == name
    ]
    values += [argument.removeprefix(f"{name}=") for argument in arguments if argument.startswith(f"{name}=")]
    return values[-1] if values else ""


def _document(site: Installation, workload: Serving, container: Json, path: str) -> Any:
    source = workload.volume_at(container, str(PurePosixPath(path).parent))
    name = at(source, "configMap", "name")
    if not name:
        raise Unread(f"its scheduler's configuration, {path}, is in no ConfigMap")
    found = site.get(CONFIG_MAPS, site.namespace, name)
    # Under which a ConfigMap has a file.
    file = PurePosixPath(path).name
    items = at(source, "configMap", "items") or ()
    text = at(found, "data", next((item["key"] for item in items if item["path"] == file), file))
    if text is None:
        raise Unread(f"the ConfigMap {site.namespace}/{name} has no {PurePosixPath(path).name}")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise Unread(f"its scheduler's configuration cannot be read: {str(fault).splitlines()[0]}") from fault


# ---- The scheduler's view: whether the scheduler next to Muster reads its pods through it.
#
# Where neither of the two uses it, there is nothing to say.

_SUBJECT = "view"
_OFF = "off"
_OLDEST_EVENT = 180.0  # seconds; the API server sends bookmarks each minute
_PAGE = "docs/install.md#the-schedulers-view"
_SHIPPED = f"scheduler-config/sidecar.yaml has it; {_PAGE}"
_UPGRADE = "docs/upgrade.md#from-gates-to-the-view"
# What puts gates on pods: before 1.36 the webhook.
_GATES = (
    (MUTATING_POLICIES, "kube-muster-gate"),
    (MUTATING_BINDINGS, "kube-muster-gate"),
    (MUTATING_WEBHOOKS, "kube-muster-pods"),
)


def is_viewed(site: Installation) -> bool:
    """Whether Muster shows a scheduler its pods, so that they need no gates."""
    return any(workload.setting("view_listen") != _OFF for workload in site.workloads)


def view(site: Installation) -> Iterator[Finding]:
    for workload in site.workloads:
        yield from _configured(site, workload)
    if is_viewed(site):
        # `kubectl apply` leaves there what an overlay with gates had brought.
        for resource, name in _GATES:
            if name in map(name_of, site.ours(resource)):
                message = (
                    f"{resource.plural}/{name} still puts gates on pods, which costs two writes for each"
                )
                yield wrong(_SUBJECT, message, f"kubectl delete {resource.plural} {name}; {_UPGRADE}")
    for pod in site.pods:
        if pod.setting("view_listen") != _OFF and at(pod.obj, "status", "phase") == "Running":
            yield from _reported(site, pod)


# ---- how it is installed


def _configured(site: Installation, workload: Serving) -> Iterator[Finding]:
    name = f"{workload.obj['kind'].lower()}/{name_of(workload.obj)}"
    listens = workload.setting("view_listen") != _OFF
    try:
        used = kubeconfig_of_scheduler(site, workload)
    except Unread as fault:
        if listens:
            todo = f"See for yourself whether clientConnection.kubeconfig is {_written(workload)}"
            yield Finding(_SUBJECT, UNKNOWN, f"{name}: {fault}", f"{todo}; {_PAGE}")
        return
    if listens:
        yield _judged(name, used.path, _written(workload))
    elif used.made_in_pod:
        message = f"{name}: its scheduler has the kubeconfig {used.path}, and Muster writes none"
        todo = f"Set --view-listen and --view-folder; {_PAGE}. Or give it sidecar-gates.yaml."
        yield wrong(_SUBJECT, f"{message} (--view-listen=off)", todo)


def _written(workload: Serving) -> str:
    """The kubeconfig that Muster writes."""
    return str(PurePosixPath(workload.setting("view_folder")) / FILE)


def _judged(name: str, used: str, written: str) -> Finding:
    if used == written:
        return fine(_SUBJECT, f"{name}: its scheduler has the kubeconfig of the view, {used}")
    has = f"the kubeconfig {used}" if used else "no kubeconfig"
    message = f"{name}: its scheduler has {has}, so it reads around the view, whose own is {written}"
    return wrong(_SUBJECT, message, f"Name that one in clientConnection.kubeconfig: {_SHIPPED}")


# ---- what Muster says


def _reported(site: Installation, pod: Serving) -> Iterator[Finding]:
    try:
        state = note(ask(site, pod, "readyz?verbose"), "view")
        metrics = ask(site, pod, "metrics")
    except OutOfReach:
        return  # the line health says so
    message = f"{pod.name}: {state or 'it says nothing of its view'}"
    log = f"kubectl -n {site.namespace} logs {pod.name} -c kube-scheduler"
    if value(metrics, "muster_view_detours_total"):
        todo = "Stop the scheduler that calls Muster without the kubeconfig of its view, or give it that"
        yield wrong(_SUBJECT, message, f"{todo}: {_SHIPPED}")
    elif value(metrics, "muster_leader") and not value(metrics, "muster_view_pod_watches"):
        todo = "Until a scheduler does, none of its pods start. The scheduler's log says why"
        yield wrong(_SUBJECT, message, f"{todo}: {log}")
    elif value(metrics, "muster_view_silence_seconds") > _OLDEST_EVENT:
        todo = f"The API server sends something each minute: look at Muster's log, and at {log}"
        yield Finding(_SUBJECT, UNKNOWN, message, todo)
    else:
        yield fine(_SUBJECT, message)
