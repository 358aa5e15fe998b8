"""The admission policies of the manifests, in force while a test wants them.

The API server takes seconds to notice a policy, and as long to forget it: both are waited for, with pods that
are only created for show. A test that wants a policy is skipped on a release that does not serve the kind.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.waiting import wait_for

WITHOUT_POLICIES = ("1.34", "1.35")  # v1beta1 behind a feature gate that is off
IN_PLACE = "older-kubernetes"  # the component that puts a webhook in the place of the policies
GATES = "gates"  # the component of the sidecar install whose policy puts gates on pods


def needed(kubernetes: str) -> tuple[str, ...]:
    """Return the components without which this release refuses an install with such policies."""
    return (IN_PLACE,) if kubernetes in WITHOUT_POLICIES else ()


def gating(kubernetes: str) -> tuple[str, ...]:
    """Return the components with which pods of the sidecar install wait behind gates on this release."""
    return (GATES, *needed(kubernetes))


@contextmanager
def in_force(client: Client, namespace: str, file: str) -> Iterator[None]:
    try:
        with manifests.applied(client, file):
            wait_for(lambda: gates_pods(client, namespace), what=f"{file} in force")
            yield
    finally:
        wait_for(lambda: not gates_pods(client, namespace), what=f"{file} out of force")


def gates_pods(client: Client, namespace: str) -> bool:
    """Return whether a pod of ours would be born with our gate now."""
    sample = objects.pod("for-show", namespace=namespace, group="for-show")
    created = client.request("POST", f"{PODS.path(namespace)}?dryRun=All", sample)
    return {"name": objects.GATE} in created["spec"].get("schedulingGates", [])
