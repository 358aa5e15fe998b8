"""TrainJobs, whose templates are in their runtime."""

from extender.api.workloads.shape import Json
from extender.domain.snapshot.jobs import JobKind
from tests.domain.builders import SCHEDULER

TRAIN_JOB = JobKind("trainer.kubeflow.org/v1alpha1", "TrainJob")


def runtime(nodes: int = 2, cpu: str = "1", scheduler: str = SCHEDULER) -> Json:
    container = {"name": "node", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    pod = {"spec": {"schedulerName": scheduler, "containers": [container]}}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}
    return {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [job]}}}
