"""STUB until the table says it."""

import msgspec

from extender.api.workloads.children import _applies, _parts, kind_of
from extender.api.workloads.core import POD
from extender.api.workloads.making import made_of, values_of
from extender.api.workloads.shape import Json


class PodSet(msgspec.Struct, frozen=True):
    role: str
    count: int
    template: Json


def pod_sets(obj: Json) -> list[PodSet]:
    row = kind_of(obj)
    if row is None:
        return []
    complete, sets = row.complete(obj), []
    for offspring in row.offspring:
        if not _applies(complete, offspring):
            continue
        for part in _parts(complete, offspring):
            made = made_of(complete, offspring, part, values_of(complete, part))
            count = offspring.count.of(part.body)
            if offspring.made == POD:
                sets.append(PodSet(part.role, count, made))
            else:
                sets += [
                    PodSet(part.role or each.role, each.count * count, each.template)
                    for each in pod_sets(made)
                ]
    return sets
