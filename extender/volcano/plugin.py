"""Plugin of a Volcano Job: its flags, its objects, and its additions to a pod.

The fields of a plugin are its flags, with Volcano's names. An invalid flag is reported as a fault; the other
flags are still used.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Self, get_origin

import msgspec

from extender.api.objects.volcano import TaskSpec, VolcanoJob
from extender.api.workloads.shape import Json, items_at, value_at
from extender.volcano.pods import JOB_NAME, JOB_NAMESPACE, pod_name

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_HOSTNAME_PATH = ("spec", "hostname")


class Plugin(msgspec.Struct, frozen=True, rename="kebab"):
    name: ClassVar[str]
    implies: ClassVar[tuple[str, ...]] = ()  # names of plugins that this plugin needs

    def objects(self, job: VolcanoJob) -> tuple[Json, ...]:
        """Return the objects that the plugin needs for the job."""
        return ()

    def extend(self, pod: Json, job: VolcanoJob, task: TaskSpec, index: int) -> None:
        """Change `pod` in place by adding the parts of the plugin."""

    def faults(self, job: VolcanoJob) -> Iterator[str]:
        """Yield reasons why the plugin cannot work for this job."""
        yield from ()

    @classmethod
    def read(cls, arguments: Sequence[str]) -> tuple[Self, list[str]]:
        """Return the plugin, and the faults of its flags.

        The syntax is the syntax of Go's flags: `--port=22`, `--port 22`, and `--flag` for true. A fault never
        contains the text of a value, which may be a secret key.
        """
        fields = {field.encode_name: field for field in msgspec.structs.fields(cls)}
        values: dict[str, Any] = {}
        faults, arguments_left = [], iter(arguments)
        for argument in arguments_left:
            flag, has_value, text = argument.partition("=")
            field = fields.get(flag.lstrip("-")) if flag.startswith("-") else None
            if field is None:
                faults.append(f"unknown flag {flag:.40}: {_allowed_flags(fields)}")
                continue
            if not has_value:
                text = "true" if field.type is bool else next(arguments_left, "")
            try:
                values[field.name] = msgspec.convert(text, field.type, strict=False)
            except msgspec.ValidationError:
                faults.append(f"flag {flag} must be {_EXPECTED[get_origin(field.type) or field.type]}")
        return cls(**values), faults


_EXPECTED: dict[object, str] = {
    bool: "true or false",
    Annotated: "a port from 1 to 65535",
    int: "a whole number",
}


def _allowed_flags(fields: dict[str, Any]) -> str:
    flags = ", ".join(f"--{name}" for name in fields)
    return f"must be one of {flags}" if flags else "the plugin has no flags"


def host_of_pod(job: VolcanoJob, task: TaskSpec, index: int) -> str:
    """Return the DNS name by which other pods of the job reach a pod.

    If the template has a hostname, all pods of the task have this hostname.
    """
    hostname = value_at(task.template, _HOSTNAME_PATH) or pod_name(job.metadata.name, task.name, index)
    return f"{hostname}.{_domain(job, task)}"


def hosts_of_task(job: VolcanoJob, task: TaskSpec) -> list[str]:
    """Return the DNS names of all pods of a task."""
    if value_at(task.template, _HOSTNAME_PATH):
        return [host_of_pod(job, task, 0)] if task.replicas else []
    name, domain = job.metadata.name, _domain(job, task)  # the domain is computed once for all pods
    return [f"{pod_name(name, task.name, index)}.{domain}" for index in range(task.replicas)]


def _domain(job: VolcanoJob, task: TaskSpec) -> str:
    """Return the subdomain of a task's pods."""
    return f"{value_at(task.template, ('spec', 'subdomain')) or job.metadata.name}"


def labels_of(job: VolcanoJob) -> dict[str, str]:
    """Return the labels that select all pods of a job."""
    return {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace}


def containers(pod: Json, with_init: bool = True) -> list[Json]:
    """Return the containers of a pod, with init containers unless `with_init` is false."""
    kinds = ("initContainers", "containers") if with_init else ("containers",)
    return [container for kind in kinds for container in items_at(pod, "spec", kind)]


def put_env(container: Json, *variables: Json) -> None:
    """Add variables to a container. A variable of the template with the same name is replaced."""
    names = {variable["name"] for variable in variables}
    retained = [variable for variable in items_at(container, "env") if variable.get("name") not in names]
    container["env"] = [*retained, *variables]


def open_port(container: Json, port: int, name: str) -> None:
    """Declare a port of a container, unless the container declares this port already."""
    ports = items_at(container, "ports")
    if all(declared.get("containerPort") != port for declared in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port}]


def mount(pod: Json, volume: Json, **options: str) -> None:
    """Mount `volume` into every container. `options` are further fields of each volume mount."""
    pod["spec"]["volumes"] = [*items_at(pod, "spec", "volumes"), volume]
    for container in containers(pod):
        volume_mount = {"name": volume["name"], **options}
        container["volumeMounts"] = [*items_at(container, "volumeMounts"), volume_mount]
