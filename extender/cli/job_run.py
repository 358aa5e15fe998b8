"""`muster job run`: a Volcano Job of one task, from vcctl's flags."""

from typing import Any

import click

from extender.api.setting_kinds import Kind
from extender.api.units import at_least
from extender.api.workloads.operators import VOLCANO_JOB
from extender.cli import output as out
from extender.cli.access import Flags, access_flags, opened
from extender.cli.output import CLIENT, SERVER, Json, WholeNumber, checked


def _read(text: str) -> dict[str, str]:
    amounts = dict(part.strip().split("=", 1) for part in text.split(","))
    if not all(name and at_least(amount) >= 0 for name, amount in amounts.items()):
        raise ValueError(text)
    return amounts


_PODS: dict[str, Any] = {"type": WholeNumber(0, 2**31 - 1), "default": 1, "show_default": True}
_AMOUNTS: dict[str, Any] = {
    "metavar": "NAME=QUANTITY,...",
    "callback": checked(Kind("NAME=QUANTITY with commas between, such as cpu=8,memory=16Gi", _read)),
    "default": "cpu=1000m,memory=100Mi",
    "show_default": True,
}


@click.command("run")
@click.option("--name", required=True, help="The name of the new job.")
@click.option("--image", default="busybox", show_default=True, help="The image of its container.")
@click.option("--replicas", **_PODS, help="How many pods it has.")
@click.option("--min", "least", **_PODS, help="How many of them start together.")
@click.option("--requests", **_AMOUNTS, help="What each of them asks for.")
@click.option("--limits", **_AMOUNTS, help="What each of them may use.")
@click.option("--scheduler", default="volcano", show_default=True, help="Their schedulerName.")
@click.option("--queue", default="", help="Its queue. [default: that of the namespace]")
@out.dry_run_flag
@out.result_flag
@access_flags
def run_job(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    dry_run: str,
    output: str | None,
    **job: Any,
) -> None:
    """Create a Volcano Job of one task. Muster runs it where it is told to, else Volcano does."""
    made = _volcano_job(**job)
    if dry_run != CLIENT:
        from extender.kube.errors import NotFound
        from extender.kube.resources import resource_of

        with opened(Flags(kubeconfig, context, namespace)) as place:
            try:
                made = place.editor.create(resource_of(VOLCANO_JOB), place.namespace, made, dry_run == SERVER)
            except NotFound as fault:
                absent = f"the cluster knows no jobs.{VOLCANO_JOB.group}, or no namespace {place.namespace}"
                raise click.ClickException(absent) from fault
    if output:
        out.show_objects([made], output, single=True)
    else:
        out.show_done(made["metadata"]["name"], "created", dry_run, VOLCANO_JOB.qualified)


def _volcano_job(
    name: str,
    image: str,
    replicas: int,
    least: int,
    requests: Json,
    limits: Json,
    scheduler: str,
    queue: str,
) -> Json:
    container = {"name": "main", "image": image, "resources": {"requests": requests, "limits": limits}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    task = {"name": "default0", "replicas": replicas, "template": {"spec": pod}}
    spec = {"minAvailable": least, "schedulerName": scheduler, "tasks": [task]}
    return {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "metadata": {"name": name},
        "spec": {**spec, "queue": queue} if queue else spec,
    }
