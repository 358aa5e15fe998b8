"""Lists, selectors, and what is served at all."""

import pytest

from extender.apimachinery.service import Service
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.errors import Gone, NotFound, Refused
from tests.sim.requests import (
    PODS,
    ask,
    create,
    get,
    names,
    overflow_log,
    pod,
)

# ---- lists


def test_all_pages_of_a_list_show_one_version(connection: Connection) -> None:
    for number in range(5):
        create(connection, PODS, pod(f"p{number}"))
    first = get(connection, PODS, limit=2)
    ask(connection, "DELETE", f"{PODS}/p3")
    create(connection, PODS, pod("p2x"))
    second = get(connection, PODS, limit=2, **{"continue": first["metadata"]["continue"]})
    third = get(connection, PODS, limit=2, **{"continue": second["metadata"]["continue"]})
    assert [names(page) for page in (first, second, third)] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert first["metadata"]["remainingItemCount"] == 3
    assert "continue" not in third["metadata"]
    assert names(get(connection, PODS)) == ["p0", "p1", "p2", "p2x", "p4"]


def test_a_page_of_an_expired_version_is_gone(connection: Connection, service: Service) -> None:
    for number in range(3):
        create(connection, PODS, pod(f"p{number}"))
    first = get(connection, PODS, limit=2)
    create(connection, PODS, pod("later"))
    overflow_log(service.store)
    with pytest.raises(Gone):
        get(connection, PODS, limit=2, **{"continue": first["metadata"]["continue"]})


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=x", ["p0", "p1"]),
        ("app!=x", ["p2"]),
        ("app in (x,y),tier", ["p1"]),
        ("app notin (x)", ["p2"]),
        ("!tier", ["p0", "p2"]),
    ],
)
def test_labels_select(connection: Connection, selector: str, found: list[str]) -> None:
    for number, labels in enumerate(({"app": "x"}, {"app": "x", "tier": "1"}, {})):
        create(connection, PODS, pod(f"p{number}", labels=labels))
    assert names(get(connection, PODS, labelSelector=selector)) == found


def test_fields_select(connection: Connection) -> None:
    for name in ("p0", "p1"):
        create(connection, PODS, pod(name))
    ApiClient(connection).bind("default", "p1", "", "n0", {})
    assert names(get(connection, PODS, fieldSelector="spec.nodeName=n0")) == ["p1"]
    assert names(get(connection, PODS, fieldSelector="spec.nodeName=,status.phase=Pending")) == ["p0"]
    assert names(get(connection, "/api/v1/pods", fieldSelector="metadata.name!=p0")) == ["p1"]
    with pytest.raises(Refused) as refusal:
        get(connection, PODS, fieldSelector="spec.subdomain=x")
    assert refusal.value.status == 400


# ---- what is not there


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/apis/batch/v2/jobs", "/nowhere", f"{PODS}/a/log"])
def test_a_kind_that_is_not_served_is_not_found(connection: Connection, path: str) -> None:
    with pytest.raises(NotFound):
        get(connection, path)


def test_kubectl_discovers_the_served_kinds(connection: Connection) -> None:
    assert get(connection, "/version")["major"] == "1"
    groups = {group["name"] for group in get(connection, "/apis")["groups"]}
    ours = {"batch.volcano.sh", "bus.volcano.sh", "kube-muster.io", "scheduling.volcano.sh"}
    asked = {"authentication.k8s.io", "authorization.k8s.io"}
    operators = {
        "argoproj.io",
        "jobset.x-k8s.io",
        "kubeflow.org",
        "leaderworkerset.x-k8s.io",
        "ray.io",
        "trainer.kubeflow.org",
    }
    quotas = {"scheduling.sigs.k8s.io", "scheduling.x-k8s.io"}
    known = {"apps", "batch", "coordination.k8s.io", "resource.k8s.io", "scheduling.k8s.io"}
    assert groups == known | ours | asked | operators | quotas
    resources = get(connection, "/apis/scheduling.volcano.sh/v1beta1")["resources"]
    shown = {resource["name"]: resource["namespaced"] for resource in resources}
    assert shown == {"queues": False, "queues/status": False, "podgroups": True}
