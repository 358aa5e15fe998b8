"""`muster hold` and `resume`: they keep groups back, by the annotation kube-muster.io/hold."""

from typing import Any

import click

from extender.api.keys import HOLD, START_TIMEOUTS
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.completion_names import complete_group
from extender.cli.dry_run import CLIENT, SERVER, dry_run_flag, show_done

_GROUP = "podgroup.scheduling.volcano.sh"
_names = click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)


@click.command("hold")
@_names
@dry_run_flag
@access_flags
def hold(names: tuple[str, ...], **rest: Any) -> None:
    """Keep groups back: they do not start. Those that run go on, and no further members join them."""
    _annotate(names, {HOLD: "true"}, "held", **rest)


@click.command("resume")
@_names
@dry_run_flag
@access_flags
def resume(names: tuple[str, ...], **rest: Any) -> None:
    """Let groups start that were held, or that came too late too often (StartTimedOut)."""
    _annotate(names, {HOLD: None, START_TIMEOUTS: None}, "resumed", **rest)


def _annotate(
    names: tuple[str, ...], annotations: dict[str, str | None], done: str, dry_run: str, **flags: Any
) -> None:
    with opened(Flags(**flags)) as place:
        for name in names:
            _write(place, name, annotations, dry_run)
            show_done(name, done, dry_run, _GROUP)


def _write(place: ClusterAccess, name: str, annotations: dict[str, str | None], dry_run: str) -> None:
    """With a dry run by the client, only whether there is such a group."""
    from extender.cli.lookup import fetch
    from extender.kube.resources import POD_GROUPS

    if dry_run == CLIENT:
        fetch(place.reader, POD_GROUPS, place.namespace, name, dict)
        return
    patch = {"metadata": {"annotations": annotations}}
    place.editor.patch(POD_GROUPS, place.namespace, name, patch, dry_run == SERVER)
