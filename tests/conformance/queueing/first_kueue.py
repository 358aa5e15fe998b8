"""Cases of Kueue v0.1 in the current format.

A minimum and a maximum of each resource and flavor become a nominal quota and a borrowing limit.
"""

from collections.abc import Iterable, Mapping
from typing import Any

CaseData = Mapping[str, Any]


def in_current_format(data: CaseData) -> dict[str, Any]:
    """Return a cycle in the current format. Its flavors have neither labels nor taints."""
    names = {
        flavor["flavor"]
        for queue in data["queues"]
        for resource in queue["resources"]
        for flavor in resource["flavors"]
    }
    queues = [{**queue, "resource_groups": _resource_groups(queue["resources"])} for queue in data["queues"]]
    return {**data, "queues": queues, "flavors": [{"name": name} for name in sorted(names)]}


def queue_in_current_format(data: CaseData) -> dict[str, Any]:
    """Return a single queue q in the current format; the other queues of its cohort become one."""
    queue = data["queue"]
    resources, used = queue.get("resources", []), queue.get("used", [])
    queues = [{"name": "q", "resource_groups": _resource_groups(resources)}]
    usage = [{**use, "queue": "q"} for use in used]
    if cohort := queue.get("cohort"):
        queues[0]["cohort"] = "k"
        minimum = _amounts(
            {"resource": resource["resource"], "flavor": flavor["flavor"], "amount": flavor["min"]}
            for resource in resources
            for flavor in resource["flavors"]
        )
        others = _subtracted(_amounts(cohort["sum_of_mins"]), minimum)
        groups_of_others = [
            [{"flavor": flavor, "resources": {name: {"nominal": n}}}] for (flavor, name), n in others.items()
        ]
        queues.append({"name": "others", "cohort": "k", "resource_groups": groups_of_others})
        held = _subtracted(_amounts(cohort["used"]), _amounts(used))
        usage += [
            {"queue": "others", "flavor": flavor, "resource": name, "amount": n}
            for (flavor, name), n in held.items()
        ]
    labels = {key for flavor in data["flavors"] for key in flavor.get("node_labels", ())}
    other_fields = {"cohorts": [], "admitted": [], "flavors": data["flavors"], "compared_labels": labels}
    return {"queues": queues, "usage": usage, **other_fields}


def _resource_groups(resources: Iterable[CaseData]) -> list[Any]:
    return [
        [
            {"flavor": flavor["flavor"], "resources": {resource["resource"]: _limit(flavor)}}
            for flavor in resource["flavors"]
        ]
        for resource in resources
    ]


def _limit(flavor: CaseData) -> CaseData:
    maximum = {"borrowing_limit": flavor["max"] - flavor["min"]} if "max" in flavor else {}
    return {"nominal": flavor["min"], **maximum}


def _amounts(entries: Iterable[CaseData]) -> dict[tuple[str, str], int]:
    return {(entry["flavor"], entry["resource"]): entry["amount"] for entry in entries}


def _subtracted(
    amounts: Mapping[tuple[str, str], int], subtracted: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    return {key: n - subtracted.get(key, 0) for key, n in amounts.items()}
