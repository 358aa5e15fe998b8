"""What the controller of a workload makes of it, read from the table: objects as they are created, and their
number."""

from collections.abc import Iterable, Iterator

from extender.api.workloads.core import POD
from extender.api.workloads.lifecycle import is_suspended
from extender.api.workloads.making import made_of, values_of
from extender.api.workloads.parts import applies, parts_of
from extender.api.workloads.shape import Json, Kinds, Offspring, WorkloadRow, at
from extender.api.workloads.table import WORKLOADS

# What reading an object of an odd form raises.
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def kind_of(obj: Json, kinds: Kinds = WORKLOADS) -> WorkloadRow | None:
    """None where no controller makes pods of it."""
    return kinds.get((str(obj.get("apiVersion")), str(obj.get("kind"))))


def suspended(obj: Json) -> bool:
    kind = kind_of(obj)
    return kind is not None and is_suspended(kind, obj)


def count_pods(obj: Json) -> int:
    """How many pods there will be, without making them. Raises MALFORMED."""
    kind = kind_of(obj)
    if kind is None:
        return 1 if (obj.get("apiVersion"), obj.get("kind")) == POD else 0
    if suspended(obj):
        return 0
    complete = kind.complete(obj)
    return sum(_pods_of(complete, each) for each in kind.offspring if applies(complete, each))


def _pods_of(obj: Json, offspring: Offspring) -> int:
    """Those of one part are alike."""
    counted = 0
    for part in parts_of(obj, offspring):
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
        if applies(complete, offspring):
            yield from _all_of(complete, offspring)


def children_at(obj: Json, indexes: Iterable[int]) -> Iterator[Json]:
    """Only those of these indexes, of an object whose children are all of one sort, as those of a Job are.
    Raises MALFORMED."""
    kind = kind_of(obj)
    complete = kind.complete(obj) if kind else obj
    for offspring in kind.offspring if kind else ():
        if applies(complete, offspring):
            (part,) = parts_of(complete, offspring)
            for index in indexes:
                numbers = {"index": index, "number": index + 1, "place": index}
                yield made_of(complete, offspring, part, values_of(complete, part) | numbers)


def _all_of(obj: Json, offspring: Offspring) -> Iterator[Json]:
    parts = [(part, offspring.count.of(part.body)) for part in parts_of(obj, offspring)]
    total, place = sum(count for _, count in parts), 0
    first = at(obj, offspring.first) if offspring.first else 0
    for part, count in parts:
        values = values_of(obj, part) | {"count": count, "total": total}
        for number in range(1, count + 1):
            numbers = {"index": number - 1 + (first or 0), "number": number, "place": place}
            yield made_of(obj, offspring, part, values | numbers)
            place += 1
