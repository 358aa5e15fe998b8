"""Rights of a thief with the token of Muster's account: no more than Muster's."""

import base64
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from extender.api.keys import QUEUE_UID
from tests.e2e.harness import manifests, objects, volcano_jobs
from tests.e2e.harness.access import User
from tests.e2e.harness.client import JSON_PATCH, STRATEGIC, Client
from tests.e2e.harness.resources import (
    CONFIG_MAPS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    VOLUME_CLAIMS,
    Resource,
)
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
SYSTEM = "kube-system"
OTHER_GATE = "example.com/other"
VOLCANO_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "job", "uid": "u"}
OWNER = {**VOLCANO_JOB, "controller": True}
KINDS = {
    "ConfigMap": CONFIG_MAPS,
    "NetworkPolicy": NETWORK_POLICIES,
    "PersistentVolumeClaim": VOLUME_CLAIMS,
    "Secret": SECRETS,
    "Service": SERVICES,
}


@pytest.fixture
def thief(stage: Stage, muster_user: User) -> Iterator[Client]:
    """Yield a client with the stolen token, once the policies are in force."""
    stage.pods("shown", 1)
    with Client(stage.cluster.access(muster_user)) as client:
        number = count()  # a label that is there already is no change

        def label() -> None:
            labels = {"a": str(next(number))}
            client.patch(PODS, "shown-0", {"metadata": {"labels": labels}}, stage.namespace)

        wait_for(lambda: refusal(label), what="the policies in force")
        yield client


def refusal(action: Callable[[], object]) -> str:
    """Return the message of a policy, empty when the action passes; any other refusal is an error."""
    try:
        action()
    except ApiError as fault:
        if "ValidatingAdmissionPolicy 'kube-muster-account-" not in str(fault):
            raise
        return str(fault)
    return ""


def evict(client: Client, namespace: str, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    client.request("POST", PODS.path(namespace, name, "eviction"), body)


def test_the_token_changes_only_gates_conditions_and_annotations_of_pods(stage: Stage, thief: Client) -> None:
    stage.pods("gated", 1, gated=True, schedulingGates=[{"name": objects.GATE}, {"name": OTHER_GATE}])

    def patch(body: Json, sub: str = "", content: str = STRATEGIC, name: str = "gated-0") -> str:
        return refusal(partial(thief.patch, PODS, name, body, stage.namespace, sub, content))

    def condition(of: str) -> Json:
        return {"status": {"conditions": [{"type": of, "status": "False", "reason": "R", "message": "m"}]}}

    gated = stage.pod("gated-0")["spec"]
    container, tolerated = gated["containers"][0]["name"], gated["tolerations"]
    for spec in (
        {"containers": [{"name": container, "image": "evil"}]},
        {"activeDeadlineSeconds": 1},
        {"tolerations": [*tolerated, {"operator": "Exists"}]},
        {"nodeSelector": {"a": "b"}},
        {"schedulingGates": [{"$patch": "delete", "name": OTHER_GATE}]},
    ):
        assert "pod's spec" in patch({"spec": spec}), spec
    for metadata in (
        {"labels": {"app": "another"}},
        {"annotations": {"other": "value"}},
        {"finalizers": ["example.com/held"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
    ):
        assert "pod's metadata" in patch({"metadata": metadata}), metadata
    for status in ({"phase": "Failed"}, {"podIP": "10.0.0.1"}, condition("Ready")["status"]):
        assert "pod's status" in patch({"status": status}, "status"), status
    assert "pod's metadata" in patch({"metadata": {"labels": {"app": "another"}}}, "status")

    assert patch({"spec": {"schedulingGates": [{"$patch": "delete", "name": objects.GATE}]}}) == ""
    assert stage.pod("gated-0")["spec"]["schedulingGates"] == [{"name": OTHER_GATE}]
    for key in ("kube-muster.io/nudge", "scheduling.k8s.io/group-name"):
        assert patch({"metadata": {"annotations": {key: "x"}}}) == ""
    for of in ("PodScheduled", "DisruptionTarget"):
        assert patch(condition(of), "status") == ""
    assert patch({"status": {"nominatedNodeName": "n"}}, "status") == ""


def test_a_binding_by_muster_records_only_the_queue_of_a_pod(stage: Stage, thief: Client) -> None:
    """Labels and annotations of a binding end up on the pod."""
    (node,) = stage.nodes(1, cpu="4")
    (name,) = stage.pods("waits", 1)
    uid = stage.pod(name)["metadata"]["uid"]

    def bind(metadata: Json, path: str = PODS.path(stage.namespace, name, "binding")) -> str:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": stage.namespace, "uid": uid, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return refusal(partial(thief.request, "POST", path, body))

    plain = f"/api/v1/namespaces/{stage.namespace}/bindings"
    for metadata in ({"labels": {"app": "another"}}, {"annotations": {"other": "value"}}):
        assert "only its queue" in bind(metadata), metadata
    assert "only its queue" in bind({}, plain)
    assert stage.pod(name)["spec"].get("nodeName") is None
    assert bind({"annotations": {QUEUE_UID: f"q/{uid}"}}) == ""
    assert stage.pod(name)["spec"]["nodeName"] == node


def test_the_token_deletes_no_pods_and_evicts_none_of_kube_system(stage: Stage, thief: Client) -> None:
    stage.pods("tenants", 1)
    stage.api.create(PODS, objects.pod("systems", namespace=SYSTEM))
    stage.started.callback(stage.api.delete, PODS, "systems", SYSTEM, 0)
    for namespace, name in ((SYSTEM, "systems"), (stage.namespace, "tenants-0")):
        assert "it evicts them" in refusal(partial(thief.delete, PODS, name, namespace)), namespace
    assert "no pods of kube-system" in refusal(partial(evict, thief, SYSTEM, "systems"))
    evict(thief, stage.namespace, "tenants-0")
    wait_for(lambda: stage.api.find(PODS, "tenants-0", stage.namespace) is None, what="it is evicted")


def test_the_token_with_the_volcano_component_creates_and_deletes_only_pods_of_volcano_jobs(
    stage: Stage, thief: Client
) -> None:
    def pod(name: str, namespace: str, *owners: Json) -> Json:
        new_pod = objects.pod(name, namespace=namespace)
        return {**new_pod, "metadata": {**new_pod["metadata"], "ownerReferences": [*owners]}}

    def created(*named: Any) -> str:
        return refusal(partial(thief.create, PODS, pod(*named)))

    def may_create() -> bool:
        try:
            return created("first", stage.namespace, OWNER) == ""
        except ApiError:  # RBAC is read by watches, too
            return False

    with volcano_jobs.installed(stage.api):
        wait_for(may_create, what="the rights are there")
        others = {**OWNER, "apiVersion": "batch/v1"}, {**VOLCANO_JOB, "controller": False}
        for owners in ((), others[:1], others[1:]):
            assert "but those of Volcano Jobs" in created("second", stage.namespace, *owners)
        assert "pods of kube-system" in created("second", SYSTEM, OWNER)
        assert "it evicts them" in refusal(partial(thief.delete, PODS, "shown-0", stage.namespace))
        assert refusal(partial(thief.delete, PODS, "first", stage.namespace)) == ""


def test_objects_that_muster_creates_belong_to_a_volcano_job_and_have_no_more_than_it_needs(
    stage: Stage, thief: Client
) -> None:
    chosen = {"volcano.sh/job-name": "job"}
    number = count()

    def made(kind: str, namespace: str = "", owners: Any = (OWNER,), **rest: Any) -> str:
        group = "networking.k8s.io/v1" if kind == "NetworkPolicy" else "v1"
        meta = {
            "name": f"made-{next(number)}",
            "namespace": namespace or stage.namespace,
            "ownerReferences": [*owners],
        }
        body = {"apiVersion": group, "kind": kind, "metadata": meta, **rest}
        return refusal(partial(thief.create, KINDS[kind], body))

    allowed: dict[str, Json] = {
        "ConfigMap": {"data": {"a": "b"}},
        "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": chosen}}},
        "PersistentVolumeClaim": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        },
        "Secret": {"type": "Opaque"},
        "Service": {"spec": {"clusterIP": "None", "selector": chosen}},
    }

    def may_create(kind: str) -> bool:
        try:
            return made(kind, **allowed[kind]) == ""
        except ApiError:  # RBAC is read by watches, too
            return False

    others = {**OWNER, "apiVersion": "batch/v1"}, {**VOLCANO_JOB, "controller": False}
    not_owned = "belongs to a Volcano Job"
    with volcano_jobs.installed(stage.api):
        wait_for(lambda: all(map(may_create, allowed)), what="the rights are there")
        for kind, rest in allowed.items():
            for owners in ((), others[:1], others[1:]):
                assert not_owned in made(kind, owners=owners, **rest), kind
            for namespace in (SYSTEM, "kube-muster"):
                assert "nothing in kube-muster" in made(kind, namespace, **rest), kind
        assert "of the type Opaque" in made(
            "Secret", type="kubernetes.io/basic-auth", stringData={"username": "a"}
        )
        ports = {"ports": [{"port": 80}], "selector": chosen}
        for spec in (
            {**ports, "externalIPs": ["192.0.2.1"]},
            {**ports, "type": "NodePort"},
            {**ports, "type": "ExternalName", "externalName": "evil.example"},
        ):
            assert "without external addresses" in made("Service", spec=spec), spec
        others_pods: dict[str, Json] = {
            "Service": {"clusterIP": "None", "selector": {"a": "b"}},
            "NetworkPolicy": {"podSelector": {}},
        }
        for kind, spec in others_pods.items():
            assert "for the pods of their Volcano Job" in made(kind, spec=spec), kind
        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "foreign", "namespace": stage.namespace},
        }
        stage.api.create(CONFIG_MAPS, foreign)
        for change in ({"data": {"a": "evil"}}, {"metadata": {"ownerReferences": [OWNER]}}):
            patch = partial(thief.patch, CONFIG_MAPS, "foreign", change, stage.namespace)
            assert not_owned in refusal(patch), change


def test_the_token_takes_only_the_lease_of_its_own_scheduler(stage: Stage, thief: Client) -> None:
    def lease(name: str, namespace: str = SYSTEM) -> Json:
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {
            **kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": "evil"},
        }

    taken = stage.api.create(LEASES, lease("kube-scheduler"))
    stage.started.callback(stage.api.delete, LEASES, "kube-scheduler", SYSTEM)
    assert "no other" in refusal(partial(thief.replace, LEASES, taken))
    for name, namespace in (("another", SYSTEM), ("muster-scheduler", stage.namespace)):
        assert "no other" in refusal(partial(thief.create, LEASES, lease(name, namespace)))
    own = thief.create(LEASES, lease("muster-scheduler"))
    stage.started.callback(stage.api.delete, LEASES, "muster-scheduler", SYSTEM)
    assert refusal(partial(thief.replace, LEASES, own)) == ""


def test_the_token_writes_the_ca_of_its_webhooks_and_nothing_else(stage: Stage, thief: Client) -> None:
    own = stage.cluster.certificate.read_bytes()
    with manifests.applied(stage.api, "webhooks/validating.yaml", "webhooks/mutating.yaml"):
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            _only_the_authority(thief, resource, base64.b64encode(own).decode())


def _only_the_authority(thief: Client, resource: Resource, authority: str) -> None:
    def change(*operations: Json) -> str:
        body = [{"op": "test", "path": "/metadata/name", "value": "kube-muster"}, *operations]
        return refusal(partial(thief.patch, resource, "kube-muster", body, content=JSON_PATCH))

    first, config = "/webhooks/0", "/webhooks/0/clientConfig"
    for path, value in (
        (config, {"url": "https://evil.example"}),
        (f"{config}/service/name", "evil"),
        (f"{first}/matchPolicy", "Exact"),
        (f"{first}/rules/0/resources", ["*"]),
        (f"{first}/timeoutSeconds", 1),
        ("/metadata/labels", {"a": "b"}),
    ):
        assert "only clientConfig.caBundle" in change({"op": "replace", "path": path, "value": value}), path
    assert "only clientConfig.caBundle" in change({"op": "remove", "path": first})
    assert change({"op": "add", "path": f"{config}/caBundle", "value": authority}) == ""


@pytest.mark.usefixtures("job_rights")
def test_muster_changes_when_jobs_run_and_not_their_pods(stage: Stage, thief: Client) -> None:
    stage.job("held", suspend=True, parallelism=2)

    def patch(body: Json) -> str:
        return refusal(partial(thief.patch, JOBS, "held", body, stage.namespace, content=STRATEGIC))

    for spec in (
        {"backoffLimit": 1},
        {"ttlSecondsAfterFinished": 0},
        {"template": {"spec": {"nodeSelector": {"a": "b"}}}},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
        {"template": {"metadata": {"annotations": {"a": "b"}}}},
    ):
        assert "Muster changes only" in patch({"spec": spec}), spec
    assert "job's metadata" in patch({"metadata": {"annotations": {"a": "b"}}})
    group = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}}
    started = {"annotations": {"kube-muster.io/started": "now", "kube-muster.io/partial-start": "1/2"}}
    wanted = {"metadata": started, "spec": {"suspend": False, "parallelism": 1, "template": group}}
    assert patch(wanted) == ""
