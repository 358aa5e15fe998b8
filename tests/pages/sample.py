"""Queues and groups that the pages show."""

from typing import Any

from extender.api.keys import QUEUE
from extender.apimachinery.kinds import JOBS
from tests.cli.cluster import Cluster, ago

SWEEP_WAITS = (
    "cpu: 8 needed, 2 left on suitable nodes; capacity for 1 of 4 members; position 1 in queue research;"
    " it starts once other/report (3 pods) ends"
)
TRAIN_WAITS = (
    "cpu: 16 needed, 2 left on suitable nodes; capacity for 1 of 8 members; position 2 in queue research"
)
UID = "4c1d2f60-6c1e-4d0b-9f0a-0a3f5e7b9c21"


def add_sample(cluster: Cluster) -> Cluster:
    """Add the queues and groups.

    The groups sweep and job/train of queue research wait for capacity. It is held by fit of the same queue,
    and by report of queue reports, which is above its share.
    """
    held: dict[str, Any] = {"allocated": {"cpu": "4", "pods": "2"}, "deserved": {"cpu": "6", "memory": "0"}}
    cluster.queue("research", {"weight": 2}, state="Open", **held, share=0.667, pending=2, running=1)
    above_share: dict[str, Any] = {"allocated": {"cpu": "6"}, "deserved": {"cpu": "4"}}
    cluster.queue("reports", {"capability": {"cpu": "8"}}, state="Open", **above_share, share=1.5, running=1)
    cluster.gang("fit", 2, node="n0", phase="Running", reason="Running", queue="research")
    cluster.gang(
        "sweep", 4, message=SWEEP_WAITS, queue="research", days=10, more={"waiting": {"position": 1}}
    )
    cluster.group("report", "Running", "Running", queue="reports", namespace="other", min_member=3)
    _add_waiting_job(cluster)
    cluster.namespace("team-a")
    return cluster


def _add_waiting_job(cluster: Cluster) -> None:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    template = {"spec": {"schedulerName": "muster", "containers": [container]}}
    meta = {"name": "train", "namespace": "team", "uid": UID, "creationTimestamp": ago(days=2)}
    annotations = {"annotations": {QUEUE: "research"}}
    spec = {"suspend": True, "parallelism": 8, "template": template}
    cluster._put(JOBS, meta | annotations, {"spec": spec, "status": {}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": UID, "controller": True}
    cluster.group(
        f"podgroup-{UID}",
        message=TRAIN_WAITS,
        more={"waiting": {"position": 2}},
        min_member=8,
        queue="research",
        days=2,
        more_spec={"minResources": {"cpu": "16", "memory": "32Gi"}},
        more_metadata={"ownerReferences": [owner]},
    )
