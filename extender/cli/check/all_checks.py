"""All checks, in the order in which faults should be repaired, and the checks of workload and leader."""

import re
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

import msgspec

from extender import __version__
from extender.api.objects.cluster import Lease, age_of, is_held
from extender.api.units import human_duration
from extender.cli.access import ClusterAccess
from extender.cli.check.certificates import certificates, mutual_tls
from extender.cli.check.coexistence import kueue, native_groups, volcano
from extender.cli.check.findings import (
    APPLY,
    FAILED_CHECK,
    UNKNOWN,
    UNSEEN,
    Finding,
    OutOfReach,
    ask_replica,
    error,
    fine,
    metric_value,
)
from extender.cli.check.manifests import adoption, jobs, kinds, policies, rights, webhooks
from extender.cli.check.queues import flavors, guarantees, local_queues, overruling, quotas, topologies
from extender.cli.check.view import view
from extender.cli.installation import Installation, name_of, nested
from extender.kube.errors import ApiError, Forbidden, message_for_user
from extender.kube.resources import CRDS, LEASES

_MAX_SKEW = 5.0  # seconds by which clocks may differ
_OLDEST_MINOR = 34  # oldest supported minor version of Kubernetes
_SCHEDULER_IMAGE = re.compile(r"kube-scheduler:v1\.(\d+)\S*")
_EXTENDERS = "Look at extenders in the scheduler's configuration: its urlPrefix must be where Muster listens."
# Remedies for failed parts of /readyz, by the end of the part's name.
_REMEDY_BY_SUFFIX = {
    "-synced": "Muster cannot read all of these objects: look at the line rights, and at its log",
    "webhook-certificate": "Look at the lines rights and certificates, and at its log",
    "writes": "Look at the /readyz of the API server and at etcd, by etcdctl alarm list",
    "deciding": "Its liveness probe restarts it; if that does not help, its log and /debug/threads tell why",
}


def all_findings(
    access: ClusterAccess, report_check: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """Yield all findings. `report_check` is called with the name of each check before the check runs."""
    with access.connection.stream("/version") as answer:
        local_time, date = time.time(), answer.headers.get("date", "")
        version = msgspec.json.decode(answer.read(), type=dict[str, str])
    server_time = parsedate_to_datetime(date).timestamp() if date else local_time
    site = Installation(access, server_time)
    site.minor = int(version["minor"].rstrip("+"))
    git = version["gitVersion"]
    if version.get("platform") == "embedded":
        message = f"this is the embedded cluster of muster run ({git}), where Muster runs next to the API"
        yield fine("cluster", f"{message} server; there is no installation to look at")
        return
    if site.minor < _OLDEST_MINOR:
        update = f"Allowed is 1.{_OLDEST_MINOR} and newer: update the cluster."
        yield error("Kubernetes", f"{git} is too old", update)
    else:
        yield fine("Kubernetes", git)
    yield clocks(local_time - server_time)
    if not _is_installed(site):
        message = f"is not installed: no workload in namespace {site.namespace}, and its CRDs are missing"
        yield error("Muster", message, f"{APPLY}, or give -n.")
        return
    for subject, check in CHECKS:
        report_check(f"looking at {subject}")
        try:
            yield from check(site)
        except Forbidden as fault:
            todo = "Use the kubeconfig of a user with the right, such as an administrator of the cluster."
            message = message_for_user(fault).removeprefix("not allowed: ")
            yield Finding(subject, UNSEEN, f"not allowed to look: {message}", todo)
        except ApiError as fault:
            todo = "Repair the connection to the API server, and run the command again."
            yield error(subject, f"could not be looked at: {message_for_user(fault)}", todo)


def _is_installed(site: Installation) -> bool:
    """Return whether Muster has a workload or a CRD. True if the user may not read these objects."""
    try:
        return bool(site.workloads or site.muster_objects(CRDS))
    except ApiError:
        return True


def clocks(ahead_seconds: float) -> Finding:
    """Return the finding about clocks.

    `ahead_seconds` is the time by this machine's clock minus the time by the API server's clock.
    """
    if abs(ahead_seconds) <= _MAX_SKEW:
        return fine("clocks", "this machine and the API server agree")
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    message = f"this machine's is {abs(ahead_seconds):.0f} s {direction} the API server's"
    return error("clocks", message, "Let both follow the same time server; until then, shown ages are wrong.")


def workload(site: Installation) -> Iterator[Finding]:
    if not site.workloads:
        yield error("workload", f"nothing runs Muster in namespace {site.namespace}", f"{APPLY}, or give -n.")
    for serving in site.workloads:
        obj = serving.obj
        kind, name, status = obj["kind"].lower(), name_of(obj), obj.get("status", {})
        desired_count = status.get("desiredNumberScheduled", nested(obj, "spec", "replicas") or 0)
        ready_count = status.get("numberReady", status.get("readyReplicas", 0))
        message = f"{kind}/{name} has {ready_count} of {desired_count} replicas ready"
        if ready_count and ready_count >= desired_count:
            yield fine("workload", message)
        else:
            todo = f"kubectl -n {obj['metadata']['namespace']} describe {kind} {name}"
            yield error("workload", message, f"{todo}, and the logs of its pods, tell why.")
        image = serving.container["image"]
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        if tag.removeprefix("v") == __version__:
            yield fine("version", f"{image}, the version of this command")
        else:
            message = f"{image} runs; this command is {__version__}"
            todo = "Use the same release: their output may differ."
            yield Finding("version", UNKNOWN, message, todo)


def scheduler_skew(site: Installation) -> Iterator[Finding]:
    """Check that a scheduler next to Muster has the API server's minor version, or the version before."""
    for serving in site.workloads:
        for container in serving.spec.get("containers") or ():
            match = _SCHEDULER_IMAGE.search(container.get("image", ""))
            if match is None:
                continue
            message = f"{match[0]} runs next to an API server of 1.{site.minor}"
            if site.minor - 1 <= int(match[1]) <= site.minor:
                yield fine("scheduler", message)
            else:
                rule = f"must be 1.{site.minor - 1} or 1.{site.minor}"
                yield error("scheduler", f"{message}: {rule}", "Set its image in your overlay or values.")


def leader(site: Installation) -> Iterator[Finding]:
    for serving in site.workloads:
        if serving.setting("leader_elect") == "off":
            yield fine("leader", "every replica leads (--leader-elect=off)")
        else:
            yield _lease_finding(site, serving.setting("lease"))


def _lease_finding(site: Installation, name: str) -> Finding:
    """Check the Lease of a scheduler.

    The holder is HOSTNAME_UUID. HOSTNAME is the name of a pod, or of its node if the pod uses the host
    network.
    """
    document = site.get(LEASES, *name.split("/"))
    if document is None:
        message = f"the lease {name} does not exist"
        return error("leader", message, "The scheduler next to Muster creates it: see its log, and --lease.")
    lease = msgspec.convert(document, Lease).spec
    age, holder = age_of(lease, site.now), lease.holder_identity or ""
    if age is None or not is_held(lease, site.now):
        since = f" for {human_duration(int(age))}" if age is not None else ""
        return error("leader", f"{name} has not been renewed{since}", "No scheduler leads: see its log.")
    if age < -_MAX_SKEW:
        todo = "Let the node follow the same time server as the API server."
        return error("leader", f"the clock of {lease.holder_identity} is {-age:.0f} s ahead", todo)
    hosts = {pod.name for pod in site.pods} | {pod.spec.get("nodeName") for pod in site.pods}
    if holder.rpartition("_")[0] in hosts:
        return fine("leader", f"{holder} holds {name}")
    message = f"{holder} holds {name}, and no Muster runs there"
    return error("leader", message, "Another scheduler uses the same lease: give each its own resourceName.")


def replicas(site: Installation) -> Iterator[Finding]:
    """Check that each running replica is ready, and that a scheduler calls the leader."""
    for pod in site.pods:
        if nested(pod.obj, "status", "phase") != "Running":
            continue
        try:
            readiness, metrics = (ask_replica(site, pod, page) for page in ("readyz?verbose", "metrics"))
        except OutOfReach as fault:
            pages = f"127.0.0.1:{pod.setting('health_listen').rpartition(':')[2]}/readyz?verbose"
            todo = f"On its node: curl '{pages}', and muster_scheduler_never_called in /metrics"
            yield Finding("health", UNKNOWN, f"{pod.name} cannot be asked from here: {fault}", todo)
            continue
        failures = FAILED_CHECK.findall(readiness)
        log = f"kubectl -n {site.namespace} logs {pod.name} -c muster"
        for part, reason in failures:
            remedies = (remedy for end, remedy in _REMEDY_BY_SUFFIX.items() if part.endswith(end))
            todo = f"{next(remedies, 'Look at its log')}: {log}"
            yield error("health", f"{pod.name} is not ready, {part}: {reason}", todo)
        if not failures:
            yield fine("health", f"{pod.name} is ready")
        if not metric_value(metrics, "muster_leader"):
            yield fine("calls", f"{pod.name} does not lead, so no scheduler calls it")
        elif metric_value(metrics, "muster_scheduler_never_called"):
            yield error("calls", f"{pod.name} leads, and the scheduler has never called it", _EXTENDERS)
        else:
            yield fine("calls", f"{pod.name} leads, and the scheduler calls it")


CHECKS: tuple[tuple[str, Callable[[Installation], Iterator[Finding]]], ...] = (
    ("kinds", kinds),
    ("rights", rights),
    ("jobs", jobs),
    ("policies", policies),
    ("adoption", adoption),
    ("webhooks", webhooks),
    ("certificates", certificates),
    ("mutual TLS", mutual_tls),
    ("workload", workload),
    ("scheduler", scheduler_skew),
    ("leader", leader),
    ("health", replicas),
    ("view", view),
    ("guarantees", guarantees),
    ("overruling", overruling),
    ("flavors", flavors),
    ("LocalQueues", local_queues),
    ("topologies", topologies),
    ("quotas", quotas),
    ("groups", native_groups),
    ("Kueue", kueue),
    ("Volcano", volcano),
)
