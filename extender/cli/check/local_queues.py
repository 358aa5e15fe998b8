"""LocalQueues that lead nowhere, and Kueue next to them."""

from collections.abc import Iterator

from extender.api.conditions import condition
from extender.api.objects.queues import LocalQueue
from extender.cli.check.findings import Finding, Installation, fine, some, wrong
from extender.kube.resources import LOCAL_QUEUES

_SUBJECT = "LocalQueues"


def local_queues(site: Installation) -> Iterator[Finding]:
    """One that is stopped on purpose is in order."""
    found = site.all_of(LOCAL_QUEUES, LocalQueue)
    astray = sorted(filter(None, map(_astray, found)))
    if not astray:
        yield fine(_SUBJECT, f"{len(found)}, and each leads into a queue" if found else "there are none")
        return
    yield wrong(
        _SUBJECT,
        f"{len(astray)} of {len(found)} let nothing in: {some(astray)}",
        "kubectl get localqueues.kube-muster.io -A -o wide says why; correct spec.queue, or the queue.",
    )


def _astray(local: LocalQueue) -> str:
    """Its name and why nothing comes in by it; empty where something does."""
    active = condition(local.status.conditions, "Active")
    if active is None or active.status == "True" or active.reason == "Stopped":
        return ""
    return f"{local.metadata.namespace}/{local.metadata.name} ({active.reason})"
