"""Removal of the objects that a test has left, so that the next test begins with an empty cluster."""

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
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for
from tests.e2e.harness.watch import ApiError

NOT_FOUND = 404
NOT_READY = 429  # answer of a restarted API server for kinds whose storage the server is still reading
REFUSED_BY_POLICY = (403, 422)
OWNERS = (CRON_JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, VOLCANO_JOBS)
IN_NAMESPACE = (COMMANDS, *OWNERS, POD_GROUPS, PODS, LOCAL_QUEUES)
IN_CLUSTER = (QUEUES, RESOURCE_FLAVORS, NODES)
# A remaining Lease would make the next scheduler wait for a dead leader.
SCHEDULER_LEASES = ("kube-scheduler", "muster-scheduler")


def clean(client: Client, namespace: str) -> None:
    """Delete the objects of a namespace and the test objects of the cluster, owners before their dependents.

    The namespace stays, since only a controller could delete a namespace.
    """
    for resource in IN_NAMESPACE:
        empty(client, resource, namespace)
    for resource in IN_CLUSTER:
        empty(client, resource, "")
    for name in SCHEDULER_LEASES:
        _delete(client, LEASES, name, "kube-system")


def empty(client: Client, resource: Resource, namespace: str, timeout: float = GENEROUS_SECONDS) -> None:
    """Delete all objects of a kind. Succeed at once if the kind is not installed.

    A refusal by a policy is tried again, because the API server applies a deleted policy for some time.
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
    """Delete the remaining objects again, without their finalizers. Return True if no objects remained."""
    items = client.items(resource, namespace)
    for item in items:
        metadata = item["metadata"]
        if metadata.get("finalizers"):
            _remove_finalizers(client, resource, metadata["name"], namespace)
        elif "deletionTimestamp" in metadata or resource is PODS:
            _delete(client, resource, metadata["name"], namespace)
    return not items


def _remove_finalizers(client: Client, resource: Resource, name: str, namespace: str) -> None:
    _ignore_missing(lambda: client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace))


def _delete(client: Client, resource: Resource, name: str, namespace: str) -> None:
    _ignore_missing(lambda: client.delete(resource, name, namespace, grace=0))


def _ignore_missing(action: Callable[[], object]) -> None:
    """Call `action`, and ignore the error of the API server that the object is missing."""
    try:
        action()
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
