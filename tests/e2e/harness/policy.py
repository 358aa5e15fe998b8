"""Admission policies of the manifests, in force while a context is active.

The API server needs seconds to apply a policy, and to forget a deleted policy. Dry runs of pods check whether
a policy is in force. Tests with policies are skipped on releases that do not serve this kind of policies.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.waiting import wait_for

# These releases serve the kind only as v1beta1, behind a feature gate that is off.
WITHOUT_POLICIES = ("1.34", "1.35")
IN_PLACE = "older-kubernetes"  # component that replaces the policies by a webhook
GATES = "gates"  # component of the sidecar install whose policy puts gates on pods


def needed(kubernetes: str) -> tuple[str, ...]:
    """Return the components that replace policies on a release without policies, or () on other releases."""
    return (IN_PLACE,) if kubernetes in WITHOUT_POLICIES else ()


def gating(kubernetes: str) -> tuple[str, ...]:
    """Return the components that the sidecar install needs on this release so that pods get gates."""
    return (GATES, *needed(kubernetes))


@contextmanager
def in_force(client: Client, namespace: str, file: str) -> Iterator[None]:
    """Apply a policy file, wait until new pods get gates, and delete the policy when the context ends."""
    try:
        with manifests.applied(client, file):
            wait_for(lambda: gates_pods(client, namespace), what=f"{file} in force")
            yield
    finally:
        wait_for(lambda: not gates_pods(client, namespace), what=f"{file} out of force")


def gates_pods(client: Client, namespace: str) -> bool:
    """Return whether a new pod of Muster would get Muster's gate now."""
    sample = objects.pod("sample", namespace=namespace, group="sample")
    created = client.request("POST", f"{PODS.path(namespace)}?dryRun=All", sample)
    return {"name": objects.GATE} in created["spec"].get("schedulingGates", [])
