"""Validation policies of the repository, applied while a test needs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import POD_GROUPS, PODS, QUEUES, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
REFUSED = 422


@contextmanager
def in_force(client: Client, namespace: str) -> Iterator[None]:
    """Apply all policies, and wait until each policy refuses an invalid object.

    The wait is needed because the API server loads new policies only once a second. When the context ends,
    the policies are deleted, and the function waits until the API server accepts the objects again.
    """
    tiers = {"highestTierAllowed": 1, "highestTierName": "rack"}
    invalid_objects = (
        (QUEUES, objects.queue("q", parent="q")),
        (POD_GROUPS, objects.pod_group("g", namespace=namespace, min_member=1, networkTopology=tiers)),
        (PODS, objects.pod("p", namespace=namespace, group="g", nodeName="n")),
    )
    try:
        with manifests.applied(client, "validation-policy.yaml"):
            wait_for(
                lambda: all(_is_refused(client, resource, body) for resource, body in invalid_objects),
                what="the policies in force",
            )
            yield
    finally:
        wait_for(
            lambda: not any(_is_refused(client, resource, body) for resource, body in invalid_objects),
            what="the policies out of force",
        )


def _is_refused(client: Client, resource: Resource, body: Json) -> bool:
    """Return whether a dry run of creating an object is refused as invalid."""
    try:
        client.request("POST", f"{resource.path(body['metadata'].get('namespace', ''))}?dryRun=All", body)
    except ApiError as fault:
        return fault.status == REFUSED
    return False
