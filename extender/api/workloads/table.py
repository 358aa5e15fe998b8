"""All kinds whose controllers make pods, by apiVersion and kind."""

from extender.api.workloads.argo import WORKFLOW
from extender.api.workloads.core import CORE
from extender.api.workloads.kubeflow import KUBEFLOW
from extender.api.workloads.ray import RAY
from extender.api.workloads.sets import JOB_SET, LEADER_WORKER_SET
from extender.api.workloads.spark import SPARK_APPLICATION
from extender.api.workloads.trainer import TRAIN_JOB
from extender.api.workloads.volcano import VOLCANO_JOB

_ROWS = (
    *CORE,
    JOB_SET,
    LEADER_WORKER_SET,
    *RAY,
    *KUBEFLOW,
    TRAIN_JOB,
    SPARK_APPLICATION,
    VOLCANO_JOB,
    WORKFLOW,
)
WORKLOADS = {each.key: each for each in _ROWS}
