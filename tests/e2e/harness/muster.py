"""The real `muster serve`, as installed with the Python that runs the tests."""

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
LONGEST_STOP = 5.0
SOON = urllib3.Timeout(2)  # for one that may be frozen


class Muster:
    """One replica. Ports and arguments stay the same over restarts.

    It leads without a Lease, because the schedulers of most tests hold none; `leader_elect="follow"` is for
    those that start theirs with `leader_elect=True`. Another program is a container's, say.
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
        """Start Muster. With a proxy, its scheduler reads pods through it: `view_kubeconfig` says how."""
        verbs, health, debug, *others = free_ports(4 if view else 3)
        self.address, self._health, self._debug = map(loopback.at, (verbs, health, debug))
        self.view_port = others[0] if view else None
        self.view_folder = cluster.folder / f"view-{verbs}"
        names = [part for name in scheduler_names for part in ("--scheduler-name", name)]
        listen = ["--listen", self.address, "--health-listen", self._health, "--debug-listen", self._debug]
        kubeconfig_flags = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        options = [*kubeconfig_flags, *listen, "--leader-elect", leader_elect, *names]
        command = [*program, "serve", *options, *self._view_options(), *arguments]
        self.process = Process(f"muster-{verbs}", command, cluster.folder / f"muster-{verbs}.log", host=host)

    @property
    def health_port(self) -> int:
        return self.ports["health"]

    @property
    def ports(self) -> dict[str, int]:
        addresses = {"verbs": self.address, "health": self._health, "debug": self._debug}
        ports = {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}
        return ports if self.view_port is None else {**ports, "view": self.view_port}

    @property
    def view_kubeconfig(self) -> Path | None:
        """Return the file that Muster writes for its scheduler before it is live; None without a proxy."""
        return None if self.view_port is None else self.view_folder / "kubeconfig"

    def view_kubeconfig_through(self, port: int) -> Path:
        """Return the same by way of a proxy that listens on this port."""
        assert self.view_kubeconfig is not None, "started without a proxy"
        return proxied(self.view_kubeconfig, port)

    def _view_options(self) -> list[str]:
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
        """Start; without `wait` for tests whose API server is away."""
        self.process.start()
        if wait:
            self.wait_ready()

    def stop(self) -> int:
        """Stop by SIGTERM. It promises to be gone within 5 s; twice that on a busy machine."""
        return self.process.stop(2 * LONGEST_STOP)

    def kill(self) -> None:
        self.process.kill()

    def restart(self, *, hard: bool = False) -> None:
        self.kill() if hard else self.stop()
        self.start()

    def wait_ready(self) -> None:
        wait_for(self._is_ready, what="muster ready")

    def ready(self) -> bool:
        return probes.answers(f"http://{self._health}/readyz")

    def live(self) -> bool:
        return probes.answers(f"http://{self._health}/livez")

    def readyz(self) -> str:
        """Return the full text of /readyz."""
        return probes.fetch(f"http://{self._health}/readyz?verbose").data.decode()

    def metrics(self) -> dict[str, float]:
        return probes.samples(probes.fetch(f"http://{self._health}/metrics").data.decode())

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum over all samples of one metric with these labels."""
        return probes.total(self.metrics(), name, **labels)

    def wait_calls(self, verb: str, count: int) -> None:
        """Wait until exactly so many calls have been answered: their effects can be seen before that."""
        calls = partial(self.metric, "muster_verb_calls_total", verb=verb)
        wait_for(lambda: calls() >= count, what=f"{count} calls of {verb} answered")
        assert calls() == count

    def held(self, timeout: urllib3.Timeout = probes.PATIENT) -> dict[str, str]:
        """Return the pods whose bind calls wait at the barrier, with the nodes that they hold."""
        page = self.debug("/debug/held", timeout)
        return {each["pod"].rpartition("/")[2]: each["node"] for each in page}

    def wait_held(self, names: Iterable[str]) -> dict[str, str]:
        """Wait until exactly these pods are at the barrier; without names, until none is."""
        expected = set(names)
        wait_for(lambda: self.held().keys() == expected, what=f"{sorted(expected)} held")
        return self.held()

    def claim_stages(self) -> set[str]:
        """Return the stages of the claims on capacity."""
        return {claim["stage"] for node in self.debug("/debug/nodes") for claim in node["claims"]}

    def decision(self, namespace: str, group: str) -> dict[str, Any]:
        """Return the last decision on a group; empty before it is known."""
        page = self.debug("/debug/podgroups")
        return next((each for each in page if each["podGroup"] == f"{namespace}/{group}"), {})

    def wait_decision(self, namespace: str, group: str, **fields: Any) -> dict[str, Any]:
        """Wait for a decision: `wait_decision(stage.namespace, "a", reason="NoRoom")`."""

        def decided() -> dict[str, Any] | None:
            decision = self.decision(namespace, group)
            return decision if fields.items() <= decision.items() else None

        try:
            decision = wait_for(decided, what=f"group {group} {fields}")
        except TimeoutError as fault:
            raise TimeoutError(f"{fault}; decided is {self.decision(namespace, group)}") from None
        assert decision is not None
        return decision

    def debug(self, path: str, timeout: urllib3.Timeout = probes.PATIENT) -> Any:
        """Return the JSON of one debug page: `debug("/debug/queues")`."""
        answer = probes.fetch(f"http://{self._debug}/{path.lstrip('/')}", timeout=timeout)
        assert answer.status == 200, f"{path}: {answer.status} {answer.data[:500]!r}"
        return json.loads(answer.data)

    def _is_ready(self) -> bool:
        self.process.require_alive()
        return self.ready()
