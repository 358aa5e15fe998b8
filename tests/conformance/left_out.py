"""Defaults of the optional fields of a case. Null is the same as a missing field."""

from collections.abc import Mapping
from typing import Any

CaseData = dict[str, Any]

_SESSION: CaseData = {"actions": [], "tiers": [[]], "nodes": [], "queues": [], "podGroups": [], "pods": []}
_TASKS: CaseData = {"tasks": [], "minMember": 0, "currentPhase": "Pending", "unschedulableThisCycle": False}
_KUEUE: CaseData = {
    **{
        name: []
        for name in ("queues", "cohorts", "flavors", "missing_flavors", "admitted", "pending", "usage")
    },
    "config": {},
    "namespaces": {},
}
_KINDS: Mapping[str, CaseData] = {
    "session": _SESSION,
    "session.multi": {"nodes": [], "queues": [], "cycles": []},
    "gang.releasing": _TASKS,
    "podgroup.phase": _TASKS,
    "podgroup.build": {"pods": []},
    "overcommit": {"nodes": [], "alreadyReserved": [], "minResources": {}},
    "queue.state": {"podGroups": 0, "storedState": "", "action": "SyncQueue"},
    "queue.state.handler": {"storedState": ""},
    "queue.sync": {"podGroups": []},
    "queue.share": {"deserved": {}, "allocated": {}, "request": {}},
    "deserved": {"queues": [], "total": {}},
    "resource.op": {"left": {}, "right": {}},
    "cli": {"flags": {}, "queues": [], "podGroups": [], "counts": {}},
    "topology.domains": {"levels": [], "nodes": [], "pods": [], "podSets": [], "nodeLabels": {}},
    "topology.hyperNodes": {**_SESSION, "hyperNodes": []},
}
_FAMILIES: Mapping[str, CaseData] = {
    "admit_cycle": _KUEUE,
    "admit_cycle_fair": _KUEUE,
    "admit_cycle_v01": _KUEUE,
    "assign_flavors": {**_KUEUE, "preempt_stub": []},
    "assign_flavors_v01": {"flavors": [], "podsets": [], "queue": {}},
    "backoff": {"factor": 2},
    "blocked_capacity": {"queue": {}, "wanted": [], "queue_usage": []},
    "candidate_order": {"candidates": []},
    "cycle_order": {"config": {}, "heads": []},
    "fair_share_value": {**_KUEUE, "plus": []},
    "guaranteed_reclaim_doc": {"queues": []},
    "heads": {"queues": [], "pending": []},
    "kubequeue_compare": {},
    "kubequeue_policy": {"config": {}, "steps": []},
    "kubequeue_quota": {"oversell_rate": 1, "quotas": [], "used": []},
    "partial_admission_search": {"podsets": []},
    "preempt_classic": _KUEUE,
    "preempt_fair": _KUEUE,
    "preempt_hierarchical": _KUEUE,
    "queue_ops": {"now": 0, "queue": {}, "namespaces": {}, "workloads": [], "ops": []},
    "queue_order": {"config": {}, "pending": []},
    "quota_available": _KUEUE,
    "requeue_gate": {"now": 0, "workload": {}},
    "requeue_rule": {"flavors_left": False},
    "submitter_fair_order": {"config": {}, "pending": [], "submitters": []},
    "weighted_division_kai": {"total": {}, "queues": []},
}
# Defaults of objects, by the name of their list.
_ITEM_DEFAULTS: Mapping[str, CaseData] = {
    "podGroups": {"namespace": "default", "queue": "default", "minMember": 0},
    "pods": {"namespace": "default", "podgroup": ""},
    "nodes": {
        "allocatable": {},
        "labels": {},
        "taints": [],
        "unschedulable": False,
        "notReady": False,
        "copies": 1,
    },
    "tasks": {"status": "Pending", "node": ""},
    "podSets": {
        **dict.fromkeys(("required", "preferred", "group"), ""),
        "count": 1,
        "requests": {},
        "slices": [],
        "on": [],
        "nodeSelector": {},
        "tolerations": [],
    },
    "hyperNodes": {"tier": 1, "tierName": "", "nodes": []},
}
_LONG_AGO = -1_000_000  # creation time of objects without one
_NOWHERE = "nowhere"  # the queue of objects without an existing one
_FAMILY_ITEM_DEFAULTS: Mapping[str, CaseData] = {
    "pending": {"priority": 0, "created": _LONG_AGO},
    "admitted": {"priority": 0, "created": _LONG_AGO, "reserved_at": 0, "usage": []},
    "workloads": {"priority": 0, "created": _LONG_AGO},
    "candidates": {"priority": 0, "reserved_at": 0, "queue": _NOWHERE},
    "heads": {"priority": 0, "created": _LONG_AGO, "borrow_level": 0},
}


def filled(kind: str, data: CaseData) -> CaseData:
    """Return a case with the defaults of its missing optional fields."""
    filled_data: CaseData = {**_KINDS.get(kind, {}), **_FAMILIES.get(kind, {}), **_without_nulls(data)}
    for name, defaults in (_FAMILY_ITEM_DEFAULTS if kind in _FAMILIES else _ITEM_DEFAULTS).items():
        if isinstance(filled_data.get(name), list):
            filled_data[name] = [
                defaults | item if isinstance(item, dict) else item for item in filled_data[name]
            ]
    if "cohorts" in filled_data:
        for name in ("pending", "admitted", "usage"):
            filled_data[name] = [{"queue": _NOWHERE, **item} for item in filled_data.get(name, ())]
    return filled_data


def _without_nulls(data: Any) -> Any:
    """Return a case without null values, which the schema does not allow."""
    match data:
        case dict():
            return {key: _without_nulls(value) for key, value in data.items() if value is not None}
        case list():
            return [_without_nulls(item) for item in data]
    return data
