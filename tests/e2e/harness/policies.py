"""The repository's validation policies, while a test needs them."""

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
    """Apply all policies and wait until each is in force: the API server loads new ones once a second."""
    tiers = {"highestTierAllowed": 1, "highestTierName": "rack"}
    invalid = (
        (QUEUES, objects.queue("q", parent="q")),
        (POD_GROUPS, objects.pod_group("g", namespace=namespace, min_member=1, networkTopology=tiers)),
        (PODS, objects.pod("p", namespace=namespace, group="g", nodeName="n")),
    )
    try:
        with manifests.applied(client, "validation-policy.yaml"):
            wait_for(
                lambda: all(_is_refused(client, resource, body) for resource, body in invalid),
                what="the policies in force",
            )
            yield
    finally:
        wait_for(
            lambda: not any(_is_refused(client, resource, body) for resource, body in invalid),
            what="the policies out of force",
        )


def _is_refused(client: Client, resource: Resource, body: Json) -> bool:
    try:
        client.request("POST", f"{resource.path(body['metadata'].get('namespace', ''))}?dryRun=All", body)
    except ApiError as fault:
        return fault.status == REFUSED
    return False
