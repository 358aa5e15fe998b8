"""Order of groups: inside a queue, between queues, among victims."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from extender.domain.queues.past_usage import PastUsage, UsageKey
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.order import Strategies, in_lines
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.waiting import QUEUE, waiting, waiting_ids
from tests.conformance.verdicts import Check, Skip
from tests.conformance.volcano.objects import queue
from tests.domain.world import World

CaseData = Mapping[str, Any]


def check_queue_order(case: Case) -> Iterator[str]:
    yield from unequal("order", case.expect["order"], waiting_ids(World(*waiting(case.input["pending"]))))


def check_compare(case: Case) -> Iterator[str]:
    """Check the sign of the distance between two groups in the queue.

    Two records of the same job are one group, at distance 0.
    """
    first, second = _pending_workload(case.input["a"]), _pending_workload(case.input["b"])
    order = waiting_ids(World(*waiting([first, second])))
    distance = order.index(first["id"]) - order.index(second["id"])
    yield from unequal("sign", case.expect["sign"], (distance > 0) - (distance < 0))


def check_submitters(case: Case) -> Iterator[str]:
    """Check the order of a queue, which is fair in a mode that compares submitters.

    The usage of a submitter is relative to the largest usage.
    """
    pending = [{"created": 0, **workload} for workload in case.input["pending"]]
    is_fair = case.input["config"].get("mode", "None") != "None"
    world = World(queue({"name": QUEUE, "dequeueStrategy": "fair" if is_fair else "traverse"}))
    world.add(*waiting(pending))
    usage = {submitter["name"]: sum(submitter["usage"].values()) for submitter in case.input["submitters"]}
    relative_usage = {UsageKey(QUEUE, user=name): n / max(*usage.values(), 1) for name, n in usage.items()}
    snapshot = replace(world.ledger.snapshot(), past_usage=PastUsage(parts=relative_usage))
    rank = Strategies(Cycle(snapshot, snapshot.groups, {}, None)).rank
    ordered = in_lines(snapshot.groups.values(), lambda info: info, rank).get(QUEUE, ())
    names = [info.key.partition("/")[2] for info in ordered]
    yield from unequal("top", [case.expect["top"]], names[:1])


def _weighs_resources(case: Case) -> bool:
    return bool(case.input["config"].get("resource_weights"))


def _pending_workload(data: CaseData) -> CaseData:
    return {**data, "id": data["name"], "created": data.get("first_attempt", 0)}


def _puts_evicted_behind(case: Case) -> bool:
    """Return whether the time of eviction, instead of a workload's age, makes another order."""
    pending = case.input["pending"]
    by_eviction = sorted(
        pending, key=lambda workload: _sort_key(workload, workload.get("evicted_pods_timeout_at"))
    )
    is_by_eviction = case.input["config"].get("requeue_timestamp", "Eviction") == "Eviction"
    return is_by_eviction and by_eviction != sorted(pending, key=lambda workload: _sort_key(workload, None))


def _sort_key(workload: CaseData, since: float | None) -> tuple[int, float, str]:
    return (-workload["priority"], workload["created"] if since is None else since, workload["id"])


CHECKS: dict[str, Check] = {
    "queue_order": check_queue_order,
    "kubequeue_compare": check_compare,
    "submitter_fair_order": check_submitters,
}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "a group whose start failed keeps its place in line: its age counts, and it backs off meanwhile",
        in_family("queue_order", where=_puts_evicted_behind),
    ),
    Skip(
        "the usage of a submitter is its largest ratio over all resources, none of which has a weight",
        in_family("submitter_fair_order", where=_weighs_resources),
    ),
    Skip(
        "queues take turns by priority and share, not by the priorities of their first groups",
        in_family("cycle_order"),
    ),
)
