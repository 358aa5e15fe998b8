"""Kueue next to Muster: its jobs are left alone, and `muster check` reports it.

Its kinds are installed; the tests play its controller.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.resources import LOCAL_QUEUES, NAMESPACES, POD_GROUPS, Resource
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.training_runs import remove_kind
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
LABEL = "kueue.x-k8s.io/queue-name"
GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"
LOCAL_QUEUE_KIND = Resource(f"/apis/{GROUP}/{VERSION}", "localqueues")


def crd() -> Json:
    """Return the CRD of Kueue's LocalQueue, without its schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # the API server asks that of groups below k8s.io
        "metadata": {
            "name": f"localqueues.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of tests"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "LocalQueue", "plural": "localqueues", "singular": "localqueue"},
            "versions": [version],
        },
    }


@pytest.fixture
def kueue(stage: Stage) -> Iterator[None]:
    """Install the kind, the rights for jobs and a queue for the namespace before Muster looks for them."""
    kind = manifests.install(stage.api, [crd()])
    written = manifests.apply(stage.api, "jobs/batch/rbac.yaml")
    record = {"annotations": {objects.QUEUE_NAME: "default"}}
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": record})
    yield
    manifests.remove(stage.api, written)
    remove_kind(stage.api, kind[0]["metadata"]["name"])


def their_local_queue(stage: Stage, name: str) -> None:
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "LocalQueue"}
    meta = {"name": name, "namespace": stage.namespace}
    stage.api.create(LOCAL_QUEUE_KIND, {**head, "metadata": meta, "spec": {"clusterQueue": "main"}})


def events(stage: Stage) -> list[tuple[str, list[str]]]:
    """Return the state of each finding of `muster check` about Kueue, and the objects that it names."""
    found = json.loads(Shell(stage.cluster, ADMIN, "kube-muster")("check", "-o", "json").stdout)
    about = [(each["state"], each["message"]) for each in found if each["subject"] == "Kueue"]
    return [(state, re.findall(rf"{stage.namespace}/([\w/]+)", message)) for state, message in about]


def test_jobs_of_kueue_are_left_alone_and_check_names_them(
    stage: Stage, kueue: None, muster_user: User
) -> None:
    stage.nodes(1, cpu="4")
    stage.start_controller_manager()
    stage.start_sidecar(stage.start_muster(user=muster_user), user=muster_user)
    their_local_queue(stage, "door")
    ours = objects.local_queue("gate", namespace=stage.namespace, queue="default")
    stage.api.create(LOCAL_QUEUES, ours)
    made = {
        name: stage.job(name, suspend=True, parallelism=2, labels={LABEL: local})
        for name, local in (("theirs", "door"), ("lost", "nowhere"), ("ours", "gate"))
    }
    stage.jobs.wait_pods("ours", 2, "Running")
    assert all(stage.jobs.get(name)["spec"]["suspend"] for name in ("theirs", "lost"))
    units = {each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, stage.namespace)}
    assert units == {f"podgroup-{made['ours']['metadata']['uid']}"}
    assert events(stage) == [("ok", ["job/theirs"]), ("wrong", ["job/lost", "nowhere"])]

    stage.jobs.resume("theirs")
    stage.jobs.wait_pods("theirs", 2, "Running")
    assert not stage.jobs.get("theirs")["spec"]["suspend"], "who has let it go is not Muster's business"

    late = objects.local_queue("nowhere", namespace=stage.namespace, queue="default")
    stage.api.create(LOCAL_QUEUES, late)
    unit = f"podgroup-{made['lost']['metadata']['uid']}"
    wait_for(lambda: stage.api.find(POD_GROUPS, unit, stage.namespace), what="the job is Muster's now")
    stage.wait_reason(unit, "NoRoom", "Fragmented")
    assert events(stage) == [("ok", [])]


def test_check_names_a_local_queue_of_both(stage: Stage, kueue: None) -> None:
    their_local_queue(stage, "door")
    printed = Shell(stage.cluster, ADMIN, stage.namespace).output("migrate", "kueue")
    assert "kind: LocalQueue\nmetadata:\n  name: door\n" in printed
    stage.api.create(LOCAL_QUEUES, objects.local_queue("door", namespace=stage.namespace, queue="default"))
    assert events(stage)[0] == ("wrong", ["door"])
