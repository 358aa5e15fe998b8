"""Admission policies of the manifests, in force while a context is entered.

The API server applies and forgets policies after seconds, which is checked by dry runs of pods. Tests with
policies are skipped on releases that do not serve the kind.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.waiting import wait_for

WITHOUT_POLICIES = ("1.34", "1.35")  # v1beta1 behind a feature gate that is off
IN_PLACE = "older-kubernetes"  # the component that replaces the policies by a webhook
GATES = "gates"  # the component of the sidecar install whose policy puts gates on pods


def needed(kubernetes: str) -> tuple[str, ...]:
    """Return the components that an install with policies needs on this release."""
    return (IN_PLACE,) if kubernetes in WITHOUT_POLICIES else ()


def gating(kubernetes: str) -> tuple[str, ...]:
    """Return the components that the sidecar install needs on this release, so that pods get gates."""
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
    """Return whether a new pod of Muster would get its gate now."""
    sample = objects.pod("sample", namespace=namespace, group="sample")
    created = client.request("POST", f"{PODS.path(namespace)}?dryRun=All", sample)
    return {"name": objects.GATE} in created["spec"].get("schedulingGates", [])
