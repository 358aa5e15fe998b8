"""Opening and closing queues: spec.state says it, and where a cluster's Queue has no such field, a
Command."""

import click

from extender.api.keys import ROOT_QUEUE
from extender.cli.access import ClusterAccess
from extender.cli.output import Json
from extender.kube.errors import NotFound
from extender.kube.resources import COMMANDS

_ACTIONS = {"Open": "OpenQueue", "Closed": "CloseQueue"}
_NO_FIELD = "the cluster's Queue has no spec.state"
_APPLY = "Apply Muster's kinds: kubectl apply -f manifests/crds"
_NAMESPACE = "default"  # where vcctl puts its own; queues are in none


def see_to_state(place: ClusterAccess, written: Json, wanted: str | None, dry: bool) -> None:
    """`written`: the queue as the API server answered. Nothing is left to do where it took the state."""
    if wanted is None or written["spec"].get("state") == wanted:
        return
    if written["metadata"]["name"] == ROOT_QUEUE and wanted == "Closed":
        message = f"queue {ROOT_QUEUE} was not closed: {_NO_FIELD}, and no Command closes {ROOT_QUEUE}"
        raise click.ClickException(f"{message}\n{_APPLY}")
    try:
        place.editor.create(COMMANDS, _NAMESPACE, _command(written, _ACTIONS[wanted]), dry)
    except NotFound as fault:
        name = written["metadata"]["name"]
        message = f"queue {name} was not made {wanted}: {_NO_FIELD}, and it has no Commands of bus.volcano.sh"
        raise click.ClickException(f"{message}\n{_APPLY}") from fault


def _command(queue: Json, action: str) -> Json:
    name, uid = queue["metadata"]["name"], queue["metadata"]["uid"]
    target = {"apiVersion": queue["apiVersion"], "kind": "Queue", "name": name, "uid": uid}
    target |= {"controller": True, "blockOwnerDeletion": True}
    return {
        "apiVersion": COMMANDS.version,
        "kind": "Command",
        "metadata": {"generateName": f"{name}-{action.lower()}-", "ownerReferences": [target]},
        "action": action,
        "target": target,
    }
