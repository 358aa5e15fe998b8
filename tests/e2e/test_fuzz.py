"""Nonsense at all ports, on the real control plane; `make fuzz` is the same without it."""

import random

from tests.e2e.harness.access import User
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.webhooks import Port, configured, wait_in_force
from tests.fuzz.judgement import reviewed
from tests.fuzz.target import Target, secret_of

SECONDS = 40


def test_no_request_of_any_kind_shakes_it(stage: Stage, muster_user: User) -> None:
    """Send requests while a gang waits for capacity.

    It starts afterwards, and so does one that comes then.
    """
    stage.nodes(3, cpu="4")
    webhooks = Port()
    with configured(stage.api, webhooks):
        flags = webhooks.flags("self-signed", "--bind-deadline=5s")
        muster = stage.start_muster(*flags, user=muster_user, view=True)
        wait_in_force(stage.api)
        stage.start_sidecar(muster, user=muster_user)
        filler = stage.gang("filler", 3, cpu="3")
        stage.wait_phase(filler, "Running")
        waiting = stage.gang("waiting", 3, cpu="3")
        muster.wait_decision(stage.namespace, "waiting", verdict="Waiting")
        assert muster.view_kubeconfig is not None
        ports = {**muster.ports, "webhooks": webhooks.number}
        target = Target(ports, muster.process.pid, secret_of(muster.view_kubeconfig))
        seed = random.randrange(2**32)
        assert reviewed(target, 100_000, SECONDS, seed, print) == []
        stage.delete_pods(filler)
        stage.wait_phase(waiting, "Running")
        stage.wait_phase(stage.gang("late", 3, cpu="1"), "Running")
        wait_in_force(stage.api)
