"""New objects: identity, names, gates, defaults, and refused fields."""

import pytest

from extender.api.keys import GATE
from extender.kube.connection import Connection
from extender.kube.errors import Conflict, Invalid, NotFound, Refused
from tests.e2e.harness import objects
from tests.sim.requests import (
    PODS,
    QUEUES,
    Json,
    ask,
    create,
    get,
    pod,
)


def test_a_new_object_has_an_identity(connection: Connection) -> None:
    made = create(connection, PODS, pod())
    meta = made["metadata"]
    assert meta["uid"]
    assert meta["creationTimestamp"]
    assert int(meta["resourceVersion"]) > 0
    assert (made["kind"], made["apiVersion"], made["status"]["phase"]) == ("Pod", "v1", "Pending")
    assert get(connection, f"{PODS}/a") == made


def test_names_are_generated_unique_and_needed(connection: Connection) -> None:
    generated = {**pod(), "metadata": {"generateName": "worker-"}}
    made = {create(connection, PODS, generated)["metadata"]["name"] for _ in range(3)}
    assert len(made) == 3
    assert all(name.startswith("worker-") and len(name) == len("worker-") + 5 for name in made)
    with pytest.raises(Invalid):
        create(connection, PODS, {**pod(), "metadata": {}})


def test_a_name_is_taken_once(connection: Connection) -> None:
    create(connection, PODS, pod())
    with pytest.raises(Conflict) as refusal:
        create(connection, PODS, pod())
    assert refusal.value.reason == "AlreadyExists"


def test_a_namespace_must_exist(connection: Connection) -> None:
    elsewhere = {**pod(), "metadata": {"name": "a"}}
    with pytest.raises(NotFound):
        create(connection, "/api/v1/namespaces/elsewhere/pods", elsewhere)
    made = create(connection, "/api/v1/namespaces", objects.namespace("elsewhere"))
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "elsewhere"}
    create(connection, "/api/v1/namespaces/elsewhere/pods", elsewhere)


def test_nothing_is_stored_on_a_dry_run(connection: Connection) -> None:
    made = ask(connection, "POST", PODS, pod(scheduler="muster"), query={"dryRun": "All"})
    assert made["spec"]["schedulingGates"] == [{"name": GATE}]
    with pytest.raises(NotFound):
        get(connection, f"{PODS}/a")


@pytest.mark.parametrize("scheduler", ["muster", "volcano"])
def test_our_pods_are_created_with_our_gate_and_keep_other_gates(
    connection: Connection, scheduler: str
) -> None:
    made = create(connection, PODS, pod(scheduler=scheduler, schedulingGates=[{"name": "theirs"}]))
    assert made["spec"]["schedulingGates"] == [{"name": "theirs"}, {"name": GATE}]
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")


def test_pods_of_others_of_daemonsets_and_with_a_node_are_not_gated(connection: Connection) -> None:
    daemon = pod("d", scheduler="muster")
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    ]
    for made in (pod(), daemon, pod("placed", scheduler="muster", nodeName="n0")):
        assert not create(connection, PODS, made)["spec"].get("schedulingGates")


def test_a_gate_together_with_a_node_is_refused(connection: Connection) -> None:
    with pytest.raises(Invalid):
        create(connection, PODS, pod(nodeName="n0", schedulingGates=[{"name": "theirs"}]))


def test_priority_comes_from_the_class_or_the_default_one(connection: Connection) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    create(connection, classes, {"metadata": {"name": "high"}, "value": 1000})
    assert create(connection, PODS, pod("plain"))["spec"]["priority"] == 0
    create(connection, classes, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    assert create(connection, PODS, pod("usual"))["spec"]["priority"] == 7
    assert create(connection, PODS, pod("high", priorityClassName="high"))["spec"]["priority"] == 1000
    with pytest.raises(Refused) as refusal:
        create(connection, PODS, pod("none", priorityClassName="none"))
    assert refusal.value.status == 403


def test_limits_stand_for_requests_that_are_not_made(connection: Connection) -> None:
    new_pod = pod()
    new_pod["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1"},
    }
    made = create(connection, PODS, new_pod)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_nonsense_is_refused(connection: Connection) -> None:
    with pytest.raises(Invalid):
        create(connection, QUEUES, objects.queue("q", weight=0))
    with pytest.raises(Invalid):
        create(connection, PODS, {"metadata": {"name": "empty"}, "spec": {}})
    with pytest.raises(Refused, match="quantities must match"):
        create(connection, PODS, pod(cpu="2x"))
    with pytest.raises(Invalid):
        create(connection, QUEUES, objects.queue("q", capability={"cpu": "much"}))


@pytest.mark.parametrize(
    "spec",
    [
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_fields_that_the_embedded_cluster_does_not_play_are_refused(
    connection: Connection, spec: Json
) -> None:
    with pytest.raises(Invalid) as refusal:
        create(connection, PODS, pod(**spec))
    assert f"spec.{next(iter(spec))}: Forbidden: the embedded cluster does not play" in str(refusal.value)


def test_soft_constraints_and_volumes_without_storage_are_accepted(connection: Connection) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "c"}}]
    create(connection, PODS, pod(topologySpreadConstraints=[spread], volumes=volumes))
