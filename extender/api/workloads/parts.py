"""What of an object pods are made of: the object itself, or the items of a list or mapping in it."""

from collections.abc import Iterator
from typing import Any

from extender.api.workloads.making import WorkloadPart
from extender.api.workloads.shape import Json, Offspring, at


def applies(obj: Json, offspring: Offspring) -> bool:
    return all(at(obj, path) in values for path, values in offspring.when.items())


def parts_of(obj: Json, offspring: Offspring) -> Iterator[WorkloadPart]:
    """Of lists the items, named by `name` or `groupName`; of mappings the values, named by their keys."""
    if not offspring.each:
        yield WorkloadPart("", obj)
        return
    for name, key, body in _items(at(obj, offspring.each) or {}):
        if isinstance(body, dict) and (not offspring.roles or name.lower() in offspring.roles):
            yield WorkloadPart(name.lower(), body, (*offspring.each, key))


def _items(found: Any) -> Iterator[tuple[str, str, Any]]:
    """The name of each, and its key or number."""
    if isinstance(found, dict):
        yield from ((name, name, each) for name, each in found.items())
        return
    for number, each in enumerate(found):
        yield str(each.get("name") or each.get("groupName") or number), str(number), each
