"""Removal of the objects that a test leaves behind, so that the next test begins with an empty cluster."""

from collections.abc import Callable

from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import (
    COMMANDS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_FLAVORS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    Resource,
)
from tests.e2e.harness.waiting import GENEROUS, wait_for
from tests.e2e.harness.watch import ApiError

NOT_FOUND = 404
NOT_READY = 429  # answer of a restarted API server for kinds whose storage it is still reading
REFUSED_BY_POLICY = (403, 422)
OWNERS = (CRON_JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, VOLCANO_JOBS)
IN_NAMESPACE = (COMMANDS, *OWNERS, POD_GROUPS, PODS, LOCAL_QUEUES)
IN_CLUSTER = (QUEUES, RESOURCE_FLAVORS, NODES)
SCHEDULER_LEASES = ("kube-scheduler", "muster-scheduler")  # else the next scheduler waits for a dead leader


def clean(client: Client, namespace: str) -> None:
    """Delete owners before their dependents. The namespace stays, since only a controller could delete it."""
    for resource in IN_NAMESPACE:
        empty(client, resource, namespace)
    for resource in IN_CLUSTER:
        empty(client, resource, "")
    for name in SCHEDULER_LEASES:
        _delete(client, LEASES, name, "kube-system")


def empty(client: Client, resource: Resource, namespace: str, timeout: float = GENEROUS) -> None:
    """Delete all objects of a kind, if that is installed.

    Refusals by policies are tried again: the API server applies a deleted policy for some time.
    """
    refusals: list[ApiError] = []

    def is_empty() -> bool:
        try:
            client.delete_all(resource, namespace)
            return _delete_remaining(client, resource, namespace)
        except ApiError as error:
            if error.status not in (NOT_FOUND, NOT_READY, *REFUSED_BY_POLICY):
                raise
            refusals[:] = [error]
            return error.status == NOT_FOUND

    try:
        wait_for(is_empty, timeout, what=f"{resource.plural} gone")
    except TimeoutError as timeout_error:
        if not refusals:
            raise
        raise TimeoutError(f"{timeout_error}; last refusal: {refusals[0]}") from None


def _delete_remaining(client: Client, resource: Resource, namespace: str) -> bool:
    """Remove finalizers and delete again; return whether no objects are left."""
    items = client.items(resource, namespace)
    for item in items:
        metadata = item["metadata"]
        if metadata.get("finalizers"):
            _remove_finalizers(client, resource, metadata["name"], namespace)
        elif "deletionTimestamp" in metadata or resource is PODS:
            _delete(client, resource, metadata["name"], namespace)
    return not items


def _remove_finalizers(client: Client, resource: Resource, name: str, namespace: str) -> None:
    _ignoring_missing(lambda: client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace))


def _delete(client: Client, resource: Resource, name: str, namespace: str) -> None:
    _ignoring_missing(lambda: client.delete(resource, name, namespace, grace=0))


def _ignoring_missing(action: Callable[[], object]) -> None:
    """Call, and ignore errors about missing objects."""
    try:
        action()
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
