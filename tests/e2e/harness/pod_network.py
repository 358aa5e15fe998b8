"""Network of pods and Services for the API server, as a proxy like konnectivity.

No process has the address of a pod. The proxy connects an address that has a route to a port on loopback, and
refuses all other addresses.
"""

import json
import shutil
import socket
import tempfile
from pathlib import Path

from tests.e2e.harness.tunnels import TunnelProxy


class PodNetwork(TunnelProxy):
    """Network of pods: `with PodNetwork() as pods: pods.route("10.1.0.7", 8282, muster_port)`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-pods-"))
        # A Unix socket is used, because the API server requires TLS for a proxy over TCP.
        self._socket = self._folder / "socket"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._socket))
        listener.listen()
        super().__init__(listener)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self._folder)

    def flags(self) -> list[str]:
        """Write the configuration of this proxy for an API server, and return the API server's flags."""
        transport = {"uds": {"udsName": str(self._socket)}}
        config = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [
                {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
            ],
        }
        path = self._folder / "egress.yaml"
        path.write_text(json.dumps(config))
        return [f"--egress-selector-config-file={path}"]
