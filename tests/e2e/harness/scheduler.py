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
# Resources of pods that the extender of `for_all_pods` binds.
MARKED: Json = {"limits": {BIND_MARK: "1"}}
# Shorter than the default, so that a standby takes over soon; a busy machine still renews in time.
QUICK_LEASE: Json = {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s"}
PLAIN: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def load(name: str) -> Json:
    """Return a configuration of the repository, such as `sidecar-gates.yaml`."""
    configuration: Json = yaml.safe_load((CONFIGS / name).read_text())
    return configuration


def for_all_pods(profile: str) -> Json:
    """Return the sidecar's configuration with one more profile.

    The scheduler calls Muster for all pods, but lets it bind only pods with the marker resource.
    """
    config = load("sidecar-gates.yaml")
    config["profiles"].append({"schedulerName": profile, "percentageOfNodesToScore": 100})
    binder = next(entry for entry in config["extenders"] if "bindVerb" in entry)
    binder["managedResources"] = [{"name": BIND_MARK, "ignoredByScheduler": True}]
    return config


class KubeScheduler:
    """Stock scheduler; several may run at the same time."""

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
        """Prepare a scheduler.

        `lease`: durations that replace those of the configuration. `kubeconfig`: that of the scheduler
        proxy; the scheduler does not use it to authenticate callers of its port.
        """
        (self.port,) = free_ports(1)
        self._url, self._authority = f"https://{loopback.at(self.port)}", cluster.certificate
        self._admin = cluster.admin
        direct = cluster.kubeconfig(user, server)
        self._kubeconfig = kubeconfig or direct
        configuration = copy.deepcopy(load(config) if isinstance(config, str) else config)
        path = cluster.folder / f"scheduler-{self.port}.yaml"
        adapted_config = adapted(configuration, self._kubeconfig, muster, leader_elect, tls)
        adapted_config["leaderElection"].update(lease or {})
        path.write_text(json.dumps(adapted_config, indent=1))
        command = flags.scheduler(path, direct, self.port, cluster.certificate, cluster.key)
        command += arguments
        self.process = cluster.process(f"kube-scheduler-{self.port}", command, "kube-scheduler", host)

    def __enter__(self) -> "KubeScheduler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.alive():
            self.process.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start the process. `wait`: until it is ready; False for a standby."""
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
        """Wait until its informers have synced; a standby is not ready."""
        wait_for(self._is_ready, what="kube-scheduler ready")

    def metrics(self) -> dict[str, float]:
        return probes.samples(probes.fetch(f"{self._url}/metrics", self._authority).data.decode())

    def dump(self) -> Dump:
        """Return the scheduler's cache and queue, which SIGUSR2 makes it log."""
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

    def _log_since(self, since: int) -> str:
        with self.process.log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def _is_ready(self) -> bool:
        self.process.require_alive()
        return probes.answers(f"{self._url}/readyz", self._authority)


def sidecar_options(muster: Muster) -> Json:
    """Return the arguments of KubeScheduler for the sidecar, with the scheduler proxy if there is one."""
    config = "sidecar-gates.yaml" if muster.view_kubeconfig is None else "sidecar.yaml"
    return {"config": config, "muster": muster.address, "kubeconfig": muster.view_kubeconfig}


def adapted(
    config: Json, kubeconfig: Path, muster: str | None, leader_elect: bool, tls: Path | None = None
) -> Json:
    """Return a configuration with the kubeconfig, addresses, leader election and certificates of a test.

    Without a folder of certificates, Muster is called over plain HTTP.
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
