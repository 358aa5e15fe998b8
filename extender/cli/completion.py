"""Completion in shells: a script for `muster`, a program for `kubectl muster`, and names from the cluster."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from extender.cli.access import Flags
from extender.cli.kinds import POD, POD_GROUP, QUEUE, own_kind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from extender.kube.resources import Resource

T = TypeVar("T")

_TIMEOUT = 2.0  # maximum seconds for a read of names
_KINDS = ("podgroup", "queue", "job", "cronjob", "deployment", "statefulset")
_VARIABLE = "_MUSTER_COMPLETE"
_NO_FILE_COMPLETION, _DEFAULT = ":4", ":0"  # directives of cobra, which kubectl's shell scripts read


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script: source <(muster completion bash)."""
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(context.find_root().command, {}, "muster", _VARIABLE).source())


def for_kubectl() -> None:
    """Complete a line for kubectl, as the program kubectl_complete-muster.

    The arguments are the words of the line. The last word is incomplete.
    """
    from extender.cli import main

    for line in completions(main, sys.argv[1:]):
        click.echo(line)


def completions(program: click.Command, arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line for each completion, such as `create<TAB>Create a queue.`, then a directive of Cobra."""
    from click.shell_completion import ShellComplete

    *complete_words, incomplete = arguments or [""]
    items = ShellComplete(program, {}, "muster", _VARIABLE).get_completions(list(complete_words), incomplete)
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else str(item.value)
    yield _NO_FILE_COMPLETION if all(item.type == "plain" for item in items) else _DEFAULT


# ---- names
#
# A shell waits for the names at each press of Tab: they take at most two seconds, and errors yield no names.


def complete_queue(context: click.Context, _: click.Parameter, incomplete: str) -> list["CompletionItem"]:
    from extender.kube.resources import QUEUES

    return _names_in(context, QUEUES, incomplete)


def complete_group(context: click.Context, _: click.Parameter, incomplete: str) -> list["CompletionItem"]:
    """Complete a group's NAME, or the NAME or KIND/NAME of its owner."""
    from extender.domain.explain.observed_objects import ObservedGroup
    from extender.kube.resources import POD_GROUPS

    full_names = [group.display_name for group in _read(context, POD_GROUPS, ObservedGroup)]
    names = full_names if "/" in incomplete else [name.rpartition("/")[2] for name in full_names]
    return _items(sorted(names), incomplete)


def complete_job(context: click.Context, _: click.Parameter, incomplete: str) -> list["CompletionItem"]:
    """Complete NAME or KIND/NAME of a job that has a PodGroup."""
    from extender.cli.kinds import job_of
    from extender.domain.explain.observed_objects import ObservedGroup
    from extender.kube.resources import POD_GROUPS

    owners = [job_of(group.controller) for group in _read(context, POD_GROUPS, ObservedGroup)]
    names = sorted({(owner.display_name, owner.name) for owner in owners if owner})
    return _items([full_name if "/" in incomplete else bare for full_name, bare in names], incomplete)


def complete_target(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    """Complete the NAME of a pod or job, podgroup/NAME, queue/NAME, or a workload of Kubernetes."""
    from click.shell_completion import CompletionItem

    from extender.cli.kinds import owner_kind
    from extender.kube.resources import POD_GROUPS, PODS, QUEUES, Resource

    kind, slash, name = incomplete.partition("/")
    if slash:
        resource = {POD: PODS, POD_GROUP: POD_GROUPS, QUEUE: QUEUES}.get(own_kind(kind))
        workload = owner_kind(kind)
        if workload and workload.group in ("apps", "batch"):
            resource = Resource(f"/apis/{workload.group}/v1", workload.plural)
        return _names_in(context, resource, name, f"{kind}/") if resource else []

    return [
        *(CompletionItem(f"{kind_name}/") for kind_name in _KINDS if kind_name.startswith(incomplete)),
        *_names_in(context, PODS, incomplete),
        *complete_job(context, parameter, incomplete),
    ]


def complete_what_if_term(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    """Complete the field of a term, then its queue, node or group."""
    from extender.domain.explain.what_if import ALLOWED
    from extender.kube.resources import NODES, POD_GROUPS, QUEUES

    field, equals, value = incomplete.partition("=")
    if not equals:
        names = {form.partition("RESOURCE")[0].partition("=")[0] for form in ALLOWED.values()}
        return _items(sorted(name if name.endswith(".") else f"{name}=" for name in names), incomplete)
    if field == "delete" and value.startswith(f"{POD_GROUP}/"):
        return _names_in(context, POD_GROUPS, value.partition("/")[2], f"delete={POD_GROUP}/")
    if field == "nodes" and ":" in value:
        count, name = value.split(":", 1)
        return _names_in(context, NODES, name, f"nodes={count}:")
    return _names_in(context, QUEUES, value, f"{field}=") if field.startswith("queue.") else []


def _names_in(
    context: click.Context, resource: "Resource", incomplete: str, prefix: str = ""
) -> list["CompletionItem"]:
    from extender.cli.lookup import ListedObject

    names = sorted(obj.metadata.name for obj in _read(context, resource, ListedObject))
    return _items((f"{prefix}{name}" for name in names), prefix + incomplete)


def _items(names: Iterable[str], incomplete: str) -> list["CompletionItem"]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _read(context: click.Context, resource: "Resource", kind: type[T]) -> list[T]:
    """Return the objects of a kind; empty after any error, because a completion must not print errors."""
    from extender.cli.access import open_access
    from extender.kube.requests import Reader
    from extender.kube.resources import NODES, QUEUES

    parameters = context.params
    flags = Flags(parameters.get("kubeconfig"), parameters.get("context"), parameters.get("namespace"))
    try:
        with open_access(flags) as access:
            scope = "" if resource in (QUEUES, NODES) else access.namespace
            return Reader(access.connection, _TIMEOUT).list(resource, scope, kind)
    except Exception:
        return []
