"""Ignored fields: fields that the API accepts and Muster does not act on. Their users get a warning."""

from collections.abc import Iterator, Mapping
from typing import Any

_ALL = "*"  # each item of a list
_NO_TOPOLOGY = "Muster does not place pods by topology; use node selectors or pod affinity"
_KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-"
_ASKS_NOTHING = f"{_KUEUE_TOPOLOGY}unconstrained-topology"
_MOST_WARNINGS = 8

# By API group and kind: the path of a field, and what to do in place of it.
_FIELDS: Mapping[tuple[str, str], Mapping[tuple[str, ...], str]] = {
    ("scheduling.volcano.sh", "PodGroup"): {
        ("spec", "networkTopology"): _NO_TOPOLOGY,
        ("spec", "subGroupPolicy"): "use spec.minTaskMember for a minimum of each role",
    },
    ("scheduling.volcano.sh", "Queue"): {
        ("spec", "affinity"): "use node selectors, taints or spec.flavors to tie work to nodes",
        ("spec", "extendClusters"): "Muster serves one cluster",
    },
    ("batch.volcano.sh", "Job"): {
        ("spec", "networkTopology"): _NO_TOPOLOGY,
        ("spec", "runningEstimate"): "use the annotation kube-muster.io/run-time",
        ("spec", "tasks", _ALL, "maxRetry"): "use spec.maxRetry",
        ("spec", "tasks", _ALL, "partitionPolicy", "networkTopology"): _NO_TOPOLOGY,
    },
    ("scheduling.k8s.io", "PodGroup"): {("spec", "schedulingConstraints"): _NO_TOPOLOGY},
    ("scheduling.x-k8s.io", "PodGroup"): {
        ("spec", "scheduleTimeoutSeconds"): "the start timeout of Muster applies to all groups",
    },
}
_ANNOTATED = (
    ("metadata", "annotations"),
    ("spec", "template", "metadata", "annotations"),
    ("spec", "tasks", _ALL, "template", "metadata", "annotations"),
)


def ignored_fields(group: str, kind: str, thing: Mapping[str, Any]) -> list[str]:
    """Return a warning for each field of a new object that Muster ignores, for its user."""
    found: list[str] = []
    for path, instead in _FIELDS.get((group, kind), {}).items():
        found += [f"{field}: accepted and ignored; {instead}" for field, _ in _at(thing, path)]
    for path in _ANNOTATED:
        for field, annotations in _at(thing, path):
            keys = annotations if isinstance(annotations, dict) else ()
            named = [key for key in keys if key.startswith(_KUEUE_TOPOLOGY) and key != _ASKS_NOTHING]
            found += [f"{field}[{key[:100]}]: accepted and ignored; {_NO_TOPOLOGY}" for key in named]
    return found[:_MOST_WARNINGS]


def _at(thing: Any, path: tuple[str, ...], field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, without empty ones, and their fields."""
    if not path:
        if thing:
            yield field, thing
    elif path[0] == _ALL:
        for number, item in enumerate(thing if isinstance(thing, list) else ()):
            yield from _at(item, path[1:], f"{field}[{number}]")
    elif isinstance(thing, dict):
        yield from _at(thing.get(path[0]), path[1:], f"{field}.{path[0]}".lstrip("."))
