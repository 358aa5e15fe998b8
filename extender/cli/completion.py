"""Completion in shells: for `muster` by a script, for `kubectl muster` by a program that kubectl calls.

click completes commands and flags; the names of queues and groups come from completion_names.py.
"""

import sys
from collections.abc import Iterator, Sequence

import click

_VARIABLE = "_MUSTER_COMPLETE"
_NO_FILE_COMPLETION, _DEFAULT = ":4", ":0"  # directives of cobra, which kubectl's shell scripts read


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell: source <(muster completion bash)."""
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(context.find_root().command, {}, "muster", _VARIABLE).source())


def for_kubectl() -> None:
    """The program kubectl_complete-muster: its arguments are the words of the line, the last incomplete."""
    from extender.cli import main

    for line in completions(main, sys.argv[1:]):
        click.echo(line)


def completions(program: click.Command, arguments: Sequence[str]) -> Iterator[str]:
    """`research`, or `create<TAB>Create a queue.`, then the directive."""
    from click.shell_completion import ShellComplete

    *complete, incomplete = arguments or [""]
    found = ShellComplete(program, {}, "muster", _VARIABLE).get_completions(list(complete), incomplete)
    for each in found:
        if each.type == "plain":
            yield f"{each.value}\t{each.help}" if each.help else str(each.value)
    yield _NO_FILE_COMPLETION if all(each.type == "plain" for each in found) else _DEFAULT
