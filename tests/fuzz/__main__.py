"""Fuzzing of Muster on an embedded cluster: `python -m tests.fuzz`. Exit status 1: Muster misbehaved."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import randrange

from extender.api.keys import CERTIFICATE, KEY
from extender.api.keys import VIEW_KUBECONFIG as KUBECONFIG
from extender.apimachinery.kinds import POD_GROUPS, PODS
from extender.sim.embedded import Embedded, free_ports
from extender.webhooks.certificates import make_pair
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.fuzz.judgement import reviewed
from tests.fuzz.target import Target, secret_of

_PATIENCE = 120.0  # seconds


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        cluster, further_ports, kubeconfig = _cluster(stack)
        muster = cluster.muster
        addresses = {"verbs": muster.address, "health": muster.health, "debug": muster.debug}
        ports = {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}
        target = Target({**ports, **further_ports}, muster.pid, secret_of(kubeconfig))
        violations = reviewed(target, options.requests, options.seconds, options.seed, _show)
        violations += _start_failures(cluster)
    for violation in violations[:50]:
        _show(f"VIOLATED: {violation}")
    return 1 if violations else 0


def _cluster(stack: ExitStack) -> tuple[Embedded, dict[str, int], Path]:
    """Start a cluster; return it, the ports of webhooks and scheduler proxy, and the proxy's kubeconfig."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-fuzz-")))
    pair = make_pair(["127.0.0.1"], 3600, time.time())
    (folder / CERTIFICATE).write_bytes(pair.certificate)
    (folder / KEY).write_bytes(pair.key)
    webhook_port, view_port = free_ports(2)
    flags = (
        "--webhook-certificates=files",
        f"--webhook-folder={folder}",
        f"--webhook-listen=127.0.0.1:{webhook_port}",
        f"--view-listen=127.0.0.1:{view_port}",
        f"--view-folder={folder}",
        "--bind-deadline=2s",
    )
    cluster = stack.enter_context(Embedded(speed=10, seed=1, serve_arguments=flags))
    cluster.make_nodes(8, "64", "256Gi")
    cluster.start()
    return cluster, {"webhooks": webhook_port, "view": view_port}, folder / KUBECONFIG


def _start_failures(cluster: Embedded) -> list[str]:
    """Check that a gang still starts after the fuzzing; return errors."""
    cluster.service.create(POD_GROUPS, "", objects.pod_group("last", namespace="default", min_member=3))
    for number in range(3):
        cluster.service.create(PODS, "", objects.pod(f"last-{number}", namespace="default", group="last"))

    def is_bound() -> bool:
        return all(pod["spec"].get("nodeName") for pod in cluster.store.all(PODS))

    try:
        wait_for(is_bound, _PATIENCE, "the gang bound")
    except TimeoutError as fault:
        return [str(fault)]
    return []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="the campaign ends then at the latest")
    parser.add_argument("--seed", type=int, default=randrange(2**32))
    return parser


def _show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
