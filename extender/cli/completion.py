"""Completion in shells: for `muster` by a script, for `kubectl muster` by a program that kubectl calls.

Which words there are is click's to say; the names of queues and groups come from completion_names.py.
"""

import sys
from collections.abc import Iterator, Sequence

import click

_VARIABLE = "_MUSTER_COMPLETE"
_NO_FILES, _DEFAULT = ":4", ":0"  # what kubectl's shell scripts understand, after cobra's directives


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell: source <(muster completion bash)."""
    from click.shell_completion import get_completion_class

    known = get_completion_class(shell)
    assert known is not None
    click.echo(known(context.find_root().command, {}, "muster", _VARIABLE).source())


def for_kubectl() -> None:
    """The program kubectl_complete-muster: the words so far are its arguments, the last one unfinished."""
    from extender.cli import main

    for line in offered(main, sys.argv[1:]):
        click.echo(line)


def offered(program: click.Command, words: Sequence[str]) -> Iterator[str]:
    """`research`, or `create<TAB>Create a queue.`, then what else the shell may offer."""
    from click.shell_completion import ShellComplete

    *before, typed = words or [""]
    found = ShellComplete(program, {}, "muster", _VARIABLE).get_completions(list(before), typed)
    for each in found:
        if each.type == "plain":
            yield f"{each.value}\t{each.help}" if each.help else str(each.value)
    yield _NO_FILES if all(each.type == "plain" for each in found) else _DEFAULT
