"""Whether Muster runs, and which replica leads."""

from collections.abc import Iterator

import msgspec

from extender import __version__
from extender.api.durations import rounded
from extender.api.objects.cluster import Lease
from extender.cli.check.findings import (
    APPLY,
    UNKNOWN,
    Finding,
    Installation,
    Serving,
    at,
    fine,
    name_of,
    wrong,
)
from extender.cli.output import Json
from extender.domain.model.leases import age_of, lively
from extender.kube.resources import LEASES

_SKEW = 5.0


# ---- workload


def workload(site: Installation) -> Iterator[Finding]:
    if not site.workloads:
        yield wrong("workload", f"nothing runs Muster in namespace {site.namespace}", f"{APPLY}, or give -n.")
    for each in site.workloads:
        yield _replicas(each.obj)
        yield _release(each)


def _replicas(found: Json) -> Finding:
    kind, name, status = found["kind"].lower(), name_of(found), found.get("status", {})
    wanted = status.get("desiredNumberScheduled", at(found, "spec", "replicas") or 0)
    ready = status.get("numberReady", status.get("readyReplicas", 0))
    message = f"{kind}/{name} has {ready} of {wanted} replicas ready"
    if ready and ready >= wanted:
        return fine("workload", message)
    where = f"kubectl -n {found['metadata']['namespace']}"
    return wrong("workload", message, f"{where} describe {kind} {name}, and the logs of its pods, tell why.")


def _release(found: Serving) -> Finding:
    image = found.container["image"]
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if tag.removeprefix("v") == __version__:
        return fine("version", f"{image}, as this muster is")
    message = f"{image} runs, this muster is {__version__}"
    return Finding(
        "version", UNKNOWN, message, "What they say of each other may differ: use the same release."
    )


# ---- leader


def leader(site: Installation) -> Iterator[Finding]:
    for each in site.workloads:
        if each.setting("leader_elect") == "off":
            yield fine("leader", "every replica leads (--leader-elect=off)")
        else:
            yield _lease(site, each.setting("lease"))


def _lease(site: Installation, name: str) -> Finding:
    found = site.get(LEASES, *name.split("/"))
    if found is None:
        message = f"the lease {name} does not exist"
        return wrong("leader", message, "The scheduler next to Muster creates it: see its log, and --lease.")
    lease = msgspec.convert(found, Lease).spec
    age = age_of(lease, site.now)
    if age is None or not lively(lease, site.now):
        since = f" for {rounded(int(age))}" if age is not None else ""
        return wrong("leader", f"{name} has not been renewed{since}", "No scheduler leads: see its log.")
    if age < -_SKEW:
        todo = "Let the node follow the same time server as the API server."
        return wrong("leader", f"the clock of {lease.holder_identity} is {-age:.0f} s ahead", todo)
    return _holder(site, name, lease.holder_identity or "")


def _holder(site: Installation, lease: str, holder: str) -> Finding:
    """The holder is HOSTNAME_UUID: a pod's name, or its node's where it uses the network of the node."""
    host = holder.rpartition("_")[0]
    hosts = {pod.name for pod in site.pods} | {pod.spec.get("nodeName") for pod in site.pods}
    if host in hosts:
        return fine("leader", f"{holder} holds {lease}")
    message = f"{holder} holds {lease}, and no Muster runs there"
    return wrong("leader", message, "Another scheduler uses the same lease: give each its own resourceName.")
