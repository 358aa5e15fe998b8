"""The scheduler's view: whether the scheduler next to Muster reads its pods through it.

Where neither of the two uses it, there is nothing to say.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from extender.cli.check.findings import UNKNOWN, Finding, Installation, Serving, at, fine, name_of, wrong
from extender.cli.check.pages import OutOfReach, ask, note, value
from extender.cli.check.scheduler_config import Unread, kubeconfig_of_scheduler
from extender.kube.resources import MUTATING_BINDINGS, MUTATING_POLICIES, MUTATING_WEBHOOKS
from extender.view.kubeconfig import FILE

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
    return any(each.setting("view_listen") != _OFF for each in site.workloads)


def view(site: Installation) -> Iterator[Finding]:
    for workload in site.workloads:
        yield from _configured(site, workload)
    if is_viewed(site):
        yield from _left_behind(site)
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


def _left_behind(site: Installation) -> Iterator[Finding]:
    """`kubectl apply` leaves there what an overlay with gates had brought."""
    for resource, name in _GATES:
        if name in map(name_of, site.ours(resource)):
            message = f"{resource.plural}/{name} still puts gates on pods, which costs two writes for each"
            yield wrong(_SUBJECT, message, f"kubectl delete {resource.plural} {name}; {_UPGRADE}")


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
