"""Which cluster and namespace a command is about: kubectl's flags and the kubeconfig. A cluster that does not
answer ends the command with status 1; a flag or a kubeconfig that names nothing, with 2."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from extender.kube.connection import Connection
    from extender.kube.errors import ApiError
    from extender.kube.requests import Editor, Reader

_DENIED = re.compile(r"^admission webhook \S+ denied the request: (.+)$", re.DOTALL)
_POLICY = re.compile(r"^.*?ValidatingAdmissionPolicy \S+ with binding \S+ denied request: (.+)$", re.DOTALL)
F = TypeVar("F", bound=Callable[..., Any])


class Flags(NamedTuple):
    """As they were given; empty where they were not."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    all_namespaces: bool = False


class ClusterAccess(NamedTuple):
    """A cluster, and a namespace of it; empty means all of them."""

    reader: "Reader"
    editor: "Editor"
    connection: "Connection"
    namespace: str


def access_flags(command: F) -> F:
    """-n, --kubeconfig and --context."""
    current = "The context of the kubeconfig to use. [default: its current one]"
    file = "The kubeconfig file. [default: $KUBECONFIG, the account of the pod, ~/.kube/config]"
    namespace = "The namespace. [default: that of the kubeconfig's context]"
    command = click.option("--context", metavar="NAME", help=current)(command)
    command = click.option("--kubeconfig", metavar="FILE", help=file)(command)
    return click.option("-n", "--namespace", metavar="NAME", help=namespace)(command)


all_namespaces_flag = click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")


@contextmanager
def opened(flags: Flags) -> Iterator[ClusterAccess]:
    from extender.kube.connection import Connection
    from extender.kube.endpoint import contexts, own_namespace
    from extender.kube.errors import ApiError, NoConfiguration
    from extender.kube.requests import Editor, Reader

    try:
        if flags.context and flags.context not in (known := contexts(flags.kubeconfig).namespaces):
            allowed = ", ".join(sorted(known)) or "none, the kubeconfig has no contexts"
            raise click.UsageError(f"--context: got {flags.context!r}; allowed is {allowed}")
        namespace = ""
        if not flags.all_namespaces:
            namespace = flags.namespace or own_namespace(flags.kubeconfig, flags.context)
        connection = Connection.load(flags.kubeconfig, flags.context, pool=1)
    except NoConfiguration as fault:
        raise click.UsageError(f"--kubeconfig: {fault}" if flags.kubeconfig else str(fault)) from fault
    try:
        yield ClusterAccess(Reader(connection), Editor(connection), connection, namespace)
    except ApiError as fault:
        raise click.ClickException(api_error_message(fault)) from fault
    finally:
        connection.close()


def api_error_message(fault: "ApiError") -> str:
    """For the user: the message, and what to do."""
    from extender.kube.errors import Ambiguous, Conflict, Forbidden, Refused, Unauthorized, Unreachable

    message = fault.message or str(fault) if isinstance(fault, Refused) else str(fault)
    match fault:
        case Unauthorized():
            return "the API server does not accept the credentials of the kubeconfig; log in again"
        case Unreachable():
            return f"the API server cannot be reached: {fault}"
        case Ambiguous():
            return f"the API server gave no usable answer: {fault}"
        case Refused() if judged := _DENIED.search(message) or _POLICY.search(message):
            return f"refused: {judged[1]}"
        case Refused() if "failed calling webhook" in message:
            return f"a webhook does not answer: {message}\nThe administrator runs: muster check"
        case Conflict() if fault.reason == "AlreadyExists":
            return message
        case Conflict():
            return f"{message}\nIt was changed at the same time: run the command again."
        case Forbidden():
            return f"not allowed: {message}"
        case Refused():
            return f"the API server refuses: {message}"
    return message
