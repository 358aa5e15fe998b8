"""Patches, versions, and what may not change."""

import pytest

from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import Conflict, Invalid, NotFound, Refused
from tests.e2e.api_requests import job
from tests.e2e.harness import objects
from tests.sim.requests import (
    EVENTS,
    JOBS,
    JSON_PATCH,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    STRATEGIC,
    Json,
    ask,
    create,
    patch,
    pod,
)


def test_three_forms_of_patch(connection: Connection) -> None:
    create(connection, PODS, pod(labels={"a": "1"}))
    path = f"{PODS}/a"
    patch(connection, path, {"metadata": {"labels": {"a": None, "b": "2"}}})
    patch(connection, path, [{"op": "add", "path": "/metadata/labels/c~1d", "value": "3"}], JSON_PATCH)
    changed = patch(connection, path, {"metadata": {"labels": {"e": "4"}}}, STRATEGIC)
    assert changed["metadata"]["labels"] == {"b": "2", "c/d": "3", "e": "4"}
    with pytest.raises(Invalid):
        patch(connection, path, [{"op": "test", "path": "/metadata/labels/b", "value": "x"}], JSON_PATCH)


def test_crds_know_no_strategic_patch(connection: Connection) -> None:
    create(connection, QUEUES, objects.queue("q"))
    with pytest.raises(Refused) as refusal:
        patch(connection, f"{QUEUES}/q", {"spec": {"weight": 2}}, STRATEGIC)
    assert refusal.value.status == 415


def test_a_strategic_patch_merges_conditions_by_type(connection: Connection) -> None:
    create(connection, PODS, pod())
    path = f"{PODS}/a/status"
    patch(connection, path, {"status": {"conditions": [{"type": "A", "status": "True"}]}}, STRATEGIC)
    changed = patch(
        connection, path, {"status": {"conditions": [{"type": "B", "status": "True"}]}}, STRATEGIC
    )
    assert [each["type"] for each in changed["status"]["conditions"]] == ["A", "B"]


def test_a_change_of_nothing_leaves_no_trace(connection: Connection) -> None:
    before = create(connection, PODS, pod(labels={"a": "1"}))
    assert patch(connection, f"{PODS}/a", {"metadata": {"labels": {"a": "1"}}}) == before


def test_an_outdated_version_is_a_conflict(connection: Connection) -> None:
    made = create(connection, QUEUES, objects.queue("q"))
    made["spec"]["weight"] = 2
    newer = ask(connection, "PUT", f"{QUEUES}/q", made)
    assert newer["spec"]["weight"] == newer["metadata"]["generation"] == 2
    with pytest.raises(Conflict):
        ask(connection, "PUT", f"{QUEUES}/q", made)


def test_status_goes_through_its_subresource_and_nothing_else_does(connection: Connection) -> None:
    for path, made, field in ((QUEUES, objects.queue("x"), "state"), (NODES, objects.node("x"), "phase")):
        create(connection, path, made)
        both = {"status": {field: "Open"}, "metadata": {"labels": {"l": "1"}}}
        through_status = patch(connection, f"{path}/x/status", {**both, "spec": {"weight": 9}})
        assert through_status["status"][field] == "Open"
        assert through_status["spec"].get("weight") != 9
        plain = patch(
            connection, f"{path}/x", {"status": {field: "Closed"}, "metadata": {"labels": {"l": "1"}}}
        )
        assert (plain["status"][field], plain["metadata"]["labels"]["l"]) == ("Open", "1")


def test_a_queue_is_born_without_status_a_node_with(connection: Connection) -> None:
    assert "status" not in create(connection, QUEUES, {**objects.queue("q"), "status": {"state": "Closed"}})
    assert create(connection, NODES, objects.node("n0"))["status"]["allocatable"]["cpu"] == "4"


def test_a_podgroup_has_no_status_subresource(connection: Connection) -> None:
    create(connection, POD_GROUPS, objects.pod_group("g", namespace="default", min_member=1))
    assert patch(connection, f"{POD_GROUPS}/g", {"status": {"phase": "Running"}})["status"] == {
        "phase": "Running"
    }
    with pytest.raises(NotFound):
        patch(connection, f"{POD_GROUPS}/g/status", {"status": {"phase": "Running"}})


def test_gates_can_only_be_removed_and_fields_of_a_pod_are_immutable(connection: Connection) -> None:
    create(connection, PODS, pod(schedulingGates=[{"name": "one"}]))
    for change in ({"schedulingGates": [{"name": "two"}]}, {"schedulerName": "other"}, {"nodeName": "n0"}):
        with pytest.raises(Invalid):
            patch(connection, f"{PODS}/a", {"spec": change})
    patch(connection, f"{PODS}/a", {"spec": {"nodeSelector": {"zone": "a"}}})
    patch(connection, f"{PODS}/a", {"spec": {"schedulingGates": None}})
    with pytest.raises(Invalid):
        patch(connection, f"{PODS}/a", {"spec": {"nodeSelector": {"zone": "b"}}})


def test_events_are_made_and_counted_up(connection: Connection) -> None:
    cluster = ApiClient(connection)
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    meta = {"name": "a.1", "namespace": "default"}
    cluster.create_event({"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about})
    cluster.patch_event("default", "a.1", {"count": 2, "message": "again"})
    found = ask(connection, "GET", f"{EVENTS}/a.1")
    assert (found["count"], found["involvedObject"]) == (2, about)
    with pytest.raises(NotFound):
        cluster.patch_event("default", "expired", {"count": 2})


def test_a_json_patch_that_tests_identity_and_version(connection: Connection) -> None:
    made = create(connection, JOBS, job("j", suspend=True))
    resume = {"op": "replace", "path": "/spec/suspend", "value": False}

    def tested(**meta: str) -> list[Json]:
        return [
            *({"op": "test", "path": f"/metadata/{name}", "value": value} for name, value in meta.items()),
            resume,
        ]

    meta = made["metadata"]
    for wrong in ({"uid": "x"}, {"uid": meta["uid"], "resourceVersion": "1"}):
        with pytest.raises(Invalid):
            patch(connection, f"{JOBS}/j", tested(**wrong), JSON_PATCH)
    guarded = tested(uid=meta["uid"], resourceVersion=meta["resourceVersion"])
    assert patch(connection, f"{JOBS}/j", guarded, JSON_PATCH)["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"template": {"metadata": {"labels": {"a": "2"}}}}, "spec.template"),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, "spec.template"),
        ({"completions": 5}, "spec.completions"),
        ({"completionMode": "Indexed"}, "spec.completionMode"),
    ],
)
def test_immutable_fields_of_a_running_job_are_refused(
    connection: Connection, spec: Json, field: str
) -> None:
    create(connection, JOBS, job("j"))
    with pytest.raises(Invalid, match=rf"{field}: .*field is immutable"):
        patch(connection, f"{JOBS}/j", {"spec": spec})


def test_pod_templates_may_change_while_their_job_is_suspended(connection: Connection) -> None:
    create(connection, JOBS, job("j", suspend=True))
    template = {"metadata": {"annotations": {"a": "1"}}, "spec": {"nodeSelector": {"a": "b"}}}
    changed = patch(connection, f"{JOBS}/j", {"spec": {"suspend": False, "template": template}})
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    create(connection, JOBS, job("k", suspend=True))
    with pytest.raises(Invalid, match=r"spec\.template"):
        patch(connection, f"{JOBS}/k", {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
