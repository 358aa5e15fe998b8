"""Volcano, installed from the manifest of its release, with its real programs as processes.

The Deployments are real objects, which a test may scale or patch. While a pod of a Deployment runs, this
module runs the program of the pod's image with the arguments of the pod.
"""

import re
from pathlib import Path
from typing import Any

from tests.e2e import build
from tests.e2e.harness import manifests, objects, volcano
from tests.e2e.harness.access import User, service_account
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.follower import Follower
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import DEPLOYMENTS, NODES, PODS, QUEUES
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
MODULE = volcano.MODULE / "installed"
SYSTEM, NODE = "volcano-system", "of-volcano"
PROGRAMS = {"vc-scheduler": "scheduler", "vc-controller-manager": "controller-manager"}
# names of the service accounts and of the Deployments
ACCOUNTS = ("volcano-scheduler", "volcano-controllers")
KINDS = (
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Deployment",
)
CONFIG_MAP = "volcano-scheduler-configmap"
MOUNT_PATH = re.compile(r"/volcano\.scheduler/")
LISTEN_FLAGS = {
    "--enable-healthz=true",
    "--enable-metrics=true",
}  # flags that would make a program listen on all addresses of the machine


def programs() -> dict[str, Path]:
    """Return the path of each program, keyed by image. The programs are built if necessary.

    The build takes minutes, so it must not happen inside a test.
    """
    return {image: build.tool(MODULE, f"volcano.sh/volcano/cmd/{name}") for image, name in PROGRAMS.items()}


def users() -> list[User]:
    """Return the users that the token file of Volcano's cluster needs."""
    return [service_account(SYSTEM, name) for name in ACCOUNTS]


class Volcano:
    """Installed Volcano: `with Volcano(cluster):`.

    Volcano needs kube-controller-manager and simulated kubelets.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._binaries = programs()
        self._programs: dict[str, Process] = {}
        self._config_folder = cluster.folder / "volcano.scheduler"
        self._pods = Follower(cluster.admin, PODS, self._handle_pod)

    def __enter__(self) -> "Volcano":
        client = self._cluster.admin
        taint = {"key": NODE, "effect": "NoSchedule"}
        client.create(NODES, objects.node(NODE, cpu="0", taints=[taint]))
        self._pods.start()
        documents = self._objects()
        self._write_config(
            next(document for document in documents if document["metadata"]["name"] == CONFIG_MAP)
        )
        manifests.install(client, documents)
        wait_for(lambda: len(self._programs) == len(PROGRAMS), what="Volcano's pods run")
        wait_for(lambda: client.find(QUEUES, "default"), what="Volcano has made its queues")
        return self

    def __exit__(self, *_: object) -> None:
        for name in ACCOUNTS:
            self._cluster.admin.delete(DEPLOYMENTS, name, SYSTEM)
        wait_for(lambda: not self._cluster.admin.items(PODS, SYSTEM), what="Volcano's pods gone")
        self._pods.stop()
        for process in self._programs.values():
            process.kill()

    def running(self) -> set[str]:
        """Return the images whose programs run."""
        return {
            process.name.partition("@")[0] for process in list(self._programs.values()) if process.alive()
        }

    def _objects(self) -> list[Json]:
        """Return the objects of the release without admission webhooks. Deployments run on the node NODE."""
        documents = [
            obj for obj in volcano.release(MODULE) if obj["kind"] in KINDS and not _belongs_to_admission(obj)
        ]
        for document in documents:
            if document["kind"] == "Deployment":
                document["spec"]["template"]["spec"]["nodeName"] = NODE
        return sorted(documents, key=lambda document: KINDS.index(document["kind"]))

    def _write_config(self, config: Json) -> None:
        """Write the scheduler's ConfigMap into a folder that replaces the mounted volume."""
        self._config_folder.mkdir(exist_ok=True)
        for name, text in config["data"].items():
            (self._config_folder / name).write_text(text)

    def _handle_pod(self, kind: str, pod: Json, _version: int) -> None:
        """Start a program when its pod runs, and kill the program when the pod is deleted."""
        if pod["metadata"]["namespace"] != SYSTEM:
            return
        uid = pod["metadata"]["uid"]
        if kind == "DELETED" or "deletionTimestamp" in pod["metadata"]:
            if process := self._programs.pop(uid, None):
                process.kill()
        elif pod["status"].get("phase") == "Running" and uid not in self._programs:
            self._programs[uid] = self._start(pod)

    def _start(self, pod: Json) -> Process:
        """Start the program of a pod's image with the pod's arguments and service account."""
        (container,) = pod["spec"]["containers"]
        image = container["image"].rpartition("/")[2].partition(":")[0]
        user = service_account(SYSTEM, pod["spec"]["serviceAccountName"])
        arguments = [MOUNT_PATH.sub(f"{self._config_folder}/", arg) for arg in container["args"]]
        command = [str(self._binaries[image]), f"--kubeconfig={self._cluster.kubeconfig(user)}", *arguments]
        process = Process(
            f"{image}@{pod['metadata']['name']}",
            [argument for argument in command if argument not in LISTEN_FLAGS],
            self._cluster.folder / f"{pod['metadata']['name']}.log",
            env={"DEBUG_SOCKET_DIR": str(self._cluster.folder / "socks")},
        )
        process.start()
        return process


def _belongs_to_admission(document: Json) -> bool:
    return "admission" in document["metadata"]["name"]
