"""Requests of a pod while one of its containers is being resized in place."""

from typing import Any

import msgspec

from extender.api.objects.pods import Pod
from extender.domain.model.resources import counted_spec, pod_requests
from tests.rows import each_of

Requests = dict[str, str]


def pod(
    asked: Requests,
    in_force: Requests | None,
    allocated: Requests | None = None,
    reason: str = "",
    sidecar: bool = False,
) -> Pod:
    status: dict[str, Any] = {"name": "main"}
    if in_force is not None:
        status |= {"resources": {"requests": in_force}, "allocatedResources": allocated or in_force}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    kind = "initContainers" if sidecar else "containers"
    container = {"name": "main", "resources": {"requests": asked}}
    container |= {"restartPolicy": "Always"} if sidecar else {}
    statuses = "initContainerStatuses" if sidecar else "containerStatuses"
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "other"}], kind: [container]},
            "status": {statuses: [status], "conditions": conditions},
        },
        Pod,
    )


@each_of(
    (pod({"cpu": "1"}, None), 1000),  # no status
    (pod({"cpu": "1"}, {"cpu": "1000m"}), 1000),  # settled
    (pod({"cpu": "2"}, {"cpu": "1"}), 2000),  # grows
    (pod({"cpu": "1"}, {"cpu": "3"}), 3000),  # shrinks
    (pod({"cpu": "1"}, {"cpu": "1"}, {"cpu": "4"}), 4000),  # set aside
    (pod({"cpu": "9"}, {"cpu": "1"}, reason="Deferred"), 9000),  # deferred
    (pod({"cpu": "9"}, {"cpu": "1"}, reason="Infeasible"), 1000),  # infeasible
    (pod({"cpu": "1"}, {"cpu": "3"}, sidecar=True), 3000),  # a sidecar shrinks
)
def test_the_larger_size_counts(resized: Pod, cpu: int) -> None:
    assert pod_requests(counted_spec(resized))["cpu"] == cpu


@each_of(
    ("2", None, None, "", 2000),  # no status
    ("2", "1", "1", "", 2000),  # grows
    ("1", "3", "1", "", 3000),  # shrinks
    ("1", "1", "4", "Deferred", 4000),  # set aside
    ("9", "1", "2", "Infeasible", 2000),  # infeasible
)
def test_the_larger_size_of_the_pod_as_a_whole_counts(
    asked: str, in_force: str | None, set_aside: str | None, reason: str, cpu: int
) -> None:
    """Count the larger size of the pod, whatever its containers ask for."""
    of_container = pod({"cpu": "500m"}, {"cpu": "500m"}, reason=reason)
    status: dict[str, Any] = {} if in_force is None else {"resources": {"requests": {"cpu": in_force}}}
    status |= {} if set_aside is None else {"allocatedResources": {"cpu": set_aside}}
    resized = {
        **msgspec.to_builtins(of_container),
        "spec": {**msgspec.to_builtins(of_container.spec), "resources": {"requests": {"cpu": asked}}},
        "status": {**msgspec.to_builtins(of_container.status), **status},
    }
    assert pod_requests(counted_spec(msgspec.convert(resized, Pod)))["cpu"] == cpu


def test_a_settled_pod_keeps_its_specification() -> None:
    settled = pod({"cpu": "1"}, {"cpu": "1000m"})
    assert counted_spec(settled) is settled.spec
