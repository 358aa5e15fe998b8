"""What a case may leave out, and what it then has. Null is the same as left out.

A family of queueing.json has its name with `_`, no kind of volcano.json has.
"""

from collections.abc import Mapping
from typing import Any

Given = dict[str, Any]

_SESSION: Given = {"actions": [], "tiers": [[]], "nodes": [], "queues": [], "podGroups": [], "pods": []}
_TASKS: Given = {"tasks": [], "minMember": 0, "currentPhase": "Pending", "unschedulableThisCycle": False}
_KUEUE: Given = {
    **{
        name: []
        for name in ("queues", "cohorts", "flavors", "missing_flavors", "admitted", "pending", "usage")
    },
    "config": {},
    "namespaces": {},
}
_BY_KIND: Mapping[str, Given] = {
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
    "admit_cycle": _KUEUE,
    "admit_cycle_fair": _KUEUE,
    "admit_cycle_v01": _KUEUE,
    "assign_flavors": {**_KUEUE, "preempt_stub": []},
    "assign_flavors_v01": {"flavors": [], "podsets": [], "queue": {}},
    "backoff": {"factor": 2},
    "fair_share_value": {**_KUEUE, "plus": []},
    "heads": {"queues": [], "pending": []},
    "kubequeue_policy": {"config": {}, "steps": []},
    "kubequeue_quota": {"oversell_rate": 1, "quotas": [], "used": []},
    "partial_admission_search": {"podsets": []},
    "preempt_classic": _KUEUE,
    "preempt_fair": _KUEUE,
    "preempt_hierarchical": _KUEUE,
    "queue_order": {"config": {}, "pending": []},
    "quota_available": _KUEUE,
    "submitter_fair_order": {"config": {}, "pending": [], "submitters": []},
}
# By the name of the list that an object stands in.
_OF_EACH: Mapping[str, Given] = {
    "podGroups": {"namespace": "default", "queue": "default", "minMember": 0},
    "pods": {"namespace": "default", "podgroup": ""},
    "nodes": {"allocatable": {}},
    "tasks": {"status": "Pending", "node": ""},
}
_LONG_AGO = -1_000_000  # of all that does not say when it was created
_OF_EACH_IN_FAMILIES: Mapping[str, Given] = {
    "pending": {"priority": 0, "created": _LONG_AGO},
    "admitted": {"priority": 0, "created": _LONG_AGO, "reserved_at": 0, "usage": []},
    "heads": {"priority": 0, "created": _LONG_AGO, "borrow_level": 0},
}


def filled(kind: str, given: Given) -> Given:
    """What a case gives, with what its schema lets it leave out."""
    made: Given = {**_BY_KIND.get(kind, {}), **_told(given)}
    for name, of_each in (_OF_EACH_IN_FAMILIES if "_" in kind else _OF_EACH).items():
        if isinstance(made.get(name), list):
            made[name] = [of_each | each if isinstance(each, dict) else each for each in made[name]]
    return made


def _told(given: Any) -> Any:
    """What a case says, without what it leaves open by writing null: in the schema its key is missing."""
    match given:
        case dict():
            return {key: _told(value) for key, value in given.items() if value is not None}
        case list():
            return [_told(each) for each in given]
    return given
