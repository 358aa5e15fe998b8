"""Node whose kubelet forwards the ports of all its pods to loopback of this machine."""

from pathlib import Path
from typing import Any

from tests.e2e import build
from tests.e2e.harness import loopback, objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.process import free_ports
from tests.e2e.harness.resources import NODES
from tests.e2e.harness.stage import Stage

MODULE = Path(__file__).parents[1] / "kubelet"
NODE = "forwards0"
Json = dict[str, Any]


def start_node(stage: Stage) -> None:
    """Start the node and its kubelet. Both exist until the end of the test."""
    (port,) = free_ports(1)
    program = build.tool(MODULE, "kube-muster.io/kubelet")
    flags = [loopback.at(port), str(stage.cluster.certificate), str(stage.cluster.key)]
    kubelet = stage.cluster.process("kubelet", flags, program)
    kubelet.start()
    stage.started.callback(kubelet.kill)
    stage.nodes(1, prefix="forwards")
    address = {"type": "InternalIP", "address": loopback.host()}
    status = {"addresses": [address], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    stage.api.patch(NODES, NODE, {"status": status}, sub="status")


def pod_of_muster(name: str, namespace: str, muster: Muster) -> Json:
    """Return a pod on that node that represents a process of Muster, with the labels of the manifests."""
    labels = {"app.kubernetes.io/part-of": "kube-muster", "app.kubernetes.io/name": "muster"}
    pod = objects.pod(name, namespace=namespace, scheduler="none", labels=labels, nodeName=NODE)
    address = f"--debug-listen={loopback.at(muster.ports['debug'])}"
    (container,) = pod["spec"]["containers"]
    container.update(name="muster", args=["serve", address])
    return pod
