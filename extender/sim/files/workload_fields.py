"""Fields of the kinds whose controllers make pods: templates and counts are where the table says, and are
checked as those of pods. All other names are known of the kinds that have a schema."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from extender.api.workloads.core import POD
from extender.api.workloads.shape import KindName, Offspring, Path, WorkloadRow
from extender.api.workloads.table import WORKLOADS
from extender.sim.apiserver.kinds import BY_NAME, OPERATOR_KINDS, PODS, REPLICA_SETS
from extender.sim.files.fields import fields_of, metadata, spec_of
from extender.sim.files.forms import ANY, COUNT, OTHERS, TEXT, TEXTS, Form, Needed, one_of

_REPLICATION_CONTROLLER = ("v1", "ReplicationController")  # not served; a ReplicaSet with another selector
_PURPOSE = "the pods are made of it"


@cache
def form_of(name: KindName) -> dict[str, Any]:
    """The form of an object."""
    form = {**_known_fields(name)}
    for offspring in WORKLOADS[name].offspring:
        _mark(form, offspring)
    for path in WORKLOADS[name].templates:
        _put(form, path, Needed(_template(), _PURPOSE))
    for path in WORKLOADS[name].counts:
        _put(form, path, COUNT)
    for path, values in _choices(WORKLOADS[name]).items():
        _put(form, path, one_of(sorted(values)))
    return {**form, "spec": Needed(form["spec"], _PURPOSE)}


def _known_fields(name: KindName) -> dict[str, Form]:
    """Of kinds without a schema only those of every object."""
    if name in BY_NAME and BY_NAME[name] not in OPERATOR_KINDS:
        return fields_of(BY_NAME[name])
    if name == _REPLICATION_CONTROLLER:
        return {**fields_of(REPLICA_SETS), "spec": {**spec_of(REPLICA_SETS), "selector": TEXTS}}
    return {"apiVersion": TEXT, "kind": TEXT, "metadata": metadata(), "spec": {OTHERS: ANY}, "status": ANY}


@cache
def _template() -> dict[str, Form]:
    return {"metadata": metadata(), "spec": Needed(spec_of(PODS), _PURPOSE)}


def _part_of_template() -> dict[str, Form]:
    return {"metadata": metadata(), "spec": {**spec_of(PODS), "containers": [ANY]}}


def _choices(row: WorkloadRow) -> dict[Path, set[Any]]:
    """The values that decide what is made."""
    choices: dict[Path, set[Any]] = {}
    for offspring in row.offspring:
        for path, values in offspring.when.items():
            choices.setdefault(path, set()).update(value for value in values if value is not None)
    return choices


def _mark(form: dict[str, Form], offspring: Offspring) -> None:
    """Put in what is made, and how many, at their places."""
    part = _reach(form, offspring.each) if offspring.each else form
    if offspring.each:
        _put(form, offspring.each, {OTHERS: part} if offspring.roles else [part])
    count = offspring.count
    for path in filter(None, (count.path, count.at_least, count.at_most, count.times, offspring.first)):
        _put(part, path, COUNT)
    for path, made in _templates(offspring):
        _put(part, path, made)


def _templates(offspring: Offspring) -> list[tuple[Path, Form]]:
    if isinstance(offspring.spec, Mapping):
        path = offspring.spec.get("template")
        return [(path, Needed(_template(), _PURPOSE))] if path else []
    if offspring.optional:
        return [(offspring.template, _part_of_template())]
    if offspring.made == POD:
        return [(offspring.template, Needed(_template(), _PURPOSE))]
    spec = form_of(offspring.made)["spec"]
    if offspring.spec:
        return [(offspring.spec, spec)]
    return [(offspring.template, Needed({"metadata": metadata(), "spec": spec}, _PURPOSE))]


def _reach(form: dict[str, Form], path: Path) -> dict[str, Form]:
    """The form of the items at a place, as far as something is known of them."""
    found: Form | None = form
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict):
        found = found.get(OTHERS)
    elif isinstance(found, list):
        found = found[0]
    return found if isinstance(found, dict) else {OTHERS: ANY}


def _put(form: dict[str, Form], path: Path, leaf: Form) -> None:
    """What is needed needs all that it is in. Forms on the way are copied: other kinds may have them, too."""
    first, *rest = path
    if not rest:
        form[first] = leaf
        return
    there = form.get(first)
    inside = there.form if isinstance(there, Needed) else there
    inside = {**inside} if isinstance(inside, dict) else {OTHERS: ANY}
    is_needed = isinstance(leaf, Needed) or isinstance(there, Needed)
    form[first] = Needed(inside, _PURPOSE) if is_needed else inside
    _put(inside, tuple(rest), leaf)
