"""Command-line flags of the programs of the control plane."""

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.harness import loopback

SERVICE_RANGE_V4, SERVICE_RANGE_V6 = "10.0.0.0/24", "fd00:10::/112"


def etcd(folder: Path, port: int, peer_port: int) -> list[str]:
    """Return the flags of etcd. etcd does not call fsync, since the data need not survive a crash."""
    clients, peers = (f"http://{loopback.at(number)}" for number in (port, peer_port))
    return [
        "--name=e2e",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=e2e={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(
    folder: Path, port: int, etcd_port: int, certificate: Path, key: Path, signing_key: Path
) -> list[str]:
    """Return the flags of the API server.

    The flags turn off throttling, and the admission plugins that need controllers.
    """
    return [
        f"--etcd-servers=http://{loopback.at(etcd_port)}",
        f"--bind-address={loopback.host()}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={signing_key}",
        f"--service-account-signing-key-file={signing_key}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--admission-control-config-file={folder / 'admission.json'}",
        f"--service-cluster-ip-range={SERVICE_RANGE_V6 if loopback.is_v6() else SERVICE_RANGE_V4}",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--enable-priority-and-fairness=false",
    ]


def scheduler(config: Path, kubeconfig: Path, port: int, certificate: Path, key: Path) -> list[str]:
    """Return the flags of kube-scheduler. Probes and metrics are served without a token."""
    return [
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup=true",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        f"--bind-address={loopback.host()}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        "--v=2",
    ]


def controller_manager(
    folder: Path, kubeconfig: Path, key: Path, port: int, controllers: Sequence[str]
) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={key}",
        "--leader-elect=false",
        "--authentication-skip-lookup=true",
        f"--bind-address={loopback.host()}",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'controller-manager'}",
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
    ]
