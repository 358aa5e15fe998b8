"""What the controller of a workload makes of it, read from the table: objects as they are created, and their
number."""

from collections.abc import Iterable, Iterator
from typing import Any

from extender.api.workloads.core import POD
from extender.api.workloads.making import WorkloadPart, made_of, values_of
from extender.api.workloads.shape import Json, Offspring, WorkloadRow, at
from extender.api.workloads.table import WORKLOADS

# What reading an object of an odd form raises.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def kind_of(obj: Json) -> WorkloadRow | None:
    """None where no controller makes pods of it."""
    return WORKLOADS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))


def suspended(obj: Json) -> bool:
    kind = kind_of(obj)
    return kind is not None and bool(kind.suspend) and at(obj, kind.suspend) is True


def count_pods(obj: Json) -> int:
    """How many pods there will be, without making them. Raises MALFORMED."""
    kind = kind_of(obj)
    if kind is None:
        return 1 if (obj.get("apiVersion"), obj.get("kind")) == POD else 0
    if suspended(obj):
        return 0
    complete = kind.complete(obj)
    return sum(_pods_of(complete, each) for each in kind.offspring if _applies(complete, each))


def _pods_of(obj: Json, offspring: Offspring) -> int:
    """Those of one part are alike."""
    counted = 0
    for part in _parts(obj, offspring):
        count = offspring.count.of(part.body)
        counted += count and count * count_pods(made_of(obj, offspring, part, values_of(obj, part)))
    return counted


def children(obj: Json) -> Iterator[Json]:
    """In the order in which the controller makes them. `obj` has a name and a UID. Raises
    MALFORMED."""
    kind = kind_of(obj)
    if kind is None or suspended(obj):
        return
    complete = kind.complete(obj)
    for offspring in kind.offspring:
        if _applies(complete, offspring):
            yield from _all_of(complete, offspring)


def children_at(obj: Json, indexes: Iterable[int]) -> Iterator[Json]:
    """Only those of these indexes, of an object whose children are all of one sort, as those of a Job are.
    Raises MALFORMED."""
    kind = kind_of(obj)
    complete = kind.complete(obj) if kind else obj
    for offspring in kind.offspring if kind else ():
        if _applies(complete, offspring):
            (part,) = _parts(complete, offspring)
            for index in indexes:
                numbers = {"index": index, "number": index + 1, "place": index}
                yield made_of(complete, offspring, part, values_of(complete, part) | numbers)


def _applies(obj: Json, offspring: Offspring) -> bool:
    return all(at(obj, path) in values for path, values in offspring.when.items())


def _all_of(obj: Json, offspring: Offspring) -> Iterator[Json]:
    parts = [(part, offspring.count.of(part.body)) for part in _parts(obj, offspring)]
    total, place = sum(count for _, count in parts), 0
    first = at(obj, offspring.first) if offspring.first else 0
    for part, count in parts:
        values = values_of(obj, part) | {"count": count, "total": total}
        for number in range(1, count + 1):
            numbers = {"index": number - 1 + (first or 0), "number": number, "place": place}
            yield made_of(obj, offspring, part, values | numbers)
            place += 1


def _parts(obj: Json, offspring: Offspring) -> Iterator[WorkloadPart]:
    """Of lists the items, named by `name` or `groupName`; of mappings the values, named by their keys."""
    if not offspring.each:
        yield WorkloadPart("", obj)
        return
    for name, body in _named(at(obj, offspring.each) or {}):
        if isinstance(body, dict) and (not offspring.roles or name.lower() in offspring.roles):
            yield WorkloadPart(name.lower(), body)


def _named(found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict):
        yield from found.items()
        return
    for number, each in enumerate(found):
        yield str(each.get("name") or each.get("groupName") or number), each
