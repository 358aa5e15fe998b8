"""etcd, kube-apiserver and, on request, kube-controller-manager, as processes on loopback."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import urllib3

from tests.e2e import build
from tests.e2e.harness import flags, loopback
from tests.e2e.harness.access import (
    ADMIN,
    CONTROLLER_MANAGER,
    NO_RIGHTS,
    SCHEDULER,
    SUBMITTER,
    User,
    write_certificate,
    write_kubeconfig,
    write_tokens,
    write_webhook_client,
)
from tests.e2e.harness.client import Access, Client
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

USERS = (ADMIN, SCHEDULER, CONTROLLER_MANAGER, NO_RIGHTS, SUBMITTER)
CONTROLLERS = (
    "deployment-controller",
    "job-controller",
    "replicaset-controller",
    "statefulset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "ttl-after-finished-controller",
    "resourceclaim-controller",
)


class ControlPlane:
    """Control plane of a cluster without nodes.

    Example: `with ControlPlane() as cluster: cluster.admin.create(...)`.
    """

    def __init__(
        self,
        *,
        kubernetes: str = build.DEFAULT,
        users: Sequence[User] = (),
        apiserver_flags: Sequence[str] = (),
        keep_logs: bool = False,
        older_etcd: bool = False,
    ) -> None:
        etcd = build.older_etcd() if older_etcd else None
        self.kubernetes = kubernetes
        self.binaries = build.folder(kubernetes)
        self.folder = Path(tempfile.mkdtemp(prefix="muster-e2e-"))
        self.keep_logs = keep_logs
        self._certificate_folder = write_certificate(self.folder) if loopback.is_v6() else self.binaries
        self._users = [*USERS, *users]
        client_port, peer_port, self._port = free_ports(3)
        self.etcd_address = f"http://{loopback.at(client_port)}"
        self.etcd = self.process("etcd", flags.etcd(self.folder, client_port, peer_port), etcd)
        self.apiserver = self.process(
            "kube-apiserver", [*self._apiserver_flags(client_port), *apiserver_flags]
        )
        self.admin = Client(self.access(ADMIN))
        self._controller_managers: list[Process] = []

    def __enter__(self) -> "ControlPlane":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        write_tokens(self.folder / "tokens.csv", self._users)
        write_webhook_client(self.folder)
        self.etcd.start()
        self.apiserver.start()
        self.wait_ready()

    def close(self) -> None:
        """Stop all components.

        The API server ends before etcd. Otherwise the API server would wait for etcd.
        """
        self.admin.close()
        for process in (*self._controller_managers, self.apiserver, self.etcd):
            if process.alive():
                process.kill()
        if not self.keep_logs:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def server(self) -> str:
        return f"https://{loopback.at(self._port)}"

    @property
    def certificate(self) -> Path:
        """Return the self-signed certificate that all servers of the tests use."""
        return self._certificate_folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self._certificate_folder / "key.pem"

    @property
    def signing_key(self) -> Path:
        """Return the key that signs the tokens of service accounts."""
        return self.binaries / "key.pem"

    def access(self, user: User, server: str | None = None) -> Access:
        return Access(server or self.server, user.token, self.certificate)

    def kubeconfig(self, user: User, server: str | None = None) -> Path:
        """Write a kubeconfig for a user, and return its path.

        `server` is the address of a proxy in front of the API server. By default, the requests have no proxy.
        """
        port = (server or self.server).rpartition(":")[2]
        path = self.folder / f"{user.name.replace(':', '-')}-{port}.kubeconfig"
        return write_kubeconfig(path, user, self.access(user, server))

    def process(
        self,
        name: str,
        arguments: Sequence[str],
        program: str | Path | None = None,
        host: str | None = None,
    ) -> Process:
        """Return a process of a built program. The process is not started yet."""
        command = [str(self.binaries / (program or name)), *arguments]
        return Process(name, command, self.folder / f"{name}.log", host=host)

    def wait_ready(self) -> None:
        wait_for(self._is_ready, what="kube-apiserver ready")

    def restart_apiserver(self) -> None:
        """Restart the API server on the same port and with the same data.

        SIGKILL ends the API server, because after SIGTERM the API server would wait for open watches.
        """
        self.apiserver.restart(hard=True)
        self.wait_ready()

    def start_controller_manager(
        self, controllers: Sequence[str] = CONTROLLERS, further_flags: Sequence[str] = ()
    ) -> Process:
        """Start kube-controller-manager.

        By default, kube-controller-manager runs the controllers that CONTROLLERS lists.
        """
        (port,) = free_ports(1)
        command = flags.controller_manager(
            self.folder, self.kubeconfig(CONTROLLER_MANAGER), self.signing_key, port, controllers
        )
        process = self.process("kube-controller-manager", [*command, *further_flags])
        process.start()
        self._controller_managers.append(process)
        return process

    def _is_ready(self) -> bool:
        """Return whether the API server is ready. Raise an error if etcd or the API server has ended."""
        self.etcd.require_alive()
        self.apiserver.require_alive()
        try:
            return bool(self.admin.request("GET", "/readyz") == "ok")
        except (urllib3.exceptions.HTTPError, ApiError):
            return False

    def _apiserver_flags(self, etcd_port: int) -> list[str]:
        pair = (self.certificate, self.key)
        return flags.apiserver(self.folder, self._port, etcd_port, *pair, self.signing_key)
