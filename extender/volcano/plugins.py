"""Plugins of a Volcano Job: objects next to its pods, and additions to its pods.

    env   the number of each pod in its task
    svc   DNS names of pods, lists of all pods, and a network policy
    ssh   a key of the job, with which its pods reach each other
    pytorch, tensorflow, mpi, ray   settings by which the processes of these frameworks find each other

Names, paths, flags and defaults are Volcano's (see its guides how_to_use_*_plugin). Plugins extend a pod in
the order of PLUGINS.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import ClassVar, NamedTuple

import msgspec

from extender.api.keys import ROLE
from extender.api.objects.volcano import TaskSpec, VolcanoJob
from extender.api.workloads.shape import Json, items_at
from extender.volcano.plugin import (
    Plugin,
    Port,
    containers,
    host_of_pod,
    hosts_of_task,
    labels_of,
    mount,
    open_port,
    put_env,
)
from extender.volcano.pods import build_pod, owned_object

_MAX_HOSTS = 100_000  # limit of hosts in all containers of a pod: the API server refuses larger pods


def _excess_hosts(job: VolcanoJob) -> Iterator[str]:
    """Yield a fault if environment variables would name too many hosts."""
    max_containers = max((len(containers(task.template)) for task in job.spec.tasks), default=0)
    count = job.spec.members * max_containers
    if count > _MAX_HOSTS:
        yield f"left out: {count} hosts in the containers of a pod: must be at most {_MAX_HOSTS}"


class Framework(Plugin, frozen=True):
    """Plugin for a framework in which one task is required."""

    implies: ClassVar[tuple[str, ...]] = ("svc",)

    def required_task(self) -> str:
        """Return the name of the task that the plugin requires."""
        raise NotImplementedError

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        if job.spec.task(self.required_task()) is None:
            yield f"the job has no task {self.required_task()}, which it needs"


class PyTorch(Framework, frozen=True):
    """Plugin for PyTorch: address of the master, rank of each process, and world size."""

    name: ClassVar[str] = "pytorch"
    master: str = "master"
    worker: str = "worker"
    port: Port = 23456
    wait_master_enabled: bool = False
    wait_master_timeout: int = 300  # seconds
    wait_master_image: str = "busybox:1.36.1"

    def required_task(self) -> str:
        return self.master

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        master = job.spec.task(self.master)
        if master is None:
            return
        address = host_of_pod(job, master, 0)
        size = sum(task.replicas for task in job.spec.tasks if task.name in (self.master, self.worker))
        variables = {"MASTER_ADDR": address, "MASTER_PORT": str(self.port), "WORLD_SIZE": str(size)}
        if task.name in (self.master, self.worker):
            first_rank = 0 if task.name == self.master else 1
            variables["RANK"] = str(first_rank + index)
        for container in containers(pod, with_init=False):
            open_port(container, self.port, "pytorchjob-port")
            put_env(container, *({"name": name, "value": value} for name, value in variables.items()))
        if self.wait_master_enabled and task.name == self.worker:
            script = f"until nc -z {address} {self.port}; do sleep 1; done"
            command = ["timeout", str(self.wait_master_timeout), "sh", "-c", script]
            container = {"name": "wait-for-master", "image": self.wait_master_image, "command": command}
            pod["spec"]["initContainers"] = [*items_at(pod, "spec", "initContainers"), container]


class TensorFlow(Plugin, frozen=True):
    """Plugin for TensorFlow: TF_CONFIG with the processes of each role, and with the pod's role and index."""

    name: ClassVar[str] = "tensorflow"
    implies: ClassVar[tuple[str, ...]] = ("svc",)
    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: Port = 2222

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        return _excess_hosts(job)

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        """Add TF_CONFIG to a pod, unless the job has only one process."""
        if job.spec.members <= 1 or any(_excess_hosts(job)):
            return
        roles = {self.ps: "ps", self.worker: "worker", self.chief: "chief", self.evaluator: "evaluator"}
        cluster: dict[str, list[str]] = {}
        for other in job.spec.tasks:
            if other.name in roles and other.replicas:
                cluster[roles[other.name]] = [f"{name}:{self.port}" for name in hosts_of_task(job, other)]
        role = roles.get(task.name, task.name)
        config = {"cluster": cluster, "task": {"type": role, "index": index}}
        text = msgspec.json.encode(config).decode()
        for container in containers(pod, with_init=False):
            put_env(container, {"name": "TF_CONFIG", "value": text})


class Mpi(Framework, frozen=True):
    """Plugin for MPI: the master gets a list of the workers, and reaches them by ssh."""

    name: ClassVar[str] = "mpi"
    implies: ClassVar[tuple[str, ...]] = ("svc", "ssh")
    master: str = "master"
    worker: str = "worker"
    port: Port = 22

    def required_task(self) -> str:
        return self.worker

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        yield from (*super().faults(job), *_excess_hosts(job))

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        workers = job.spec.task(self.worker) if task.name == self.master else None
        names = None
        if workers is not None and not any(_excess_hosts(job)):
            names = ",".join(hosts_of_task(job, workers))
        for container in containers(pod):
            open_port(container, self.port, "mpijob-port")
            if names is not None:
                put_env(container, {"name": "MPI_HOST", "value": names})


class Ray(Framework, frozen=True, rename="camel"):
    """Plugin for Ray: commands that start a head, and workers that join the head."""

    name: ClassVar[str] = "ray"
    head: str = "head"
    head_container: str = "head"
    worker: str = "worker"
    worker_container: str = "worker"
    port: Port = 6379
    dashboard_port: Port = 8265
    client_port: Port = 10001

    def required_task(self) -> str:
        return self.head

    def ports(self) -> dict[str, int]:
        return {"gcs": self.port, "dashboard": self.dashboard_port, "client-server": self.client_port}

    def objects(self, job: VolcanoJob) -> tuple[Json, ...]:
        ports = [{"name": name, "port": port, "targetPort": port} for name, port in self.ports().items()]
        spec = {"selector": {**labels_of(job), ROLE: self.head}, "ports": ports}
        return (owned_object(job, "v1", "Service", f"{job.metadata.name}-head-svc", spec=spec),)

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        head = job.spec.task(self.head)
        for container in containers(pod, with_init=False):
            match task.name, container.get("name"):
                case (self.head, self.head_container):
                    for name, port in self.ports().items():
                        open_port(container, port, name)
                    start = (
                        f"ray start --head --block --dashboard-host=0.0.0.0 --port={self.port} "
                        f"--dashboard-port={self.dashboard_port} --ray-client-server-port={self.client_port}"
                    )
                    container["command"] = ["sh", "-c", start]
                case (self.worker, self.worker_container) if head is not None:
                    join = f"ray start --block --address={host_of_pod(job, head, 0)}:{self.port}"
                    container["command"] = ["sh", "-c", join]


_MAX_PODS = 20_000  # a larger job gets no list of hosts, as a ConfigMap has at most a megabyte
_HOSTS_PATH = "/etc/volcano"
_KEY_PATH, _KEY_FOLDER = "/root/.ssh", ".ssh"
_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG = "id_rsa", "id_rsa.pub", "authorized_keys", "config"
SECRET_RECORD = "plugin-ssh"  # key in status.controlledResources
_ROOT_MODE, _READABLE_MODE = 0o600, 0o644  # file modes: readable for root only, readable for all users


class Env(Plugin, frozen=True):
    name: ClassVar[str] = "env"

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        for container in containers(pod):
            for name in ("VK_TASK_INDEX", "VC_TASK_INDEX"):
                put_env(container, {"name": name, "value": str(index)})


class Svc(Plugin, frozen=True):
    """Plugin for DNS names: a headless Service, and a ConfigMap with the names of all pods."""

    name: ClassVar[str] = "svc"
    publish_not_ready_addresses: bool = False
    disable_network_policy: bool = False
    inject_hosts_env: bool = True

    def objects(self, job: VolcanoJob) -> tuple[Json, ...]:
        name, pods = job.metadata.name, labels_of(job)
        spec: Json = {"clusterIP": "None", "selector": pods}
        if self.publish_not_ready_addresses:
            spec["publishNotReadyAddresses"] = True
        service = owned_object(job, "v1", "Service", name, spec=spec)
        lists = owned_object(job, "v1", "ConfigMap", f"{name}-svc", data=self._host_lists(job))
        if self.disable_network_policy:
            return service, lists
        selector = {"matchLabels": pods}
        policy = {
            "podSelector": selector,
            "ingress": [{"from": [{"podSelector": selector}]}],
            "policyTypes": ["Ingress"],
        }
        return service, lists, owned_object(job, "networking.k8s.io/v1", "NetworkPolicy", name, spec=policy)

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        spec, config_map = pod["spec"], f"{job.metadata.name}-svc"
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job.metadata.name
        mount(pod, {"name": config_map, "configMap": {"name": config_map}}, mountPath=_HOSTS_PATH)
        if self.inject_hosts_env:
            names = (name for task in job.spec.tasks for name in _variables(task))
            variables = [_from_config_map(name, config_map) for name in names]
            for container in containers(pod):
                put_env(container, *variables)

    @staticmethod
    def _host_lists(job: VolcanoJob) -> dict[str, str]:
        """Return the data of the ConfigMap.

        Each task has three entries: a file with one host per line, a list with commas, and a number.
        """
        lists = {}
        for task in job.spec.tasks:
            names, (list_name, count_name) = hosts_of_task(job, task), _variables(task)
            lists[f"{_identifier(task)}.host"] = "\n".join(names)
            lists |= {list_name: ",".join(names), count_name: str(len(names))}
        return lists


def _identifier(task: TaskSpec) -> str:
    return task.name.replace("-", "_")


def _variables(task: TaskSpec) -> tuple[str, str]:
    """Return the names of a task's variables: list of hosts, and number of hosts."""
    return f"VC_{_identifier(task).upper()}_HOSTS", f"VC_{_identifier(task).upper()}_NUM"


def _from_config_map(key: str, config_map: str) -> Json:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


class SshKeys(NamedTuple):
    """Pair of SSH keys in the file formats of OpenSSH."""

    private_key: str
    public_key: str


class Ssh(Plugin, frozen=True):
    name: ClassVar[str] = "ssh"
    ssh_key_file_path: str = _KEY_PATH
    ssh_private_key: str = ""
    ssh_public_key: str = ""
    ssh_port: Port = 22
    no_root: bool = False  # flag of older versions: mount the keys next to the lists of hosts

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        path = self.ssh_key_file_path
        if self.no_root and path == _KEY_PATH:
            path = f"{_HOSTS_PATH}/{_KEY_FOLDER}"
        names = (_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG)
        files = [{"key": name, "path": f"{_KEY_FOLDER}/{name}"} for name in names]
        mode = _ROOT_MODE if path == _KEY_PATH else _READABLE_MODE
        secret = {"secretName": secret_name(job), "items": files, "defaultMode": mode}
        volume = {"name": f"{job.metadata.name}-ssh", "secret": secret}
        mount(pod, volume, mountPath=path, subPath=_KEY_FOLDER)

    def config(self, job: VolcanoJob) -> str:
        """Return the SSH configuration, also for short names. Host keys of new pods cannot be checked."""
        lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
        for task in job.spec.tasks:
            for name in hosts_of_task(job, task):
                lines += [f"Host {name.partition('.')[0]}", f"  HostName {name}", f"  Port {self.ssh_port}"]
        return "\n".join(lines) + "\n"


PLUGINS: dict[str, type[Plugin]] = {cls.name: cls for cls in (Env, Svc, Ssh, PyTorch, TensorFlow, Mpi, Ray)}


class PluginsOfJob(NamedTuple):
    plugins: tuple[Plugin, ...]
    faults: tuple[str, ...]  # messages for the owner of the job


def plugins_of(job: VolcanoJob) -> PluginsOfJob:
    """Return the plugins of a job, including plugins that other plugins need."""
    listed_plugins = job.spec.plugins or {}
    unknown_plugins = (name for name in listed_plugins if name not in PLUGINS)
    faults = [f"unknown plugin {name:.40}: must be one of {', '.join(PLUGINS)}" for name in unknown_plugins]
    implied_names = {needed for name in listed_plugins if name in PLUGINS for needed in PLUGINS[name].implies}
    is_large = sum(max(task.replicas, 0) for task in job.spec.tasks) > _MAX_PODS
    plugins = []
    for name, plugin_type in PLUGINS.items():
        if name not in listed_plugins and name not in implied_names:
            continue
        if is_large and plugin_type is not Env:
            faults.append(f"plugin {name}: left out, as the job has more than {_MAX_PODS} pods")
        else:
            plugin, flag_faults = plugin_type.read(listed_plugins.get(name) or ())
            plugins.append(plugin)
            faults += [f"plugin {name}: {fault}" for fault in (*flag_faults, *plugin.faults(job))]
    return PluginsOfJob(tuple(plugins), tuple(faults))


def objects_of(job: VolcanoJob) -> tuple[Json, ...]:
    """Return the desired Services, ConfigMaps and NetworkPolicies, which the job owns."""
    return tuple(obj for plugin in plugins_of(job).plugins for obj in plugin.objects(job))


def build_with_plugins(job: VolcanoJob, plugins: Sequence[Plugin], task: TaskSpec, index: int) -> Json:
    """Return a pod with the additions of the job's plugins."""
    pod = build_pod(job, task, index)
    if plugins:
        pod = deepcopy(pod)  # the pod shares parts with the template
    for plugin in plugins:
        plugin.extend(pod, job, task, index)
    return pod


def ssh_secret(job: VolcanoJob, name: str, make_keys: Callable[[], SshKeys]) -> Json | None:
    """Return the Secret of the plugin ssh; None if the job does not use the plugin.

    The Secret is created only once, as running pods would not see a new key. `make_keys` returns keys for a
    job that brings no keys.
    """
    ssh = next((plugin for plugin in plugins_of(job).plugins if isinstance(plugin, Ssh)), None)
    if ssh is None:
        return None
    keys = SshKeys(ssh.ssh_private_key, ssh.ssh_public_key) if ssh.ssh_private_key else make_keys()
    files = {_PRIVATE: keys.private_key, _PUBLIC: keys.public_key, _CONFIG: ssh.config(job)}
    files[_AUTHORIZED] = keys.public_key
    return owned_object(job, "v1", "Secret", name, type="Opaque", stringData=files)


def plugin_resources(job: VolcanoJob) -> dict[str, str]:
    """Return the entries of `status.controlledResources` for the job's plugins, without the Secret of ssh."""
    return {f"plugin-{name}": name for name in job.spec.plugins or () if name != Ssh.name}


def secret_name(job: VolcanoJob) -> str:
    """Return the name of the Secret from the status; empty if there is no Secret.

    If Volcano created the Secret, the status has only the name of the plugin.
    """
    recorded_name = (job.status.controlled_resources or {}).get(SECRET_RECORD, "")
    return f"{job.metadata.name}-ssh" if recorded_name == Ssh.name else recorded_name
