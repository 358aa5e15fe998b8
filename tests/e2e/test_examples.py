"""Outcomes of workloads on a real control plane, compared to `muster run` and `muster simulate`.

The workloads are those whose controllers are here, each kind by its fields.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy

import pytest
import yaml

from extender.sim.show.cluster_state import ShownObjects, observe
from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import User
from tests.e2e.harness.cleanup import clean
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobset import JOB_SET, JOB_SETS
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
)
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.sim.examples_by_field import (
    NOT_ASKED,
    STARTED,
    Json,
    examples,
)
from tests.sim.examples_by_field import (
    QUEUES as QUEUES_OF_EXAMPLES,
)

pytestmark = [pytest.mark.jobset, pytest.mark.usefixtures("job_rights")]

KINDS = ("deployment", "indexed-job", "job", "jobset", "replicaset", "statefulset")
EXAMPLES = list(examples(KINDS))


@pytest.fixture
def rights(cluster: ControlPlane) -> Iterator[None]:
    """Grant the rights before Muster looks for them."""
    with manifests.applied(cluster.admin, "jobs/jobset/rbac.yaml"):
        yield


@pytest.fixture
def muster(stage: Stage, rights: None, muster_user: User) -> Iterator[Muster]:
    """Yield Muster with the sidecar's scheduler, controllers, and a namespace for each of the examples."""
    stage.nodes(40, cpu="64", memory="256Gi", pods="110")
    stage.start_controller_manager()
    stage.start_operator(JOB_SET)
    for queue in yaml.safe_load_all(QUEUES_OF_EXAMPLES):
        stage.api.create(QUEUES, queue)
    muster = stage.start_muster(user=muster_user)
    stage.start_sidecar(muster, user=muster_user)
    for example in EXAMPLES:
        stage.api.create(NAMESPACES, objects.namespace(example.namespace))
        for body in example.objects:
            resource = manifests.resource_of(stage.api, body)
            stage.api.create(resource, without_volumes(body))
    yield muster
    for example in EXAMPLES:  # JobSets first: their controller makes missing Jobs again
        stage.api.delete_all(JOB_SETS, example.namespace)
        clean(stage.api, example.namespace)


def without_volumes(body: Json) -> Json:
    """Return an object without volumes: there is no storage here."""
    body = deepcopy(body)
    if body["spec"].pop("volumeClaimTemplates", None):
        for container in body["spec"]["template"]["spec"]["containers"]:
            container.pop("volumeMounts", None)
    return body


def outcomes(stage: Stage, muster: Muster) -> dict[str, set[str]]:
    """Return outcomes by namespace: of its groups, whether they started or why they wait.

    A namespace without groups or running pods has the outcome that Muster was not asked.
    """
    shown = ShownObjects(
        queues=stage.api.items(QUEUES),
        groups=stage.api.items(POD_GROUPS),
        pods=stage.api.items(PODS),
        nodes=stage.api.items(NODES),
        namespaces=stage.api.items(NAMESPACES),
        local_queues=stage.api.items(LOCAL_QUEUES),
    )
    state = observe(shown, lambda page: muster.debug(f"/debug/{page}"))
    found = defaultdict[str, set[str]](set)
    for gang in state.gangs:
        found[gang.group.namespace].add(STARTED if gang.has_started else gang.group.reason)
    for pod in state.single_pods:
        found[pod.namespace].add("runs without Muster" if pod.has_started else NOT_ASKED)
    return {each.namespace: found[each.namespace] or {NOT_ASKED} for each in EXAMPLES}


def test_examples_have_the_documented_outcome_in_run_and_simulate(stage: Stage, muster: Muster) -> None:
    assert len(EXAMPLES) >= 50
    expected = {example.namespace: {example.outcome} for example in EXAMPLES}
    with suppress(TimeoutError):
        wait_for(lambda: outcomes(stage, muster) == expected, what="the outcomes")
    assert outcomes(stage, muster) == expected
