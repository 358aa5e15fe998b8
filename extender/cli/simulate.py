"""`muster simulate`: the policy in virtual time. `muster plan`: when new objects would start."""

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from extender.api.setting_kinds import Kind, text_reader, within
from extender.cli.access import Flags, access_flags
from extender.cli.output import InvalidContent, WholeNumber, output_flag, parser_of
from extender.cli.run import INTERRUPTED, NEVER_STARTED, files_flag, half_life_flag, node_flags

_read_svg_name = text_reader(lambda name: Path(name).suffix.lower() in ("", ".svg"))
_CHART_KIND = Kind("an SVG file, such as chart.svg", _read_svg_name)
_SOURCE_OPTIONS = ("from_dump", "files", "traces", "synthetic", "synthetic_jobs")
_SECONDS_KIND = Kind("a number of seconds from 0 to 1000000000, such as 90", within(float, "0", "1e9"))


@click.command(context_settings={"max_content_width": 110})
@files_flag()
@click.option(
    "--from-dump",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A file of muster dump, to continue from its state: docs/how-to/simulate.md.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A CSV file of groups (columns: docs/how-to/simulate.md); may be given several times.",
)
@click.option(
    "--synthetic", type=WholeNumber(1, 1_000_000), metavar="PODS", help="Generate a trace of gangs."
)
@click.option(
    "--synthetic-jobs",
    type=WholeNumber(1, 200_000),
    metavar="JOBS",
    help="Generate a trace of jobs for 20 queues in a tree.",
)
@node_flags(
    WholeNumber(1, 20_000),
    (None, "3; with --synthetic alone one for each 500 pods, with --synthetic-jobs for each 400 jobs"),
    (None, "4; with --synthetic alone 32"),
    (None, "16Gi; with --synthetic alone 128Gi"),
    (None, "none"),
)
@click.option(
    "--run-seconds",
    metavar="SECONDS",
    callback=parser_of(_SECONDS_KIND),
    help="The run time of pods that declare none. [default: without end]",
)
@click.option(
    "--window", type=WholeNumber(1), help="The maximum of pods that start at once, as for muster serve."
)
@half_life_flag
@click.option(
    "--compare",
    type=click.Choice(["traverse"]),
    help="Compare with traverse in all queues, without reservations and reclaim.",
)
@click.option(
    "--gantt",
    type=click.Path(),
    callback=parser_of(_CHART_KIND),
    metavar="FILE",
    help="Write a Gantt chart (SVG) to this file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="The format of the report.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The random seed of a generated trace.")
def simulate(**options: Any) -> None:
    """Simulate the policy in virtual time.

    The report has waits, utilisation and fairness by queue. Pods arrive at the time of their annotation
    sim.kube-muster.io/arrival-seconds, and run for sim.kube-muster.io/run-seconds, else --run-seconds. Nodes
    in files replace the default ones.

    Exit status: 0 if all objects started, 3 if a group never started or Muster had no group to start, 2 for
    invalid flags or files, 130 if a signal ended the simulation.
    """
    if not any(options[name] for name in _SOURCE_OPTIONS):
        raise click.UsageError("nothing to simulate: give -f, --trace, --from-dump or --synthetic")
    if (dump_file := options.pop("from_dump")) is not None:
        from extender.cli.dump import read

        options["state"] = read(dump_file).snapshot
    try:
        sys.exit(_simulate(**options))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _simulate(gantt: str | None, output: str, **options: Any) -> int:
    """Run the simulation. Return the exit status."""
    runner = import_module("extender.sim.virtual.runner")
    manifests = import_module("extender.files.manifests")
    invalid_workload = import_module("extender.sim.virtual.workload").InvalidWorkload
    msgspec = import_module("msgspec")
    try:
        given_options = {name: value for name, value in options.items() if value not in (None, ())}
        result = runner.simulate(runner.SimulationOptions(**given_options))
    except (manifests.InvalidManifests, invalid_workload) as fault:
        raise InvalidContent(str(fault)) from fault
    for remark in result.notes:
        click.echo(remark, err=True)
    report = result.report
    if output == "table":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        for line in import_module("extender.sim.virtual.report").lines(report, width):
            click.echo(line)
    elif output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        yaml = import_module("yaml")
        click.echo(yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False).rstrip())
    if gantt is not None:
        with import_module("extender.terminal.text").working("drawing the chart"):
            chart = import_module("extender.sim.virtual.chart").chart(result)
        try:
            Path(gantt).write_text(chart, encoding="utf-8")
        except OSError as fault:
            raise click.UsageError(f"--gantt: {gantt}: cannot be written: {fault.strerror}") from fault
    return NEVER_STARTED if report.never_started or not report.groups else 0


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@output_flag(("text", "json", "yaml"), "text")
@access_flags
def plan(files: tuple[Path, ...], output: str, **flags: Any) -> None:
    """Predict when objects in files would start.

    Jobs, pods and groups are tried in the cluster as it is now; nothing is written. FILE is a file or folder
    of objects, in YAML or JSON, or - for standard input. The command reads the pods, groups and nodes of the
    whole cluster.

    Exit status: 0 if all objects would start, as far as is known, 3 if one never would, 2 for invalid
    flags or files.
    """
    module = import_module("extender.cli.suppositions")
    if not module.show_plan(Flags(**flags), files, output):
        sys.exit(NEVER_STARTED)
