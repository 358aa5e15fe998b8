"""The command line, `muster`, which is also a plugin of kubectl.

Commands import slow modules when they run.
"""

from itertools import chain

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
from extender.cli.setup import certificates, migrate, namespace
from extender.cli.simulate import plan, simulate
from extender.cli.why import why


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"muster {__version__}")


_SECTIONS = {
    "Try it": (run, simulate, plan),
    "Jobs and queues": (why, job, podgroup, pg, hold, resume, queue, q, report, dashboard),
    "Installation": (check, namespace, serve, certificates, migrate, dump, replay),
    "This program": (completion, version),
}
_EXAMPLES = """\b
Examples:
  muster run                           # queues and gangs in an embedded cluster
  muster why job/train --namespace ml  # why a job waits
"""


class _Sections(click.Group):
    """Group of commands whose help lists the commands by purpose."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _SECTIONS.items():
            visible = [command for command in commands if not command.hidden]
            with formatter.section(title):
                rows = [(str(command.name), command.get_short_help_str(limit=90)) for command in visible]
                formatter.write_dl(rows)


@click.group(
    cls=_Sections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EXAMPLES,
)
@click.version_option(__version__, message="muster %(version)s")
def main() -> None:
    """Queues and gang scheduling for the stock kube-scheduler."""


for command in chain.from_iterable(_SECTIONS.values()):
    main.add_command(command)
