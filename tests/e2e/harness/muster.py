"""Process of `muster serve`, installed in the Python environment that runs the tests."""

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import urllib3

from tests.e2e.harness import loopback, probes
from tests.e2e.harness.access import proxied
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.waiting import wait_for

PROGRAM = Path(sys.executable).with_name("muster")
LONGEST_STOP = 5.0  # seconds
SHORT_TIMEOUT = urllib3.Timeout(2)  # for requests to a process that may be frozen


class Muster:
    """Replica of Muster. A restart keeps its ports and arguments.

    By default, the replica leads without a Lease, as do the schedulers of most tests. `leader_elect="follow"`
    is for schedulers with `leader_elect=True`. `program` is another command that starts Muster, for example
    in a container.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        kubeconfig: Path | None,
        *,
        scheduler_names: Sequence[str] = (),
        leader_elect: str = "off",
        arguments: Sequence[str] = (),
        host: str | None = None,
        program: Sequence[str] = (str(PROGRAM),),
        view: bool = False,
    ) -> None:
        """Prepare a replica, without starting it.

        With `view`, the replica has a scheduler proxy, for a scheduler that uses `view_kubeconfig`.
        """
        verbs_port, health_port, debug_port, *view_ports = free_ports(4 if view else 3)
        self.address, self._health_address, self._debug_address = map(
            loopback.at, (verbs_port, health_port, debug_port)
        )
        self.view_port = view_ports[0] if view else None
        self.view_folder = cluster.folder / f"view-{verbs_port}"
        name_flags = [part for name in scheduler_names for part in ("--scheduler-name", name)]
        listen_flags = [
            "--listen",
            self.address,
            "--health-listen",
            self._health_address,
            "--debug-listen",
            self._debug_address,
        ]
        kubeconfig_flags = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        options = [*kubeconfig_flags, *listen_flags, "--leader-elect", leader_elect, *name_flags]
        command = [*program, "serve", *options, *self._proxy_flags(), *arguments]
        self.process = Process(
            f"muster-{verbs_port}", command, cluster.folder / f"muster-{verbs_port}.log", host=host
        )

    @property
    def health_port(self) -> int:
        return self.ports["health"]

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports, keyed by `verbs`, `health`, `debug` and, with a scheduler proxy, `view`."""
        addresses = {"verbs": self.address, "health": self._health_address, "debug": self._debug_address}
        ports = {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}
        return ports if self.view_port is None else {**ports, "view": self.view_port}

    @property
    def view_kubeconfig(self) -> Path | None:
        """Return the kubeconfig that Muster writes for its scheduler, or None without a scheduler proxy."""
        return None if self.view_port is None else self.view_folder / "kubeconfig"

    def view_kubeconfig_through(self, port: int) -> Path:
        """Return a copy of `view_kubeconfig` whose requests go through a proxy on this port."""
        assert self.view_kubeconfig is not None, "started without a proxy"
        return proxied(self.view_kubeconfig, port)

    def _proxy_flags(self) -> list[str]:
        """Return the flags of the scheduler proxy, and create its folder.

        Return [] without a scheduler proxy.
        """
        if self.view_port is None:
            return []
        self.view_folder.mkdir(exist_ok=True)
        return ["--view-listen", loopback.at(self.view_port), "--view-folder", str(self.view_folder)]

    def __enter__(self) -> "Muster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.alive():
            self.process.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start the process, and wait until Muster is ready.

        `wait` is False in tests without an API server.
        """
        self.process.start()
        if wait:
            self.wait_ready()

    def stop(self) -> int:
        """Stop the process by SIGTERM, and return its exit code.

        The test allows 10 s. Muster promises 5 s, but the machine may be busy.
        """
        return self.process.stop(2 * LONGEST_STOP)

    def kill(self) -> None:
        self.process.kill()

    def restart(self, *, hard: bool = False) -> None:
        """Restart the process. With `hard`, the process is killed instead of stopped."""
        self.kill() if hard else self.stop()
        self.start()

    def wait_ready(self) -> None:
        wait_for(self._is_ready, what="muster ready")

    def ready(self) -> bool:
        return probes.answers(f"http://{self._health_address}/readyz")

    def live(self) -> bool:
        return probes.answers(f"http://{self._health_address}/livez")

    def readyz(self) -> str:
        """Return the full text of /readyz, with the result of each check."""
        return probes.fetch(f"http://{self._health_address}/readyz?verbose").data.decode()

    def metrics(self) -> dict[str, float]:
        return probes.samples(probes.fetch(f"http://{self._health_address}/metrics").data.decode())

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all samples that have these labels."""
        return probes.total(self.metrics(), name, **labels)

    def wait_calls(self, verb: str, count: int) -> None:
        """Wait until Muster has answered exactly `count` calls of a verb.

        The effects of a call may be visible before Muster has answered the call.
        """
        calls = partial(self.metric, "muster_verb_calls_total", verb=verb)
        wait_for(lambda: calls() >= count, what=f"{count} calls of {verb} answered")
        assert calls() == count

    def held(self, timeout: urllib3.Timeout = probes.LONG_TIMEOUT) -> dict[str, str]:
        """Return the node of each pod whose bind call waits at the barrier, keyed by the pod's name."""
        page = self.debug("/debug/held", timeout)
        return {entry["pod"].rpartition("/")[2]: entry["node"] for entry in page}

    def wait_held(self, names: Iterable[str]) -> dict[str, str]:
        """Wait until exactly these pods wait at the barrier, and return the nodes of the pods.

        Without names, wait until no pod waits at the barrier.
        """
        expected = set(names)
        wait_for(lambda: self.held().keys() == expected, what=f"{sorted(expected)} held")
        return self.held()

    def claim_stages(self) -> set[str]:
        """Return the stages of all claims on capacity of nodes."""
        return {claim["stage"] for node in self.debug("/debug/nodes") for claim in node["claims"]}

    def decision(self, namespace: str, group: str) -> dict[str, Any]:
        """Return the last decision on a group, or {} if there is no decision."""
        page = self.debug("/debug/podgroups")
        return next((entry for entry in page if entry["podGroup"] == f"{namespace}/{group}"), {})

    def wait_decision(self, namespace: str, group: str, **fields: Any) -> dict[str, Any]:
        """Wait until the last decision on a group has these values, and return the decision.

        Example: `wait_decision(stage.namespace, "a", reason="NoRoom")`.
        """

        def matching_decision() -> dict[str, Any] | None:
            decision = self.decision(namespace, group)
            return decision if fields.items() <= decision.items() else None

        try:
            decision = wait_for(matching_decision, what=f"group {group} {fields}")
        except TimeoutError as fault:
            raise TimeoutError(f"{fault}; decided is {self.decision(namespace, group)}") from None
        assert decision is not None
        return decision

    def debug(self, path: str, timeout: urllib3.Timeout = probes.LONG_TIMEOUT) -> Any:
        """Return the JSON of a debug page, such as `debug("/debug/queues")`.

        Fail if the page is not served.
        """
        answer = probes.fetch(f"http://{self._debug_address}/{path.lstrip('/')}", timeout=timeout)
        assert answer.status == 200, f"{path}: {answer.status} {answer.data[:500]!r}"
        return json.loads(answer.data)

    def _is_ready(self) -> bool:
        """Return whether Muster is ready. Raise RuntimeError if the process has ended."""
        self.process.require_alive()
        return self.ready()
