"""--config of commands about workloads: they know the kinds of jobs that the configuration file describes."""

from pathlib import Path

import click

from extender.api.configuration import InvalidConfiguration
from extender.cli.owner_kinds import learn
from extender.cli.serving import CONFIG_VARIABLE
from extender.cli.setting_sources import from_file


def config_option() -> click.Option:
    """Read before the arguments, which may name such a kind."""
    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_learn,
        help=f"Muster's configuration file, for the kinds of jobs that it describes. [${CONFIG_VARIABLE}]",
    )


def _learn(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from extender.api.workloads.further import further_kinds

    try:
        given = from_file(path).get("job_kinds")
    except InvalidConfiguration as fault:
        raise click.UsageError(str(fault)) from fault
    kinds, faults = further_kinds(given.value, given.where) if given else ((), [])
    if faults:
        raise click.UsageError("\n".join(faults))
    learn([each.row for each in kinds])
