"""Defaults of Kubernetes' own workloads: those that commands and controllers ask for."""

from extender.sim.apiserver.kinds import DEPLOYMENTS, JOBS, STATEFUL_SETS, Json, ResourceKind


def with_defaults(kind: ResourceKind, spec: Json) -> Json:
    if kind is JOBS:
        return _job(spec)
    rolling = {"type": "RollingUpdate"}
    strategy = {DEPLOYMENTS: {"strategy": rolling}, STATEFUL_SETS: {"updateStrategy": rolling}}.get(kind, {})
    given = {name: value for name, value in spec.items() if value != {}}
    return {"replicas": 1, **strategy, **given}


def _job(spec: Json) -> Json:
    """One pod, unless it says how many: one number alone says nothing of the other."""
    once = {} if {"completions", "parallelism"} & spec.keys() else {"completions": 1}
    return {**once, "parallelism": 1, "backoffLimit": 6, **spec}


def label_as_its_pods(job: Json) -> None:
    """A Job without labels has those of its pods."""
    template = job["spec"].get("template") or {}
    if labels := (template.get("metadata") or {}).get("labels"):
        job["metadata"]["labels"] = job["metadata"].get("labels") or {**labels}
