"""The pods that a controller will make of an object, as sets of like pods: of suspended objects, too.

The cost is that of the object, never that of its counts. `children` makes the same pods one by one.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.api.quantities import at_least
from extender.api.workloads.children import kind_of
from extender.api.workloads.core import POD
from extender.api.workloads.making import made_of, values_of
from extender.api.workloads.parts import applies, parts_of
from extender.api.workloads.shape import Json, Kinds, Offspring, at
from extender.api.workloads.table import WORKLOADS


class JobPodSet(msgspec.Struct, frozen=True):
    """Pods that differ in nothing but name and index.

    role: the operator's name of them, in lower case; empty where a kind has one set only.
    count: 1 or more.
    template: metadata (labels and annotations) and spec of the first of them, as the operator makes it.
    later: whether they are made only after pods of other sets have ended, and need no room until then.
    """

    role: str
    count: int
    template: Json
    later: bool = False


def pod_sets(obj: Json, kinds: Kinds = WORKLOADS) -> list[JobPodSet]:
    """Those that have not ended, in the order in which the controller makes them; sets without pods are left
    out. That an object is suspended, or what it makes, changes nothing.

    Raises MALFORMED for what cannot be read: counts, templates, amounts, or two sets of one role.
    """
    try:
        found = list(_sets(obj, JobPodSet("", 1, {}), kinds))
    except RecursionError as fault:
        raise ValueError("its templates are nested too deeply") from fault
    if twice := [role for role, number in Counter(each.role for each in found).items() if number > 1]:
        raise ValueError(f"several sets of pods are called {twice[0]!r:.80}")
    return found


def _sets(obj: Json, within: JobPodSet, kinds: Kinds) -> Iterator[JobPodSet]:
    """`within`: the set of objects like this one that the pods are made of."""
    kind = kind_of(obj, kinds)
    if kind is None:
        if (obj.get("apiVersion"), obj.get("kind")) == POD:
            yield replace(within, template=_template(obj, within.role))
        return
    whole = (kind.counted or kind.complete)(obj)
    for offspring in kind.offspring:
        if applies(whole, offspring):
            for made, each in _first_of_each(whole, offspring):
                count, role = within.count * each.count, each.role or within.role
                yield from _sets(made, JobPodSet(role, count, {}, each.later or within.later), kinds)


def _first_of_each(obj: Json, offspring: Offspring) -> Iterator[tuple[Json, JobPodSet]]:
    """The first object that is made of each part, and the set of these."""
    parts = [(part, offspring.count.of(part.body)) for part in parts_of(obj, offspring)]
    total, place = sum(count for _, count in parts), 0
    index = (at(obj, offspring.first) if offspring.first else 0) or 0
    for part, count in parts:
        if count:
            numbers = {"count": count, "total": total, "place": place, "index": index}
            made = made_of(obj, offspring, part, values_of(obj, part) | numbers)
            later = bool(offspring.later) and at(part.body, offspring.later) is True
            yield made, JobPodSet(offspring.role or part.role, count, {}, later)
            place += count


def _template(pod: Json, role: str) -> Json:
    """Raises ValueError for one that the API server would refuse, or that has unreadable amounts."""
    given = pod["metadata"]
    kept = {field: given[field] for field in ("labels", "annotations") if given.get(field)}
    template = {"metadata": kept, "spec": pod["spec"]}
    where = f"the pod template of {role!r:.80}" if role else "the pod template"
    try:
        read = msgspec.json.decode(msgspec.json.encode(template), type=Pod)
        _check_amounts(read)
    except ValueError as fault:
        raise ValueError(f"{where}: {fault}") from fault
    if not read.spec.containers:
        raise ValueError(f"{where} has no containers")
    return template


def _check_amounts(pod: Pod) -> None:
    spec = pod.spec
    for container in (*spec.containers, *(spec.init_containers or ())):
        for amount in (container.resources.requests or {}).values():
            at_least(amount)
    for amount in ((spec.resources and spec.resources.requests) or {}).values():
        at_least(amount)
    for amount in (spec.overhead or {}).values():
        at_least(amount)
