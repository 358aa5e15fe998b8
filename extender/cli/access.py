"""Access of a command to a cluster and a namespace, by kubectl's flags and the kubeconfig.

If the cluster does not answer, the command ends with status 1. An invalid flag or kubeconfig ends it with 2.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from extender.kube.connection import Connection
    from extender.kube.requests import Editor, Reader

F = TypeVar("F", bound=Callable[..., Any])


class Flags(NamedTuple):
    """Values of the flags; None if a flag is absent."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    all_namespaces: bool = False


class ClusterAccess(NamedTuple):
    """Access to a cluster and one of its namespaces. An empty namespace means all namespaces."""

    reader: "Reader"
    editor: "Editor"
    connection: "Connection"
    namespace: str


class Name(click.ParamType[str]):
    """Name of an object, as an argument.

    An empty name is refused, because it can come from an unset variable of a shell, and could mean all
    objects.
    """

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        return value or self.fail("'': must be a name", param, context)


NAME = Name()


def access_flags(command: F, default: str = "that of the kubeconfig's context") -> F:
    """Add the flags -n, --kubeconfig and --context to a command."""
    context_help = "The context of the kubeconfig to use. [default: its current one]"
    file_help = "The kubeconfig file. [default: $KUBECONFIG, the account of the pod, ~/.kube/config]"
    namespace_help = f"The namespace. [default: {default}]"
    command = click.option("--context", type=NAME, metavar="NAME", help=context_help)(command)
    command = click.option("--kubeconfig", metavar="FILE", help=file_help)(command)
    return click.option("-n", "--namespace", type=NAME, metavar="NAME", help=namespace_help)(command)


all_namespaces_flag = click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")


@contextmanager
def open_access(flags: Flags) -> Iterator[ClusterAccess]:
    """Open the access to a cluster for the block. Errors of the API server end the command."""
    from extender.kube.connection import Connection
    from extender.kube.endpoint import contexts, own_namespace
    from extender.kube.errors import ApiError, NoConfiguration, message_for_user
    from extender.kube.requests import Editor, Reader

    try:
        known_contexts = contexts(flags.kubeconfig).namespaces if flags.context else {}
        if flags.context and flags.context not in known_contexts:
            rule = ", ".join(sorted(known_contexts)) or "none, the kubeconfig has no contexts"
            raise click.UsageError(f"--context: invalid value {flags.context!r}: must be {rule}")
        namespace = ""
        if not flags.all_namespaces:
            namespace = flags.namespace or own_namespace(flags.kubeconfig, flags.context)
        connection = Connection.load(flags.kubeconfig, flags.context, pool=1)
    except NoConfiguration as fault:
        raise click.UsageError(f"--kubeconfig: {fault}" if flags.kubeconfig else str(fault)) from fault
    try:
        reader = Reader(connection)
        yield ClusterAccess(reader, Editor(connection), connection, namespace)
        for group_version in reader.skipped_objects:
            click.echo(f"Skipped {group_version}", err=True)
    except ApiError as fault:
        raise click.ClickException(message_for_user(fault)) from fault
    finally:
        connection.close()
