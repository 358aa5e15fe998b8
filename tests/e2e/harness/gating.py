"""Scheduling gates on new pods.

An admission policy sets the gates. Before Kubernetes 1.36, Muster's webhook sets the gates.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import gates_pods, needed
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import POD_WEBHOOK, Port, configured


@contextmanager
def gating_muster(stage: Stage, user: User) -> Iterator[Muster]:
    """Start Muster as in the sidecar install, wait until new pods get gates, and yield Muster."""
    if needed(stage.cluster.kubernetes):
        port = Port()
        with configured(stage.api, port, POD_WEBHOOK):
            muster = stage.start_muster(*port.flags("self-signed"), user=user)
            wait_for(lambda: gates_pods(stage.api, stage.namespace), what="the pod webhook in force")
            yield muster
    else:
        with stage.policy("gates/admission-policy.yaml"):
            yield stage.start_muster(user=user)
