"""Expectations of sessions that differ from Muster, read from their input and result.

The deviations are intended. Muster lends idle capacity above the share, and serves groups within their
queue's share first. A queue that closes still schedules earlier groups, and does not count later ones. A
group is Inqueue only if its members have a place on real nodes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import PODS, offered
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import key
from tests.conformance.volcano.picture import StateAfterBindings, idle, pending, queue_of, requests, running
from tests.conformance.volcano.session import SCHEDULER_ACTION
from tests.sharing import within

CaseData = Mapping[str, Any]
_NOT_COMPARED = frozenset({PODS})
_ADMITTED_PHASES = ("Inqueue", "Running")


def _plugins(case: Case) -> Iterator[CaseData]:
    for tier in case.input["tiers"]:
        yield from tier


def _enables(case: Case, function: str) -> bool:
    return any(function in plugin.get("enabled", ()) for plugin in _plugins(case))


def uses_stand_in(case: Case) -> bool:
    """Return whether a gate is switched on that only Volcano's own tests have."""
    return any(plugin.get("plugin", "").startswith("test-") for plugin in _plugins(case))


# ---- bound pods


def leaves_capacity_idle(case: Case) -> bool:
    """Return whether Muster would lend capacity that stays idle in the case, to queues above their share."""
    if SCHEDULER_ACTION not in case.input["actions"]:
        return False
    after = StateAfterBindings(case)
    surplus = after.planned_sums()
    return bool(surplus) and not any(
        after.has_share_for(queue, amounts) for queue, amounts in surplus.items()
    )


def leaves_empty_requests_to_backfill(case: Case) -> bool:
    """Return whether all further pods that Muster would start request nothing but a place on a node."""
    if SCHEDULER_ACTION not in case.input["actions"] or "backfill" in case.input["actions"]:
        return False
    planned = StateAfterBindings(case).planned()
    return bool(planned) and all(pod.shape.requests.keys() <= _NOT_COMPARED for pod in planned)


def leaves_pending_groups_to_enqueue(case: Case) -> bool:
    """Return whether all pods that Muster would start are of Pending groups.

    In Volcano only the action `enqueue` would admit these, and the case does not run it.
    """
    if not case.input.get("enqueueActionConfigured") or "enqueue" in case.input["actions"]:
        return False
    waiting = {key(group) for group in case.input["podGroups"] if group.get("phase") in ("Pending", None)}
    planned = StateAfterBindings(case).planned()
    return bool(planned) and all(pod.group in waiting for pod in planned)


def outranks_shares(case: Case) -> bool:
    """Return whether, without the share gate, a queue of higher priority is served above its share.

    Meanwhile another queue waits within its own share.
    """
    if SCHEDULER_ACTION not in case.input["actions"] or _enables(case, "Allocatable"):
        return False
    after = StateAfterBindings(case)
    priorities = {queue["name"]: queue.get("priority", 0) for queue in case.input["queues"]}
    priorities_above_share = [
        priority for queue, priority in priorities.items() if after.is_above_share(queue)
    ]
    return any(
        priority < max(priorities_above_share, default=priority) and after.has_share_for(queue, amounts)
        for queue, priority in priorities.items()
        for amounts in after.waiting(queue)
    )


# ---- queues that are not open


def expects_closed_queue_to_stop(case: Case) -> bool:
    """Return whether pods of groups that came while the queue was open are to stay unbound."""
    return SCHEDULER_ACTION in case.input["actions"] and any(
        group.get("phase") in _ADMITTED_PHASES and pending(case, group) for group in _in_closed_queues(case)
    )


def counts_late_comers(case: Case) -> bool:
    """Return whether groups that came to a queue that was not open count to its request or become Inqueue."""
    return any(
        (pending(case, group) and group["queue"] in case.expect.get("deserved", {}))
        or _expected_phase(case, group) == "Inqueue"
        for group in _in_closed_queues(case)
        if group.get("phase") not in _ADMITTED_PHASES
    )


def _in_closed_queues(case: Case) -> list[CaseData]:
    closed = {queue["name"] for queue in case.input["queues"] if queue.get("state") not in ("Open", "", None)}
    return [group for group in case.input["podGroups"] if group["queue"] in closed]


# ---- groups that become Inqueue


def _expected_phase(case: Case, group: CaseData) -> str:
    return str(case.expect.get("podGroupPhases", {}).get(key(group), ""))


def _expected_inqueue(case: Case) -> list[CaseData]:
    return [group for group in case.input["podGroups"] if _expected_phase(case, group) == "Inqueue"]


def admits_without_place(case: Case) -> bool:
    """Return whether a group is to become Inqueue without enough members, capacity or ceiling."""
    return any(not _has_place(case, group) for group in _expected_inqueue(case))


def _has_place(case: Case, group: CaseData) -> bool:
    members = pending(case, group)[: max(group["minMember"], 1)]
    queue: CaseData = next((queue for queue in case.input["queues"] if queue["name"] == group["queue"]), {})
    ceiling, requested = offered(queue.get("capability")), requests(members)
    held = requests(
        running_pod for running_pod in running(case) if queue_of(case, running_pod) == group["queue"]
    )
    return (
        len(members) >= max(group["minMember"], 1)
        and within(requested, {}, idle(case))
        and within({name: n for name, n in requested.items() if name in ceiling}, held, ceiling)
    )


def admits_group_without_minimum(case: Case) -> bool:
    """Return whether a group of minMember 0 is to become Inqueue.

    It is no gang: its pods start one by one.
    """
    return any(group["minMember"] == 0 for group in _expected_inqueue(case))
