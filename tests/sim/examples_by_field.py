"""Workloads of each kind in Kueue's and Volcano's documentation, by their fields, with their results.

The variants are in examples_by_field.yaml; each comes in its own namespace, with the queues QUEUES.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from extender.api.workloads.children import kind_of
from extender.api.workloads.pod_sets import annotation_paths

Json = dict[str, Any]
HERE = Path(__file__).parent
KINDS = (
    *("cronjob", "deployment", "indexed-job", "job", "jobset", "leaderworkerset", "mpijob-v1"),
    *("pytorchjob", "raycluster", "rayjob", "replicaset", "statefulset", "tfjob"),
)
QUEUES = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: shut}
spec: {state: Closed}
"""
LOCAL = (
    "apiVersion: kube-muster.io/v1alpha1\nkind: LocalQueue\nmetadata: {name: team}\nspec: {queue: research}\n"
)
QUOTA = "apiVersion: v1\nkind: ResourceQuota\n"
STARTED, NOT_ASKED = "Started", "NotAsked"


class Example(NamedTuple):
    name: str
    namespace: str
    objects: list[Json]
    outcome: str


def examples(kinds: Iterable[str] = KINDS, quotas: bool = False) -> Iterator[Example]:
    """Yield the examples.

    `quotas`: also those with a ResourceQuota, which Kubernetes' own controller has to count.
    """
    variants = yaml.safe_load((HERE / "examples_by_field.yaml").read_text())
    local_queue, quota = yaml.safe_load(LOCAL), yaml.safe_load(QUOTA)
    for path in (HERE / "workloads" / f"{kind}.yaml" for kind in kinds):
        (base,) = yaml.safe_load_all(path.read_text())
        row = kind_of(base)
        assert row is not None
        for number, variant in enumerate(variants):
            if variant.get("suspended") and not row.manageable:
                continue
            if "quota" in variant and not quotas:
                continue
            namespace = f"{path.stem}-{number}"
            local = {**local_queue, "metadata": {"name": "team", "namespace": namespace}}
            objects = [local, _with_variant(base, variant, namespace)]
            if hard := variant.get("quota"):
                meta = {"name": "compute", "namespace": namespace}
                objects.insert(0, {**quota, "metadata": meta, "spec": {"hard": hard}})
            yield Example(f"{path.stem} {variant['what']}", namespace, objects, variant["outcome"])


def _with_variant(base: Json, variant: Json, namespace: str) -> Json:
    obj = deepcopy(base)
    row = kind_of(obj)
    assert row is not None
    meta = obj["metadata"]
    meta["namespace"] = namespace
    for field in ("labels", "annotations"):
        meta[field] = {**(meta.get(field) or {}), **variant.get(field, {})}
    if variant.get("suspended"):
        _field_at(obj, row.suspend[:-1])[row.suspend[-1]] = True
    for path in annotation_paths(row, obj):
        spec = _field_at(obj, (*path[:-2], "spec"))
        spec.pop("schedulerName", None)
        if "scheduler" in variant:
            spec["schedulerName"] = variant["scheduler"]
        for container in spec.get("containers") or ():
            container["resources"] = {"requests": {"cpu": variant.get("cpu", "100m")}}
    return obj


def _field_at(obj: Any, path: Any) -> Any:
    for name in path:
        obj = obj[int(name)] if isinstance(obj, list) else obj.setdefault(name, {})
    return obj
