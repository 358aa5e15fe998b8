"""Retries of a group: after failed starts, after events, and one after the other."""

from collections.abc import Iterator

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.group_info import Start
from extender.domain.snapshot.snapshot import Limits
from tests.conformance.amounts import ratio_difference, unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.waiting import QUEUE, key_of, members, waiting, waiting_ids
from tests.conformance.verdicts import Check, Skip
from tests.conformance.volcano.objects import queue
from tests.domain.world import World

_NOT_QUEUED = (Reason.BACKING_OFF, Reason.HELD)


def check_backoff(case: Case) -> Iterator[str]:
    limits = Limits(backoff=case.input["initial_s"], backoff_max=case.input["max_s"])
    yield from ratio_difference("wait", case.expect["wait_s"], limits.retry_after(case.input["attempts"] - 1))


def check_gate(case: Case) -> Iterator[str]:
    """Check whether a group with capacity and as many failed starts backs off."""
    data = case.input["workload"]
    workloads = [{"id": "w", "created": -1}]
    world = World(queue({"name": QUEUE}), *waiting(workloads, is_held=_is_held(case)), *members(workloads))
    snapshot, key = world.ledger.snapshot(), key_of("w")
    retry_at = snapshot.now + data["requeue_at"] - case.input["now"] if "requeue_at" in data else 0.0
    group_info = replace(
        snapshot.groups[key], start=Start(failures=data.get("requeue_count", 0), retry_at=retry_at)
    )
    decision = decide(replace(snapshot, groups={key: group_info})).groups[key]
    yield from unequal("may enter", case.expect["may_enter_queue"], decision.reason not in _NOT_QUEUED)


def check_heads(case: Case) -> Iterator[str]:
    """Check the first group of each queue that starts in one decision. There is capacity for all."""
    states = {
        queue_data["name"]: "Open" if queue_data.get("active", True) else "Closed"
        for queue_data in case.input["queues"]
    }
    queues = [queue({"name": name, "state": state}) for name, state in states.items()]
    pending = case.input["pending"]
    world = World(*queues, *waiting(pending), *members(pending)).settle()
    heads = [head for name in states for head in _starting(world, name)[:1]]
    yield from unequal("heads", sorted(case.expect["heads"]), sorted(heads))


def _starting(world: World, name: str) -> list[str]:
    decisions = world.decisions.groups
    return [
        workload
        for workload in waiting_ids(world, name)
        if decisions[key_of(workload)].verdict is Verdict.STARTING
    ]


def _is_held(case: Case) -> bool:
    """Return whether something other than the backoff keeps the workload out of the queue."""
    return case.input["workload"].get("requeued_condition") is False


def _grows_otherwise(case: Case) -> bool:
    """Return whether a factor other than 2 makes another backoff."""
    initial, maximum, retries = case.input["initial_s"], case.input["max_s"], case.input["attempts"] - 1
    doubled, grown = (min(maximum, initial * factor**retries) for factor in (2, case.input["factor"]))
    return bool(doubled != grown)


CHECKS: dict[str, Check] = {
    "backoff": check_backoff,
    "heads": check_heads,
    "requeue_gate": check_gate,
}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "the pause after a failed start doubles, by no other factor",
        in_family("backoff", where=_grows_otherwise),
    ),
)
