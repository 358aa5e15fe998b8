"""The stock kube-scheduler, with a configuration of the repository or of a test."""

import copy
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from tests.e2e.harness import flags, loopback, probes
from tests.e2e.harness.access import SCHEDULER, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.process import free_ports
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler_dump import Dump
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
CONFIGS = Path(__file__).parents[3] / "scheduler-config"
BIND_MARK = "kube-muster.io/bind"
# The extender of `for_all_pods` binds only pods with this marker resource.
BOUND_BY_MUSTER: Json = {"limits": {BIND_MARK: "1"}}
# The durations are shorter than the default, so that a standby takes over soon. A busy machine still renews
# in time.
QUICK_LEASE: Json = {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s"}
PLAIN: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def load(name: str) -> Json:
    """Return a configuration file of the repository, such as `sidecar-gates.yaml`, as a document."""
    configuration: Json = yaml.safe_load((CONFIGS / name).read_text())
    return configuration


def for_all_pods(profile: str) -> Json:
    """Return the sidecar's configuration with one more profile.

    The scheduler calls Muster for all pods, but lets Muster bind only pods with the marker resource.
    """
    config = load("sidecar-gates.yaml")
    config["profiles"].append({"schedulerName": profile, "percentageOfNodesToScore": 100})
    binder = next(entry for entry in config["extenders"] if "bindVerb" in entry)
    binder["managedResources"] = [{"name": BIND_MARK, "ignoredByScheduler": True}]
    return config


class KubeScheduler:
    """Process of the stock kube-scheduler. Several schedulers may run at the same time."""

    def __init__(
        self,
        cluster: ControlPlane,
        config: str | Json = PLAIN,
        *,
        muster: str | None = None,
        tls: Path | None = None,
        user: User = SCHEDULER,
        server: str | None = None,
        leader_elect: bool = False,
        lease: Json | None = None,
        host: str | None = None,
        kubeconfig: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Prepare a scheduler, without starting it.

        Args:
            cluster: Control plane that the scheduler connects to.
            config: Configuration, or the name of a configuration file of the repository.
            muster: Address of Muster, which replaces the addresses in the configuration's extenders.
            tls: Folder of certificates with which the scheduler calls Muster. None means plain HTTP.
            user: User of the scheduler.
            server: Address of a proxy in front of the API server.
            leader_elect: Whether the scheduler uses a Lease.
            lease: Durations of the Lease that replace those of the configuration.
            host: Host name of the process.
            kubeconfig: Kubeconfig of the scheduler proxy. The scheduler does not use this kubeconfig to
                authenticate clients of the scheduler's port.
            arguments: Further flags.
        """
        (self.port,) = free_ports(1)
        self._url, self._authority = f"https://{loopback.at(self.port)}", cluster.certificate
        self._admin = cluster.admin
        direct_kubeconfig = cluster.kubeconfig(user, server)
        self._kubeconfig = kubeconfig or direct_kubeconfig
        configuration = copy.deepcopy(load(config) if isinstance(config, str) else config)
        path = cluster.folder / f"scheduler-{self.port}.yaml"
        adapted_config = adapted(configuration, self._kubeconfig, muster, leader_elect, tls)
        adapted_config["leaderElection"].update(lease or {})
        path.write_text(json.dumps(adapted_config, indent=1))
        command = flags.scheduler(path, direct_kubeconfig, self.port, cluster.certificate, cluster.key)
        command += arguments
        self.process = cluster.process(f"kube-scheduler-{self.port}", command, "kube-scheduler", host)

    def __enter__(self) -> "KubeScheduler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.alive():
            self.process.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start the process, and wait until the scheduler is ready. `wait` is False for a standby."""
        wait_for(self._kubeconfig.exists, what=f"{self._kubeconfig} is there")
        self.process.start()
        if wait:
            self.wait_ready()

    def stop(self) -> int:
        return self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def restart(self, *, hard: bool = False) -> None:
        self.process.restart(hard=hard)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the scheduler's informers have synced. A standby is not ready."""
        wait_for(self._is_ready, what="kube-scheduler ready")

    def metrics(self) -> dict[str, float]:
        return probes.samples(probes.fetch(f"{self._url}/metrics", self._authority).data.decode())

    def dump(self) -> Dump:
        """Let the scheduler log its cache and its queue by SIGUSR2, and return both."""
        log_size = self.process.log.stat().st_size
        self.process.send(signal.SIGUSR2)
        dump = wait_for(lambda: Dump.read(self._log_since(log_size)), what="kube-scheduler dumped its cache")
        assert dump is not None
        return dump

    def wait_agrees(self) -> None:
        """Wait until the scheduler's cache agrees with the API server."""
        try:
            wait_for(lambda: not self._differences())
        except TimeoutError:
            raise AssertionError(f"the scheduler differs from the API: {self._differences()}") from None

    def _differences(self) -> list[str]:
        return self.dump().differences(self._admin.items(PODS))

    def _log_since(self, position: int) -> str:
        """Return the log from a position in bytes on."""
        with self.process.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _is_ready(self) -> bool:
        self.process.require_alive()
        return probes.answers(f"{self._url}/readyz", self._authority)


def sidecar_options(muster: Muster) -> Json:
    """Return the arguments of KubeScheduler for the scheduler next to Muster.

    If Muster has a scheduler proxy, the arguments include the kubeconfig of the proxy.
    """
    config = "sidecar-gates.yaml" if muster.view_kubeconfig is None else "sidecar.yaml"
    return {"config": config, "muster": muster.address, "kubeconfig": muster.view_kubeconfig}


def adapted(
    config: Json, kubeconfig: Path, muster: str | None, leader_elect: bool, tls: Path | None = None
) -> Json:
    """Change a configuration for a test, and return the configuration.

    The changes are the kubeconfig, Muster's address, leader election and certificates. Without `tls`, the
    folder of certificates, the scheduler calls Muster over plain HTTP.
    """
    config.setdefault("clientConnection", {})["kubeconfig"] = str(kubeconfig)
    config.setdefault("leaderElection", {})["leaderElect"] = leader_elect
    for extender in config.get("extenders", []):
        if muster is not None:
            extender["urlPrefix"] = _with_address(extender["urlPrefix"], muster, "https" if tls else "http")
        files = extender.pop("tlsConfig", {})
        extender["enableHTTPS"] = tls is not None
        if tls:
            extender["tlsConfig"] = {key: str(tls / Path(file).name) for key, file in files.items()}
    return config


def _with_address(url: str, address: str, scheme: str) -> str:
    return urlunsplit(urlsplit(url)._replace(netloc=address, scheme=scheme))
