"""Fields of the kinds whose controllers make pods: templates and counts are where the table says, and are
checked as those of pods. Of the kinds of Kubernetes itself all other names are known, too."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from extender.api.workloads.core import POD
from extender.api.workloads.shape import KindName, Offspring, Path, WorkloadRow
from extender.api.workloads.table import WORKLOADS
from extender.sim.files.fields import ANY, COUNT, METADATA, OTHERS, POD_SPEC, TEXT, Form, Leaf, Needed, of

_SPEC_FIELDS = {
    ("batch/v1", "Job"): "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions"
    " managedBy manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy scheduling"
    " selector successPolicy suspend template ttlSecondsAfterFinished",
    ("batch/v1", "CronJob"): "concurrencyPolicy failedJobsHistoryLimit jobTemplate schedule"
    " startingDeadlineSeconds successfulJobsHistoryLimit suspend timeZone",
    ("apps/v1", "Deployment"): "minReadySeconds paused progressDeadlineSeconds replicas revisionHistoryLimit"
    " selector strategy template",
    ("apps/v1", "ReplicaSet"): "minReadySeconds replicas selector template",
    ("apps/v1", "StatefulSet"): "minReadySeconds ordinals persistentVolumeClaimRetentionPolicy"
    " podManagementPolicy replicas revisionHistoryLimit selector serviceName template updateStrategy"
    " volumeClaimTemplates",
    ("v1", "ReplicationController"): "minReadySeconds replicas selector template",
}
_WORDS = "the pods are made of it"
TEMPLATE = of(metadata=METADATA, spec=Needed(POD_SPEC, _WORDS))
_PART_OF_TEMPLATE = of(metadata=METADATA, spec={**POD_SPEC, "containers": [ANY]})


@cache
def form_of(name: KindName) -> dict[str, Any]:
    """The form of an object."""
    names = _SPEC_FIELDS.get(name)
    spec: dict[str, Form] = of(names) if names else {OTHERS: ANY}
    form: dict[str, Form] = {"spec": spec}
    for offspring in WORKLOADS[name].offspring:
        _mark(form, offspring)
    for path in WORKLOADS[name].templates:
        _put(form, path, Needed(TEMPLATE, _WORDS))
    for path in WORKLOADS[name].counts:
        _put(form, path, COUNT)
    for path, values in _choices(WORKLOADS[name]).items():
        _put(form, path, _one_of(values))
    return {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": METADATA,
        "spec": Needed(spec, _WORDS),
        "status": ANY,
    }


def _choices(row: WorkloadRow) -> dict[Path, set[Any]]:
    """The values that decide what is made."""
    choices: dict[Path, set[Any]] = {}
    for offspring in row.offspring:
        for path, values in offspring.when.items():
            choices.setdefault(path, set()).update(value for value in values if value is not None)
    return choices


def _one_of(values: set[Any]) -> Leaf:
    return Leaf(" or ".join(sorted(values)), lambda value: isinstance(value, str) and value in values)


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
        return [
            (path, Needed(TEMPLATE, _WORDS)) for field, path in offspring.spec.items() if field == "template"
        ]
    if offspring.optional:
        return [(offspring.template, _PART_OF_TEMPLATE)]
    if offspring.made == POD:
        return [(offspring.template, Needed(TEMPLATE, _WORDS))]
    spec = form_of(offspring.made)["spec"]
    if offspring.spec:
        return [(offspring.spec, spec)]
    return [(offspring.template, Needed(of(metadata=METADATA, spec=spec), _WORDS))]


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
    """What is needed needs all that it is in."""
    first, *rest = path
    if not rest:
        form[first] = leaf
        return
    there = form.get(first)
    inside = there.form if isinstance(there, Needed) else there
    if not isinstance(inside, dict):
        inside = {OTHERS: ANY}
    form[first] = Needed(inside, _WORDS) if isinstance(leaf, Needed) or isinstance(there, Needed) else inside
    _put(inside, tuple(rest), leaf)
