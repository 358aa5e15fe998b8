"""The command line, `muster`. Installed as kubectl-muster too, it is a plugin of kubectl.

Nothing heavy is imported before a command needs it: `muster --help` answers at once.
"""

import click

from extender import __version__
from extender.cli.serving import serve

RUN = (
    "The embedded cluster that this will show comes with the next release; what works today is"
    " `muster serve` beside a kube-scheduler, with what scheduler-config/ and manifests/ hold."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Queues and whole-gang starts for the stock kube-scheduler."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"muster {__version__}")


@main.command()
def run() -> None:
    """Show queues and gangs at work (next release)."""
    click.echo(RUN)


main.add_command(serve)
