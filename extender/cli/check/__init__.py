"""`muster check`: the state of an installation, as an administrator sees it through the API server.

Metrics and health come through the API server's proxy to Muster's pods, unless their port is on loopback.
"""

import sys
from functools import partial
from typing import Any

import click

from extender.cli.access import Flags, access_flags, open_access
from extender.cli.output import echo, output_flag, show_document, wrap

_INDENT = " " * 9


@click.command()
@output_flag(("text", "json", "yaml"), "text")
@partial(access_flags, default="kube-muster")
def check(output: str, namespace: str | None, **flags: Any) -> None:
    """Check that Muster is installed and works.

    Each check prints a line, and a remedy if it failed.

    Exit status: 1 when a check failed, else 3 when you lack the permission for one.
    """
    with open_access(Flags(namespace=namespace or "kube-muster", **flags)) as access:
        from extender.cli.check.all_checks import all_findings
        from extender.cli.check.findings import UNSEEN, WRONG
        from extender.terminal.text import working

        with working("looking at the installation") as looking_at:
            findings = list(all_findings(access, looking_at))
    if output == "text":
        for subject, state, message, todo in findings:
            colour = {"ok": "green", "wrong": "red"}.get(state, "yellow")
            first = wrap(f"{subject}: {message}", _INDENT).removeprefix(_INDENT)
            echo(click.style(f"{state:<{len(_INDENT)}}", fg=colour) + first)
            if todo:
                echo(f"{_INDENT}-> " + wrap(todo, f"{_INDENT}   ").lstrip())
    else:
        show_document([finding._asdict() for finding in findings], output)
    states = {finding.state for finding in findings}
    without_failure = 3 if UNSEEN in states else 0
    sys.exit(1 if WRONG in states else without_failure)
