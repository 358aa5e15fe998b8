"""What a pod counts for while one of its containers is being resized in place."""

from typing import Any

import msgspec
import pytest

from extender.api.objects.pods import Pod
from extender.domain.model.resources import counted_spec, pod_requests

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


@pytest.mark.parametrize(
    ("resized", "cpu"),
    [
        (pod({"cpu": "1"}, None), 1000),
        (pod({"cpu": "1"}, {"cpu": "1000m"}), 1000),
        (pod({"cpu": "2"}, {"cpu": "1"}), 2000),
        (pod({"cpu": "1"}, {"cpu": "3"}), 3000),
        (pod({"cpu": "1"}, {"cpu": "1"}, {"cpu": "4"}), 4000),
        (pod({"cpu": "9"}, {"cpu": "1"}, reason="Deferred"), 9000),
        (pod({"cpu": "9"}, {"cpu": "1"}, reason="Infeasible"), 1000),
        (pod({"cpu": "1"}, {"cpu": "3"}, sidecar=True), 3000),
    ],
    ids=[
        "no status",
        "settled",
        "grows",
        "shrinks",
        "set aside",
        "deferred",
        "infeasible",
        "a sidecar shrinks",
    ],
)
def test_the_larger_size_counts(resized: Pod, cpu: int) -> None:
    assert pod_requests(counted_spec(resized))["cpu"] == cpu


def test_a_settled_pod_keeps_its_specification() -> None:
    settled = pod({"cpu": "1"}, {"cpu": "1000m"})
    assert counted_spec(settled) is settled.spec
