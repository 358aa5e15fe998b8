"""A tenant with every right in a namespace writes what the API allows: gangs of others start as before.

`make hostile` does it with several times as many objects.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.e2e.harness import manifests, policies
from tests.e2e.harness.access import User
from tests.e2e.harness.attacks import ATTACKS, MALLORY, TIMES, Tenant, absent_queues
from tests.e2e.harness.cleanup import empty
from tests.e2e.harness.client import Client
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS, PODS, REPLICA_SETS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port, configured, wait_in_force
from tests.e2e.test_floods import floods
from tests.fuzz.target import Target

PROMPT_SECONDS = 2.0  # seconds for a gang of somebody else to run
TRIES = 3  # gangs, since whatever else the machine does may delay one
MAX_GROWTH = 1.2  # of memory, once the objects are gone
RBAC = "rbac.authorization.k8s.io"


@contextmanager
def mallory(stage: Stage) -> Iterator[Client]:
    """Yield a user who may do everything in a namespace of her name."""
    manifests.ensure_namespace(stage.api, MALLORY)
    kind = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "all", "namespace": MALLORY}}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "all"}
    user = {"apiGroup": RBAC, "kind": "User", "name": MALLORY}
    manifests.apply_one(stage.api, {**kind, "kind": "Role", "rules": [rule]})
    manifests.apply_one(stage.api, {**kind, "kind": "RoleBinding", "roleRef": reference, "subjects": [user]})
    with stage.api.acting_as(MALLORY) as client:
        try:
            yield client
        finally:
            forget(stage)


def forget(stage: Stage) -> None:
    for resource in (REPLICA_SETS, PODS, POD_GROUPS):
        empty(stage.api, resource, MALLORY)


class Watch:
    """Watch on the starts of another tenant's gang, and on Muster's memory."""

    def __init__(self, stage: Stage, muster: Muster) -> None:
        self._stage, self._gangs = stage, 0
        self._target = Target(muster.ports, muster.process.pid)
        self.slow: dict[str, float] = {}

    def megabytes(self) -> float:
        return self._target.megabytes()

    def look(self, during: str) -> float:
        """Return the seconds until the promptest gang runs."""
        best = PROMPT_SECONDS + 1
        for _ in range(TRIES):
            self._gangs += 1
            began = time.monotonic()
            gang = self._stage.gang(f"plain{self._gangs}", 3, cpu="100m")
            self._stage.wait_phase(gang)
            best = min(best, time.monotonic() - began)
            self._stage.delete_pods(gang)
            self._stage.api.delete(POD_GROUPS, f"plain{self._gangs}", self._stage.namespace)
            if best <= PROMPT_SECONDS:
                return best
        self.slow[during] = best
        return best


@pytest.mark.alone
@pytest.mark.timeout(300 * TIMES)
def test_objects_of_one_tenant_delay_no_gang_of_another(stage: Stage, muster_user: User) -> None:
    stage.nodes(4, cpu="8")
    webhooks = Port()
    with ExitStack() as stack:
        stack.enter_context(policies.in_force(stage.api, stage.namespace))
        stack.enter_context(configured(stage.api, webhooks))
        muster = stage.start_muster(*webhooks.flags("self-signed"), user=muster_user, view=True)
        wait_in_force(stage.api)
        stage.start_sidecar(muster, user=muster_user)
        tenant = Tenant(stack.enter_context(mallory(stage)), stage.group("victim", 3))
        watch = Watch(stage, muster)
        watch.look("before")
        absent_queues(tenant)  # once, so that what is kept for good is there
        forget(stage)
        before = watch.megabytes()
        for attack in ATTACKS:
            made = attack(tenant)
            seconds, most = watch.look(attack.__name__), watch.megabytes()
            forget(stage)
            print(f"{attack.__name__}: {made} objects, {seconds:.2f} s, {most:.0f} MB")  # noqa: T201
        with floods({**muster.ports, "webhooks": webhooks.number}):
            seconds = watch.look("floods")
        print(f"floods: {seconds:.2f} s; {before:.0f} MB before, {watch.megabytes():.0f} MB now")  # noqa: T201
        assert watch.slow == {}
        wait_for(lambda: watch.megabytes() <= MAX_GROWTH * before, what="the memory is given back")
        assert muster.ready()
