"""What the shell offers while a name is typed: those that the cluster has.

A shell waits for this with every press of the key, so it takes two seconds at most, and whatever goes wrong
offers nothing.
"""

from typing import TYPE_CHECKING

import click

from extender.cli.access import Flags
from extender.cli.targets import POD, POD_GROUP, QUEUE, own_kind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from extender.kube.resources import Resource

_TIMEOUT = 2.0  # seconds
_KINDS = ("podgroup", "queue", "job", "cronjob", "deployment", "statefulset")


def complete_queue(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    from extender.kube.resources import QUEUES

    return _names_in(context, QUEUES, incomplete)


def complete_group(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    from extender.kube.resources import POD_GROUPS

    return _names_in(context, POD_GROUPS, incomplete)


def complete_target(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    """NAME of a pod, podgroup/NAME, queue/NAME, or a workload of Kubernetes itself."""
    from click.shell_completion import CompletionItem

    kind, slash, name = incomplete.partition("/")
    if slash:
        found = _resource_of(kind)
        return _names_in(context, found, name, f"{kind}/") if found else []
    from extender.kube.resources import PODS

    return [
        *(CompletionItem(f"{each}/") for each in _KINDS if each.startswith(incomplete)),
        *_names_in(context, PODS, incomplete),
    ]


def _resource_of(kind: str) -> "Resource | None":
    from extender.cli.owner_kinds import owner_kind
    from extender.kube.resources import POD_GROUPS, PODS, QUEUES, Resource

    workload = owner_kind(kind)
    if workload and workload.group in ("apps", "batch"):
        return Resource(f"/apis/{workload.group}/v1", workload.plural)
    return {POD: PODS, POD_GROUP: POD_GROUPS, QUEUE: QUEUES}.get(own_kind(kind))


def _names_in(
    context: click.Context, resource: "Resource", incomplete: str, prefix: str = ""
) -> list["CompletionItem"]:
    from click.shell_completion import CompletionItem

    given = context.params
    flags = Flags(given.get("kubeconfig"), given.get("context"), given.get("namespace"))
    try:
        names = _names(flags, resource)
    except Exception:
        return []
    return [CompletionItem(f"{prefix}{name}") for name in names if name.startswith(incomplete)]


def _names(flags: Flags, resource: "Resource") -> list[str]:
    from extender.cli.access import opened
    from extender.cli.lookup import names
    from extender.kube.reader import Reader
    from extender.kube.resources import QUEUES

    with opened(flags) as place:
        scope = "" if resource is QUEUES else place.namespace
        return names(Reader(place.connection, _TIMEOUT), resource, scope) or []
