"""The command line, `muster`, also a plugin of kubectl. What is heavy is imported when a command needs it."""

import click

from extender import __version__
from extender.cli.check import check
from extender.cli.completion import completion
from extender.cli.dashboard import dashboard
from extender.cli.dump import dump, replay
from extender.cli.job import job
from extender.cli.podgroup import hold, pg, podgroup, resume
from extender.cli.queue import q, queue
from extender.cli.report import report
from extender.cli.run import run
from extender.cli.settings import serve
from extender.cli.setup import certificates, migrate
from extender.cli.simulate import plan, simulate
from extender.cli.why import why


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="muster %(version)s")
def main() -> None:
    """Queues and whole-gang starts for the stock kube-scheduler."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"muster {__version__}")


main.add_command(run)
main.add_command(serve)
main.add_command(simulate)
main.add_command(dump)
main.add_command(replay)
main.add_command(report)
main.add_command(plan)
main.add_command(dashboard)
for command in (why, job, queue, q, podgroup, pg, hold, resume, check, migrate, certificates, completion):
    main.add_command(command)
