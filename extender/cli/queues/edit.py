"""`muster queue create` and `update`."""

from typing import Any

import click

from extender.api.merge_patch import merged
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.dry_run import CLIENT, SERVER, dry_run_flag, result_flag, show_result
from extender.cli.output import Json
from extender.cli.queues.name_arguments import one_name, the_name
from extender.cli.queues.spec_flags import FLAG_NAMES, refuse_removals, spec_flags, taken


@click.command("create")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def create_queue(name: str | None, named: str | None, dry_run: str, output: str | None, **rest: Any) -> None:
    """Create a queue. What no flag says is as the API server fills it in: weight 1, Open."""
    name, spec = the_name(name, named), taken(rest)
    refuse_removals(spec)
    made = _created(name, spec, dry_run, Flags(**rest))
    show_result(made, "created", output, dry_run)


def _created(name: str, spec: Json, dry_run: str, flags: Flags) -> Json:
    from extender.cli.queues.bus_commands import see_to_state
    from extender.kube.resources import QUEUES

    queue: Json = {
        "apiVersion": QUEUES.version,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
    if dry_run == CLIENT:
        return queue
    with opened(flags) as place:
        dry = dry_run == SERVER
        made = place.editor.create(QUEUES, "", queue, dry)
        see_to_state(place, made, _other_than_new(spec.get("state")), dry)
        return made


def _other_than_new(state: str | None) -> str | None:
    """A new queue is Open without a flag."""
    return None if state == "Open" else state


@click.command("update")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def update_queue(name: str | None, named: str | None, dry_run: str, output: str | None, **rest: Any) -> None:
    """Change what the flags name, and nothing else. `--capability cpu-` takes the limit of cpu away."""
    name, spec = the_name(name, named), taken(rest)
    if not spec:
        raise click.UsageError(f"nothing to change; allowed is at least one of {', '.join(FLAG_NAMES)}")
    with opened(Flags(**rest)) as place:
        changed = updated(place, name, spec, dry_run)
    show_result(changed, "updated", output, dry_run)


def updated(place: ClusterAccess, name: str, spec: Json, dry_run: str) -> Json:
    """The queue after its spec was merged with `spec`."""
    from extender.cli.lookup import fetch
    from extender.cli.queues.bus_commands import see_to_state
    from extender.kube.resources import QUEUES

    before = fetch(place.reader, QUEUES, "", name, Json)
    if dry_run == CLIENT:
        result: Json = merged(before, {"spec": spec})
        return result
    dry = dry_run == SERVER
    changed = place.editor.patch(QUEUES, "", name, {"spec": spec}, dry)
    see_to_state(place, changed, spec.get("state"), dry)
    return changed
