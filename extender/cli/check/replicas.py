"""What each replica says of itself, asked through the API server's proxy to its pod: whether it is ready,
part by part, and whether the scheduler calls it.
"""

from collections.abc import Iterator

from extender.cli.check.findings import UNKNOWN, Finding, Installation, Serving, at, fine, wrong
from extender.cli.check.pages import FAILED, OutOfReach, ask, value

_EXTENDERS = "Look at extenders in the scheduler's configuration: its urlPrefix must be where Muster listens."
# What to do about a part of /readyz that fails, by what its name ends with.
_REMEDIES = {
    "-synced": "Muster cannot read these, or not all of them yet: look at the line rights, and at its log",
    "webhook-certificate": "Look at the lines rights and certificates, and at its log",
    "deciding": "Its liveness probe restarts it; if that does not help, its log and /debug/threads tell why",
}


def replicas(site: Installation) -> Iterator[Finding]:
    for pod in site.pods:
        if at(pod.obj, "status", "phase") == "Running":
            yield from _replica(site, pod)


def _replica(site: Installation, pod: Serving) -> Iterator[Finding]:
    try:
        readiness, metrics = (ask(site, pod, page) for page in ("readyz?verbose", "metrics"))
    except OutOfReach as fault:
        yield _out_of_reach(pod.name, str(fault), pod.setting("health_listen").rpartition(":")[2])
        return
    yield from _ready(site, pod.name, readiness)
    yield _called(pod.name, metrics)


def _out_of_reach(pod: str, why: str, port: str) -> Finding:
    there = (
        f"On its node: curl '127.0.0.1:{port}/readyz?verbose', and muster_scheduler_never_called in /metrics"
    )
    return Finding("health", UNKNOWN, f"{pod} cannot be asked from here: {why}", there)


def _ready(site: Installation, pod: str, readiness: str) -> Iterator[Finding]:
    failed = FAILED.findall(readiness)
    log = f"kubectl -n {site.namespace} logs {pod} -c muster"
    for part, why in failed:
        todo = next((each for end, each in _REMEDIES.items() if part.endswith(end)), "Look at its log")
        yield wrong("health", f"{pod} is not ready, {part}: {why}", f"{todo}: {log}")
    if not failed:
        yield fine("health", f"{pod} is ready")


def _called(pod: str, metrics: str) -> Finding:
    if not value(metrics, "muster_leader"):
        return fine("calls", f"{pod} does not lead, so no scheduler calls it")
    if value(metrics, "muster_scheduler_never_called"):
        return wrong("calls", f"{pod} leads, and the scheduler has never called it", _EXTENDERS)
    return fine("calls", f"{pod} leads, and the scheduler calls it")
