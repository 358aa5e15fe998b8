"""All kinds whose controllers make pods, by apiVersion and kind."""

from extender.api.workloads.core import CORE
from extender.api.workloads.kubeflow import KUBEFLOW
from extender.api.workloads.operators import OPERATORS

WORKLOADS = {each.key: each for each in (*CORE, *OPERATORS, *KUBEFLOW)}
