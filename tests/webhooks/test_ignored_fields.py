"""Users get a warning about fields of a new object that Muster accepts and ignores."""

from typing import Any

from tests.rows import each_of
from tests.webhooks.bench import Bench

Json = dict[str, Any]
REQUIRED_KEY = "kueue.x-k8s.io/podset-required-topology"
GROUP_KEY = "kueue.x-k8s.io/podset-group-name"
UNCONSTRAINED_KEY = "kueue.x-k8s.io/podset-unconstrained-topology"
ANNOTATED_META = {"annotations": {REQUIRED_KEY: "rack", GROUP_KEY: "g", UNCONSTRAINED_KEY: "true"}}
TOPOLOGY = {"mode": "hard", "highestTierAllowed": 1}
CONTAINERS = {"containers": [{"name": "c"}]}


def warnings(
    path: str, api: str, kind: str, thing: Json, operation: str = "CREATE", **meta: Any
) -> list[str]:
    group, _, version = api.rpartition("/")
    named = {"name": "a", "namespace": "team", **thing.get("metadata", {}), **meta}
    asked = {"kind": {"group": group, "version": version, "kind": kind}}
    bench = Bench()
    bench.runs_volcano_jobs = True
    thing = {**thing, "metadata": named}
    more = {"oldObject": thing} if operation == "UPDATE" else {}
    said: list[str] = bench.ask(path, thing, operation, **asked, **more).get("warnings", [])
    return [text.split(": accepted and ignored; ")[0] for text in said if "accepted and ignored" in text]


VOLCANO_JOB: Json = {
    "spec": {
        "minAvailable": 1,
        "networkTopology": TOPOLOGY,
        "tasks": [
            {
                "name": "t",
                "replicas": 1,
                "maxRetry": 2,
                "template": {"metadata": ANNOTATED_META, "spec": CONTAINERS},
            }
        ],
    }
}
GROUP: Json = {"spec": {"minMember": 1, "networkTopology": TOPOLOGY, "subGroupPolicy": [{"minSubGroups": 1}]}}


@each_of(
    ("/podgroups/validate", "scheduling.volcano.sh/v1beta1", "PodGroup", GROUP, []),
    (
        "/queues/validate",
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        {"spec": {"affinity": {"nodeGroupAffinity": {}}, "extendClusters": [{"name": "b"}]}},
        ["spec.affinity", "spec.extendClusters"],
    ),
    (
        "/jobs/validate",
        "batch.volcano.sh/v1alpha1",
        "Job",
        VOLCANO_JOB,
        [
            "spec.tasks[0].maxRetry",
            f"spec.tasks[0].template.metadata.annotations[{GROUP_KEY}]",
        ],
    ),
    (
        "/jobs/validate",
        "batch/v1",
        "Job",
        {"spec": {"template": {"metadata": ANNOTATED_META, "spec": CONTAINERS}}},
        [f"spec.template.metadata.annotations[{GROUP_KEY}]"],
    ),
    (
        "/pods/validate",
        "/v1",
        "Pod",
        {"metadata": ANNOTATED_META, "spec": CONTAINERS},
        [f"metadata.annotations[{GROUP_KEY}]"],
    ),
    (
        "/jobs/validate",
        "batch/v1",
        "Job",
        {"metadata": {"annotations": {REQUIRED_KEY: "rack"}}, "spec": {"template": {"spec": CONTAINERS}}},
        [],
    ),
    (
        "/other-podgroups/validate",
        "scheduling.k8s.io/v1beta1",
        "PodGroup",
        {"spec": {"schedulingConstraints": {"topology": [{"key": "rack"}]}}},
        [],
    ),
    (
        "/other-podgroups/validate",
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
        {"spec": {"minMember": 1, "scheduleTimeoutSeconds": 9}},
        ["spec.scheduleTimeoutSeconds"],
    ),
)
def test_each_ignored_field_has_a_warning(
    path: str, api: str, kind: str, thing: Json, fields: list[str]
) -> None:
    assert warnings(path, api, kind, thing) == fields


def test_updates_and_pods_of_controllers_have_none() -> None:
    group = "/podgroups/validate", "scheduling.volcano.sh/v1beta1", "PodGroup", GROUP
    assert warnings(*group, operation="UPDATE") == []
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    pod = {"metadata": ANNOTATED_META, "spec": CONTAINERS}
    assert warnings("/pods/validate", "/v1", "Pod", pod, ownerReferences=[owner]) == []
