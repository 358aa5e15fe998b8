"""Rights of Muster with webhooks and its own certificate.

It needs each right of manifests/webhooks/rbac.yaml, and no others except those of manifests/rbac.yaml.
"""

from collections.abc import Callable
from typing import Any

import pytest

from extender.api.keys import LOCAL_QUEUE
from tests.e2e.harness import objects, rights, webhooks
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.resources import MUTATING_WEBHOOKS, POD_GROUPS, SECRETS, VALIDATING_WEBHOOKS, Resource
from tests.e2e.harness.rights import Right
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import POD_WEBHOOK, Port, configured

GRANTED = rights.granted(rights.WEBHOOKS)
# So short that the certificate is renewed while we wait.
LIFETIME = "--webhook-lifetime=10s"


pytestmark = pytest.mark.usefixtures("no_scheduler_rights")


class Life:
    """Life of the webhooks: all of their actions, brought about over and over."""

    def __init__(self, stage: Stage, proxy: FaultProxy, user: User) -> None:
        self.stage = stage
        self.proxy = proxy
        stage.queue("private", restricted=True)
        stage.queue("elsewhere", namespaceSelector={"matchLabels": {"some": "label"}})
        # Muster makes its group, and is asked by itself whether it may use the queue.
        self.plain = stage.pods("plain", 1, queue="private", gated=True)
        port = Port()
        stage.started.enter_context(configured(stage.api, port, POD_WEBHOOK))
        flags = port.flags("self-signed", LIFETIME)
        self.muster = stage.start_muster(*flags, user=user, server=proxy.server, wait=False)
        self.refusal = self.refusal_by_local_queue = self.refusal_by_namespace = ""
        self.served: dict[str, str] = {}  # what the Secret held first

    def go_on(self) -> None:
        """Request the use of the queues; the certificate renews itself."""
        shown = objects.pod_group("shown", namespace="default", min_member=1, queue="private")
        self.refusal = webhooks.refusal(self.stage.api, shown)
        # A LocalQueue that the cache does not know, and a namespace whose labels are looked at again.
        named = objects.pod_group("shown", namespace="default", min_member=1, labels={LOCAL_QUEUE: "door"})
        outside = objects.pod_group("shown", namespace="default", min_member=1, queue="elsewhere")
        self.refusal_by_local_queue = webhooks.refusal(self.stage.api, named)
        self.refusal_by_namespace = webhooks.refusal(self.stage.api, outside)
        self.served = self.served or self.stored()

    def stored(self) -> dict[str, str]:
        found = self.stage.api.find(SECRETS, *webhooks.SECRET)
        return found["data"] if found else {}

    def trusted(self, resource: Resource, name: str) -> list[str]:
        """Return the bundles in one configuration."""
        hooks = self.stage.api.get(resource, name)["webhooks"]
        return [hook["clientConfig"]["caBundle"] for hook in hooks if "caBundle" in hook["clientConfig"]]

    def used(self) -> set[Right]:
        self.go_on()
        return rights.used(self.proxy.calls, GRANTED)

    def misses(self, right: Right) -> bool:
        """Return whether a request was refused for want of this right."""
        self.go_on()
        refused = rights.refused(self.proxy.calls)
        return any(right.covers(need) for need in refused)


@pytest.fixture
def life(stage: Stage, proxy: FaultProxy, muster_user: User) -> Callable[[], Life]:
    return lambda: Life(stage, proxy, muster_user)


def test_each_right_is_needed_and_they_suffice(life: Callable[[], Life]) -> None:
    lived, wanted = life(), set(GRANTED)
    try:
        wait_for(lambda: lived.used() >= wanted)
    except TimeoutError:
        raise AssertionError(f"granted and never used: {sorted(map(str, wanted - lived.used()))}") from None
    wait_for(lambda: not _no_group_made(lived), what="the group made")
    wait_for(lambda: not _not_renewed(lived), what="the certificate renewed")
    assert rights.refused(lived.proxy.calls) == set()


@pytest.mark.parametrize("right", GRANTED, ids=str)
def test_without_a_right_something_is_missing(stage: Stage, life: Callable[[], Life], right: Right) -> None:
    with rights.without_right(stage.api, right):
        lived = life()
        wait_for(lambda: lived.misses(right), what=f"the want of the right to {right} noticed")
        wait_for(lambda: MISSING[str(right)](lived), what=f"what {right} is for missing")


def _no_user_admitted(lived: Life) -> bool:
    lived.go_on()
    return "NotNow" in lived.refusal


def _local_queue_not_read(lived: Life) -> bool:
    lived.go_on()
    return "could not be read" in lived.refusal_by_local_queue


def _namespace_not_read(lived: Life) -> bool:
    lived.go_on()
    return "could not be read" in lived.refusal_by_namespace


def _no_group_made(lived: Life) -> bool:
    name = lived.stage.own_group(lived.plain[0])
    return lived.stage.api.find(POD_GROUPS, name, lived.stage.namespace) is None


def _not_trusted(resource: Resource, name: str) -> Callable[[Life], bool]:
    return lambda lived: lived.trusted(resource, name) == []


def _no_certificate(lived: Life) -> bool:
    return not lived.muster.ready() and "[-]webhook-certificate failed" in lived.muster.readyz()


def _not_renewed(lived: Life) -> bool:
    return lived.stored() == lived.served


def _of_configuration(resource: Resource, name: str) -> dict[str, Any]:
    missing = _not_trusted(resource, name)
    return {f"{verb} {resource.plural} {name}": missing for verb in ("get", "patch")}


# What is not as it should be without a right.
MISSING: dict[str, Callable[[Life], bool]] = {
    "create subjectaccessreviews": _no_user_admitted,
    "get localqueues": _local_queue_not_read,
    "get namespaces": _namespace_not_read,
    **_of_configuration(VALIDATING_WEBHOOKS, "kube-muster"),
    **_of_configuration(MUTATING_WEBHOOKS, "kube-muster"),
    **_of_configuration(MUTATING_WEBHOOKS, "kube-muster-pods"),
    "get secrets muster-webhook-certificate": _no_certificate,
    "create secrets": _no_certificate,
    "patch secrets muster-webhook-certificate": _not_renewed,
}
