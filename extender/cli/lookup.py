"""Look-up of the objects that a command names. Errors suggest similar names and missing rights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click

from extender.api.objects.base import Meta, Wire
from extender.cli.output import Json
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.requests import Reader
from extender.kube.resources import Resource
from extender.terminal.text import did_you_mean, near_misses

T = TypeVar("T")

_MAX_LISTED_NAMES = 8  # maximum of objects for which all names are suggested; else only similar names


class ListedObject(Wire, frozen=True):
    metadata: Meta


def fetch_all(reader: Reader, resource: Resource, namespace: str, names: Sequence[str]) -> list[Json]:
    """Return the objects with these names, or all objects. A missing object ends the command."""
    if names:
        return [fetch(reader, resource, namespace, name, Json) for name in names]
    try:
        with _suggest_binding(resource, namespace):
            objects = reader.list(resource, namespace, Json)
    except NotFound as fault:
        raise _unknown_resource(resource) from fault
    return sorted(objects, key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))


def fetch(reader: Reader, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
    """Return an object by name. If it does not exist, the command ends with a hint at similar names."""
    try:
        with _suggest_binding(resource, namespace):
            return reader.get(resource, namespace, name, kind)
    except NotFound as fault:
        if fault.reason != "NotFound":  # the API server does not serve the path
            raise _unknown_resource(resource) from fault
        where = f" in namespace {namespace}" if namespace else ""
        message = f"{resource.plural.removesuffix('s')} {name!r} not found{where}"
        raise click.ClickException(message + _suggestion(name, reader, resource, namespace)) from fault


def _suggestion(name: str, reader: Reader, resource: Resource, namespace: str) -> str:
    """Return a hint to append to an error: similar names, or all names if there are only a few."""
    try:
        objects = reader.list(resource, namespace, ListedObject)
    except ApiError:
        return ""
    names = sorted(obj.metadata.name for obj in objects)
    similar_names = near_misses(name, names)
    if len(names) <= _MAX_LISTED_NAMES:
        sorted_names = [*similar_names, *(other for other in names if other not in similar_names)]
        return f"; there are: {', '.join(sorted_names)}" if sorted_names else "; there are none"
    return f"; {did_you_mean(similar_names)}" if similar_names else ""


@contextmanager
def _suggest_binding(resource: Resource, namespace: str) -> Iterator[None]:
    """Add a hint at the missing ClusterRoleBinding to an error about cluster-scoped objects."""
    try:
        yield
    except Forbidden as fault:
        if namespace:
            raise
        binding = f"to the role kube-muster-view, or to another that may read {resource.plural}"
        message = f"not allowed: {fault.message}\nYou need a ClusterRoleBinding {binding}."
        raise click.ClickException(message) from fault


def _unknown_resource(resource: Resource) -> click.ClickException:
    return click.ClickException(f"the cluster knows no {resource.plural}: Muster's CRDs are not installed")
