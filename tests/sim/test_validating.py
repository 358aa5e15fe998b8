"""Refusals of a real API server, repeated here with its messages.

Many more requests are compared with a real one in tests/e2e/test_api_parity.py.
"""

from typing import Any

import pytest

from extender.apimachinery.errors import StatusError
from extender.apimachinery.field_schemas import schema_of
from extender.apimachinery.kinds import PODS as PODS_KIND
from extender.apimachinery.kinds import QUEUES as QUEUES_KIND
from extender.apimachinery.service import Service
from extender.kube.connection import Connection
from extender.kube.errors import Forbidden, Invalid, NotFound, Refused
from tests.e2e.harness import objects
from tests.rows import each_of
from tests.sim.requests import NODES, POD_GROUPS, PODS, QUEUES, Json, ask, create, get, patch, pod


def pod_requesting(requests: Json, limits: Json) -> Json:
    new_pod = pod()
    new_pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    return new_pod


def group(**spec: Any) -> Json:
    return {"metadata": {"name": "g"}, "spec": spec}


def volcano_job(**spec: Any) -> Json:
    return {"metadata": {"name": "v"}, "spec": {"tasks": [{"replicas": 2}], **spec}}


MAIN = {"name": "main", "image": "none"}
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


@each_of(
    (PODS, pod("x_y"), 'Pod "x_y" is invalid: metadata.name: Invalid value: "x_y": a lowercase RFC 1123'),
    (PODS, pod(labels={"a b": "1"}), 'metadata.labels: Invalid value: "a b": name part must consist of'),
    (PODS, pod(containers=[]), "spec.containers: Required value"),
    (PODS, pod(containers=[MAIN, MAIN]), 'spec.containers[1].name: Duplicate value: "main"'),
    (PODS, pod(containers=[{"name": "main"}]), "spec.containers[0].image: Required value"),
    (
        PODS,
        pod(cpu="-1"),
        'resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (PODS, pod_requesting({"cpu": "2"}, {"cpu": "1"}), "must be less than or equal to cpu limit of 1"),
    (
        PODS,
        pod_requesting({"example.com/gpu": "1"}, {}),
        "Required value: Limit must be set for non overcommitable",
    ),
    (NODES, objects.node("n", cpu="-4"), 'status.allocatable.cpu: Invalid value: "-4"'),
    (QUEUES, objects.queue("Q"), 'Queue.scheduling.volcano.sh "Q" is invalid: metadata.name'),
    (QUEUES, objects.queue("q", weight=0), "spec.weight in body should be greater than or equal to 1"),
    (QUEUES, objects.queue("q", capability={"cpu": "-1"}), "must be a quantity that is not negative"),
    (QUEUES, objects.queue("q", state="Ajar"), 'Unsupported value: "Ajar": supported values: "Open"'),
    (
        VOLCANO_JOBS,
        volcano_job(policies=[{"event": "PodFailed", "action": "Explode"}]),
        "spec.policies[0].action: invalid value 'Explode': ",
    ),
    (POD_GROUPS, group(minMember=-1), "spec.minMember in body should be greater than or equal to 0"),
    (POD_GROUPS, group(minMember="3"), 'spec.minMember in body must be of type integer: "string"'),
)
def test_a_value_that_is_not_allowed_is_named(
    path: str, body: Json, message: str, *, connection: Connection
) -> None:
    with pytest.raises(Invalid) as refusal:
        create(connection, path, body)
    assert message in refusal.value.message


def test_a_volcano_job_gets_its_defaults_and_keeps_its_own_fields(connection: Connection) -> None:
    made = create(connection, VOLCANO_JOBS, volcano_job(plugins={"mpi": []}))["spec"]
    assert (made["tasks"], made["minAvailable"]) == ([{"name": "default0", "replicas": 2}], 2)
    assert {"schedulerName": "volcano", "maxRetry": 3}.items() <= made.items()
    assert made["plugins"].keys() == {"mpi", "svc", "ssh"}
    assert not {"parallelism", "completions", "backoffLimit"} & made.keys()
    patch(connection, f"{VOLCANO_JOBS}/v", {"spec": {"minAvailable": 1}})
    with pytest.raises(Invalid, match="only minAvailable, priorityClassName, and"):
        patch(connection, f"{VOLCANO_JOBS}/v", {"spec": {"queue": "other"}})
    with pytest.raises(Invalid, match="required value: at least one task"):
        create(connection, VOLCANO_JOBS, {"metadata": {"name": "none"}})


def test_all_faults_of_an_object_are_reported_at_once(connection: Connection) -> None:
    with pytest.raises(Invalid) as refusal:
        create(connection, PODS, pod("X", containers=[{}]))
    assert refusal.value.fields == (
        "metadata.name",
        "spec.containers[0].name",
        "spec.containers[0].image",
    )


def test_an_unreadable_body_is_a_bad_request(connection: Connection) -> None:
    for body, message in (
        (pod(containers="main"), "cannot unmarshal string into Go struct field PodSpec.spec.containers"),
        (pod(cpu="2x"), "quantities must match the regular expression"),
        ({**pod(), "apiVersion": "v2"}, "does not match the expected API version (v1)"),
    ):
        with pytest.raises(Refused) as refusal:
            create(connection, PODS, body)
        assert (refusal.value.status, message in refusal.value.message) == (400, True)


def test_a_namespace_that_is_not_there_is_named(connection: Connection) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        create(connection, "/api/v1/namespaces/nowhere/pods", {"metadata": {"name": "a"}})


def test_a_priority_is_not_chosen_by_the_pod(connection: Connection) -> None:
    with pytest.raises(Forbidden, match="must not be provided in pod spec"):
        create(connection, PODS, pod(priority=7))


def test_unknown_fields_are_dropped_or_refused_strictly(connection: Connection) -> None:
    misspelt = {**objects.queue("q"), "spec": {"wieght": 3}}
    with pytest.raises(Refused, match=r'strict decoding error: unknown field "spec\.wieght"'):
        ask(connection, "POST", QUEUES, misspelt, query={"fieldValidation": "Strict"})
    assert create(connection, QUEUES, misspelt)["spec"] == {
        "weight": 1,
        "priority": 0,
        "dequeueStrategy": "traverse",
    }


def test_changes_are_reviewed_too(connection: Connection) -> None:
    create(connection, QUEUES, objects.queue("q"))
    for path, change in (
        (f"{QUEUES}/q", {"spec": {"weight": 0}}),
        (f"{QUEUES}/q", {"metadata": {"labels": {"a b": "1"}}}),
        (f"{QUEUES}/q/status", {"status": {"pending": -1}}),
    ):
        with pytest.raises(Invalid):
            patch(connection, path, change)
    assert get(connection, f"{QUEUES}/q")["spec"]["weight"] == 1


def test_objects_from_files_are_reviewed_too(service: Service) -> None:
    with pytest.raises(StatusError, match="a lowercase RFC 1123 subdomain"):
        service.create(PODS_KIND, "", pod("x_y"))


def test_labels_of_any_name_are_validated_by_one_schema() -> None:
    """It would keep one for each label that it has ever seen."""
    labels = schema_of(PODS_KIND).field("metadata").field("labels")
    assert labels.field("a") is labels.field("b")


RULES: Json = {
    "ageing": 3_600_000,
    "borrowingLimit": {"cpu": "1"},
    "deserved": {"cpu": "6"},
    "dequeueStrategy": "mixed",
    "flavors": [{"name": "h100", "nodeLabels": {"kind": "h100"}, "deserved": {"nvidia.com/gpu": "8"}}],
    "lendingLimit": {"cpu": "2"},
    "oversell": "1.5",
    "preemption": {
        "atMost": "25s",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
        "minRuntime": "8s",
        "withinQueue": "Never",
    },
    "priority": 10,
    "priorityThreshold": 10,
}


def test_the_rules_of_a_queue_are_accepted_and_stored(service: Service) -> None:
    """Store each field and value; tests/test_manifests.py compares the fields to those that are read."""
    stored = service.create(QUEUES_KIND, "", {"metadata": {"name": "q"}, "spec": RULES})
    assert {name: stored["spec"][name] for name in RULES} == RULES
