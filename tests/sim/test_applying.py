"""Server-side apply: fields have owners."""

from typing import Any

import pytest

from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import Conflict, Invalid, NotFound, Refused
from extender.kube.requests import APPLY
from tests.e2e.harness import objects
from tests.sim.requests import MERGE, POD_GROUPS, PODS, QUEUES, Json, ask, create, get, pod

QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}


def apply(connection: Connection, path: str, body: Json, manager: str = "me", **query: str) -> Json:
    query = {"fieldManager": manager, **query} if manager else query
    found: Json = ask(connection, "PATCH", path, body, content_type=APPLY, query=query)
    return found


def queue(name: str = "q", labels: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return {**QUEUE, "metadata": metadata, "spec": spec}


def owners(obj: Json) -> dict[str, Json]:
    return {
        f"{entry['manager']} {entry['operation']} {entry.get('subresource', '')}".strip(): entry["fieldsV1"]
        for entry in obj["metadata"]["managedFields"]
    }


def test_an_object_is_made_and_its_fields_are_its_managers(connection: Connection) -> None:
    made = apply(connection, f"{QUEUES}/q", queue(weight=2, capability={"cpu": "4"}))
    assert made["spec"]["weight"] == 2
    assert owners(made) == {"me Apply": {"f:spec": {"f:weight": {}, "f:capability": {"f:cpu": {}}}}}
    assert get(connection, f"{QUEUES}/q") == made


def test_applying_the_same_object_again_changes_nothing(connection: Connection) -> None:
    made = apply(connection, f"{QUEUES}/q", queue(weight=2))
    assert apply(connection, f"{QUEUES}/q", queue(weight=2)) == made


def test_a_field_that_is_no_longer_applied_is_removed(connection: Connection) -> None:
    apply(connection, f"{QUEUES}/q", queue(labels={"a": "1"}, weight=2, capability={"cpu": "4"}))
    apply(connection, f"{QUEUES}/q", queue(labels={"b": "2"}), manager="other")
    left = apply(connection, f"{QUEUES}/q", queue(weight=2))
    assert "capability" not in left["spec"]
    assert left["metadata"]["labels"] == {"b": "2"}


def test_a_field_that_two_managers_apply_stays_until_neither_does(connection: Connection) -> None:
    for manager in ("me", "other"):
        apply(connection, f"{QUEUES}/q", queue(weight=2, parent="root"), manager=manager)
    assert apply(connection, f"{QUEUES}/q", queue(weight=2))["spec"]["parent"] == "root"
    left = apply(connection, f"{QUEUES}/q", queue(weight=2), manager="other")
    assert "parent" not in left["spec"]


def test_another_managers_field_is_a_conflict_unless_forced(connection: Connection) -> None:
    apply(connection, f"{QUEUES}/q", queue(weight=2, parent="root"), manager="other")
    with pytest.raises(Conflict) as refusal:
        apply(connection, f"{QUEUES}/q", queue(weight=3))
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "other": .spec.weight'
    with pytest.raises(Conflict) as refusal:
        apply(connection, f"{QUEUES}/q", queue(weight=3, parent="top"))
    assert refusal.value.message.endswith(":\n- .spec.parent\n- .spec.weight")
    assert set(refusal.value.fields) == {".spec.parent", ".spec.weight"}
    forced = apply(connection, f"{QUEUES}/q", queue(weight=3), force="true")
    assert forced["spec"] == {**forced["spec"], "weight": 3, "parent": "root"}
    assert owners(forced) == {
        "other Apply": {"f:spec": {"f:parent": {}}},
        "me Apply": {"f:spec": {"f:weight": {}}},
    }


def test_writing_over_a_field_makes_its_owner(connection: Connection) -> None:
    create(connection, QUEUES, queue(weight=2))
    patched = ask(
        connection,
        "PATCH",
        f"{QUEUES}/q",
        {"spec": {"weight": 3}, "metadata": {"labels": {"a": "1"}}},
        content_type=MERGE,
        query={"fieldManager": "editor"},
    )
    assert owners(patched)["editor Update"] == {
        "f:spec": {"f:weight": {}},
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
    }
    with pytest.raises(Conflict, match=r'conflict with "editor" using scheduling\.volcano\.sh/v1beta1: '):
        apply(connection, f"{QUEUES}/q", queue(weight=4))
    assert apply(connection, f"{QUEUES}/q", queue(weight=3))["spec"]["weight"] == 3


def test_conditions_are_merged_by_their_type(connection: Connection) -> None:
    create(connection, QUEUES, objects.queue("q"))

    def entry(type_: str, manager: str, **more: str) -> Json:
        condition = {"type": type_, "status": "True", **more}
        wanted = {**QUEUE, "metadata": {"name": "q"}, "status": {"conditions": [condition]}}
        return apply(connection, f"{QUEUES}/q/status", wanted, manager=manager)

    entry("A", "a", reason="Because")
    both = entry("B", "b")["status"]["conditions"]
    assert [each["type"] for each in both] == ["A", "B"]
    again = entry("A", "a")
    assert [each.get("reason") for each in again["status"]["conditions"]] == [None, None]
    key = 'k:{"type":"A"}'
    assert owners(again)["a Apply status"]["f:status"]["f:conditions"] == {
        key: {".": {}, "f:type": {}, "f:status": {}}
    }


def test_containers_are_merged_by_their_name(connection: Connection) -> None:
    create(connection, PODS, pod())
    name = get(connection, f"{PODS}/a")["spec"]["containers"][0]["name"]
    containers = [{"name": name, "image": "another"}]
    wanted = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": containers},
    }
    with pytest.raises(Conflict, match=r'spec.containers\[name="main"\].image'):
        apply(connection, f"{PODS}/a", wanted)
    (container,) = apply(connection, f"{PODS}/a", wanted, force="true")["spec"]["containers"]
    assert (container["image"], container["resources"]["requests"]["cpu"]) == ("another", "1")


def test_status_is_applied_through_its_subresource_only(connection: Connection) -> None:
    apply(connection, f"{QUEUES}/q", {**queue(weight=2), "status": {"state": "Open"}})
    assert "status" not in get(connection, f"{QUEUES}/q")
    through = apply(connection, f"{QUEUES}/q/status", {**queue(weight=9), "status": {"state": "Open"}})
    assert (through["status"]["state"], through["spec"]["weight"]) == ("Open", 2)
    with pytest.raises(NotFound):
        apply(connection, f"{QUEUES}/none/status", {**queue("none"), "status": {"state": "Open"}})


def test_muster_writes_the_state_of_a_queue(connection: Connection, cluster: ApiClient) -> None:
    made = create(connection, QUEUES, objects.queue("q"))
    version = cluster.set_queue_status_state("q", made["metadata"]["uid"], "Open")
    written = get(connection, f"{QUEUES}/q")
    assert (written["status"], written["metadata"]["resourceVersion"]) == ({"state": "Open"}, version)
    assert owners(written)["queue-controller Apply status"] == {"f:status": {"f:state": {}}}
    with pytest.raises(Conflict):
        cluster.set_queue_status_state("q", "another", "Open")
    with pytest.raises(Conflict):
        cluster.set_queue_status_state("q", made["metadata"]["uid"], "Closed", version="1")


def test_apply_demands_a_field_manager(connection: Connection) -> None:
    with pytest.raises(Invalid) as refusal:
        apply(connection, f"{QUEUES}/q", queue(), manager="")
    assert refusal.value.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )
    bodies: list[Any] = [
        {"metadata": {"name": "q"}},
        {**queue(), "apiVersion": "v1"},
        {**queue(), "metadata": {"name": "another"}},
        {**queue(), "metadata": {"name": "q", "managedFields": []}},
        [],
    ]
    for body in bodies:
        with pytest.raises(Refused) as wrong:
            apply(connection, f"{QUEUES}/q", body)
        assert wrong.value.status == 400
    with pytest.raises(Conflict, match="uid mismatch"):
        apply(connection, f"{QUEUES}/q", {**queue(), "metadata": {"name": "q", "uid": "u"}})
    with pytest.raises(Invalid, match="force: Forbidden"):
        ask(connection, "PATCH", f"{QUEUES}/q", {}, content_type=MERGE, query={"force": "true"})


def test_yaml_is_read_and_nothing_is_stored_on_a_dry_run(connection: Connection) -> None:
    text = (
        b"apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec:\n  weight: 3\n"
    )
    query = {"fieldManager": "me", "dryRun": "All"}
    connection.request("PATCH", f"{QUEUES}/q", body=text, content_type=APPLY, query=query)
    with pytest.raises(NotFound):
        get(connection, f"{QUEUES}/q")
    connection.request("PATCH", f"{QUEUES}/q", body=text, content_type=APPLY, query={"fieldManager": "me"})
    assert get(connection, f"{QUEUES}/q")["spec"]["weight"] == 3


def test_the_account_is_wiped_out_on_request(connection: Connection) -> None:
    made = apply(connection, f"{QUEUES}/q", queue(weight=2))
    made["metadata"]["managedFields"] = [{}]
    assert "managedFields" not in ask(connection, "PUT", f"{QUEUES}/q", made)["metadata"]
    assert apply(connection, f"{QUEUES}/q", queue(weight=3), manager="other")["spec"]["weight"] == 3


def test_deleted_fields_have_no_manager(connection: Connection) -> None:
    group = objects.pod_group("g", namespace="default", min_member=1)
    group |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group["metadata"]["labels"] = {"a": "1", "b": "2"}
    apply(connection, f"{POD_GROUPS}/g", group)
    patch = {"metadata": {"labels": {"a": None}}}
    left = ask(connection, "PATCH", f"{POD_GROUPS}/g", patch, content_type=MERGE)
    assert owners(left)["me Apply"]["f:metadata"]["f:labels"] == {"f:b": {}}
