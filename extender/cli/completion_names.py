"""What the shell offers while a name is typed: those that the cluster has.

A shell waits for this with every press of the key, so it takes two seconds at most, and whatever goes wrong
offers nothing.
"""

from typing import TYPE_CHECKING

import click

from extender.cli.access import Flags

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from extender.kube.resources import Resource

_PATIENCE = 2.0
_KINDS = ("podgroup", "queue", "job", "cronjob", "deployment", "statefulset")


def complete_queue(context: click.Context, _parameter: click.Parameter, typed: str) -> list["CompletionItem"]:
    from extender.kube.resources import QUEUES

    return _items(context, QUEUES, typed)


def complete_group(context: click.Context, _parameter: click.Parameter, typed: str) -> list["CompletionItem"]:
    from extender.kube.resources import POD_GROUPS

    return _items(context, POD_GROUPS, typed)


def complete_target(
    context: click.Context, _parameter: click.Parameter, typed: str
) -> list["CompletionItem"]:
    """NAME of a pod, podgroup/NAME, queue/NAME, or a workload of Kubernetes itself."""
    from click.shell_completion import CompletionItem

    kind, slash, name = typed.partition("/")
    if slash:
        found = _resource_of(kind)
        return _items(context, found, name, f"{kind}/") if found else []
    from extender.kube.resources import PODS

    return [
        *(CompletionItem(f"{each}/") for each in _KINDS if each.startswith(typed)),
        *_items(context, PODS, typed),
    ]


def _resource_of(kind: str) -> "Resource | None":
    from extender.cli.owner_kinds import owner_kind
    from extender.kube.resources import POD_GROUPS, PODS, QUEUES, Resource

    own = {"podgroup": POD_GROUPS, "pg": POD_GROUPS, "queue": QUEUES, "q": QUEUES, "pod": PODS}
    workload = owner_kind(kind)
    if workload and workload.group in ("apps", "batch"):
        return Resource(f"/apis/{workload.group}/v1", workload.plural)
    return own.get(kind)


def _items(
    context: click.Context, resource: "Resource", typed: str, prefix: str = ""
) -> list["CompletionItem"]:
    from click.shell_completion import CompletionItem

    given = context.params
    flags = Flags(given.get("kubeconfig"), given.get("context"), given.get("namespace"))
    try:
        names = _names(flags, resource)
    except Exception:
        return []
    return [CompletionItem(f"{prefix}{name}") for name in names if name.startswith(typed)]


def _names(flags: Flags, resource: "Resource") -> list[str]:
    from extender.cli.access import opened
    from extender.cli.lookup import names
    from extender.kube.reader import Reader
    from extender.kube.resources import QUEUES

    with opened(flags) as place:
        scope = "" if resource is QUEUES else place.namespace
        return names(Reader(place.connection, _PATIENCE), resource, scope) or []
