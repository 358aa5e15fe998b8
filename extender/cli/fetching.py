"""Fetching what `list` and `get` were asked for, as the API server has it, in the order of their names."""

from collections.abc import Sequence
from typing import TypeVar

import click

from extender.cli.output import Json
from extender.kube.errors import NotFound
from extender.kube.reader import Reader
from extender.kube.resources import Resource

T = TypeVar("T")


def fetched(reader: Reader, resource: Resource, namespace: str, names: Sequence[str]) -> list[Json]:
    """The objects of these names, or all. One that is not there ends the command."""
    if names:
        return [fetch(reader, resource, namespace, name, Json) for name in names]
    try:
        return sorted(reader.list(resource, namespace, Json), key=_identity)
    except NotFound as fault:
        raise _unknown(resource) from fault


def fetch(reader: Reader, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
    try:
        return reader.get(resource, namespace, name, kind)
    except NotFound as fault:
        if fault.reason != "NotFound":  # nobody serves this path
            raise _unknown(resource) from fault
        where = f" in namespace {namespace}" if namespace else ""
        singular = resource.plural.removesuffix("s")
        raise click.ClickException(f"{singular} {name!r} not found{where}") from fault


def _unknown(resource: Resource) -> click.ClickException:
    return click.ClickException(
        f"the cluster knows no {resource.plural}: the CRDs of Muster are not installed"
    )


def _identity(obj: Json) -> tuple[str, str]:
    return (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
