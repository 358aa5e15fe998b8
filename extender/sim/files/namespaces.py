"""Namespaces that objects name: those that no cluster has and no file makes are told once, or made."""

from collections.abc import Iterable

from extender.sim.apiserver.admission import FIRST_OBJECTS
from extender.sim.apiserver.kinds import BY_NAME, NAMESPACES, Json

_DEFAULT = "default"


def of(obj: Json) -> str:
    """The namespace of an object; empty for kinds without."""
    kind = BY_NAME.get((obj["apiVersion"], obj["kind"]))
    if kind is not None and not kind.namespaced:
        return ""
    return obj["metadata"].get("namespace") or _DEFAULT


def missing(found: Iterable[tuple[Json, str]]) -> dict[str, str]:
    """By name where each is named first."""
    there = {obj["metadata"]["name"] for kind, obj in FIRST_OBJECTS if kind is NAMESPACES}
    named: dict[str, str] = {}
    for obj, where in found:
        if BY_NAME.get((obj["apiVersion"], obj["kind"])) is NAMESPACES:
            there.add(obj["metadata"].get("name"))
        elif name := of(obj):
            named.setdefault(name, where)
    return {name: where for name, where in named.items() if name not in there}


def fault(name: str, where: str) -> str:
    return f'{where}: namespaces "{name}" not found; --create-namespaces makes those that are missing'


def namespace(name: str) -> Json:
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.name, "metadata": {"name": name}}
