"""Limits of a queue: limits of a tree, borrowing, divisions."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import in_flavor
from extender.domain.queues.share_tree import QueueDemand
from extender.domain.scheduling.shares import QueueShares
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.kueue_world import KueueWorld, resource_name
from tests.conformance.queueing.needs import in_family
from tests.conformance.verdicts import Check, Skip
from tests.domain.builders import node, pod, queue
from tests.domain.world import World, gang
from tests.sharing import divide

CaseData = Mapping[str, Any]
_PLENTY = "1000000"  # cpus and GPUs of the only node: it limits nothing
_GPU = "x.io/gpu"
_PARTS = 100  # of a GPU: cases name fractions


# ---- Kube Queue: the tree of quotas


def check_quota_tree(case: Case) -> Iterator[str]:
    world = World(_node(), *(_quota(quota, case.input["oversell_rate"]) for quota in case.input["quotas"]))
    for number, used in enumerate(case.input["used"]):
        _add_running(world, f"used-{number}", used["quota"], used["amount"]["cpu"])
    pending = case.input["pending"]
    extended = {_GPU: str(pending["request"]["gpu"])} if "gpu" in pending["request"] else {}
    world.add(
        gang("pending", 1, queue=pending["quota"], cpu=f"{pending['request']['cpu']}m", more=extended)
    ).settle()
    yield from unequal("accepted", case.expect["accepted"], world.verdict("pending") is Verdict.STARTING)
    if not case.expect["accepted"]:
        yield from _reason_differences(case.expect["reason"], pending["quota"], world)


def _reason_differences(expected: str, queue_name: str, world: World) -> Iterator[str]:
    kind, _, name = expected.partition(":")
    reason, detail = world.reason("pending"), world.detail("pending")
    match kind:
        case "quota-not-found":
            yield from unequal("reason", Reason.QUEUE_NOT_FOUND, reason)
        case "cycle":
            yield from unequal("reason", Reason.INVALID_SPEC, reason)
        case _:
            ceiling_reasons = (Reason.QUEUE_CEILING, Reason.NEVER_FITS)
            yield from unequal("waits for the ceiling", True, reason in ceiling_reasons)
            yield from unequal("of the queue itself", name == queue_name, "above it" not in detail)
            yield from unequal("of the queue named", True, f"queue {name}" in detail)


def _quota(data: CaseData, oversell: float) -> Any:
    """Return a queue with quota; Kube Queue reclaims nothing."""
    maximum = {resource: f"{n}m" if resource == "cpu" else str(n) for resource, n in data["max"].items()}
    fields: dict[str, Any] = {"parent": data.get("parent") or "", "oversell": str(oversell)}
    return queue(data["name"], capability=maximum, reclaimable=False, **fields)


def _node() -> Any:
    return node("n", cpu=_PLENTY, more={_GPU: _PLENTY})


def _add_running(world: World, name: str, queue: str, millicores: int) -> None:
    """Add a running pod that holds this amount."""
    world.add(gang(name, 1, queue=queue, cpu=f"{millicores}m")).bind(f"{name}-0", "n")
    world.run(f"{name}-0")


# ---- Kueue: quotas with borrowing and lending


def check_available(case: Case) -> Iterator[str]:
    """Check the available amount of a flavor, which is the minimum over the ceilings of all levels."""
    for expected in case.expect["available"]:
        available = _available(case.input, expected, case.input["usage"])
        yield from unequal(
            f"available to {expected['queue']}, {expected['flavor']}", expected["amount"], available
        )
    for expected in case.expect["potential"]:
        available = _available(case.input, expected, ())
        yield from unequal(
            f"potential of {expected['queue']}, {expected['flavor']}", expected["amount"], available
        )


def _available(data: CaseData, query: CaseData, usage: Any) -> int:
    world = KueueWorld({**data, "usage": usage}, ()).world
    cohorts = {cohort["name"] for cohort in data["cohorts"]}
    queue = f"cohort-{query['queue']}" if query["queue"] in cohorts else query["queue"]
    world.add(pod("wants", queue=queue))
    one_unit = {in_flavor(resource_name(query["resource"]), query["flavor"]): 1}
    return QueueShares(world.ledger.snapshot()).headroom_below_ceiling(queue, one_unit)


# ---- KAI: the division


def check_division(case: Case) -> Iterator[str]:
    shares = divide(
        _scaled(case.input["total"]), [_queue_demand(queue_data) for queue_data in case.input["queues"]]
    )
    for expected in case.expect["shares"]:
        for resource, amount in expected["fair_share"].items():
            share = shares.get(expected["queue"])
            part = share.deserved.get(resource, 0.0) / _PARTS if share else 0.0
            if abs(part - amount) > 0.01:
                yield f"{resource} of {expected['queue']}: expected {amount}, got {part}"


def _queue_demand(data: CaseData) -> QueueDemand:
    resources = data["resources"]
    weight = max(int(resource["over_quota_weight"]) for resource in resources.values())
    limits = {name: amounts["limit"] for name, amounts in resources.items() if amounts["limit"] >= 0}
    return QueueDemand(
        data["name"],
        weight,
        _scaled({name: amounts["request"] for name, amounts in resources.items()}),
        _scaled(limits) or None,
        deserved=_scaled({name: amounts["deserved"] for name, amounts in resources.items()}),
    )


def _scaled(amounts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(amount * _PARTS) for name, amount in amounts.items()}


def _left_over(case: Case) -> dict[str, float]:
    """Return the rest of each resource for the weights, where not all have their requests."""
    rest = {}
    for name, total in case.input["total"].items():
        claims = [queue["resources"][name] for queue in case.input["queues"] if name in queue["resources"]]
        if sum(claim["request"] for claim in claims) > total:
            rest[name] = total - sum(min(claim["deserved"], claim["request"]) for claim in claims)
    return rest


def _gives_more_than_there_is(case: Case) -> bool:
    return any(rest < 0 for rest in _left_over(case).values())


def _divides_by_priority(case: Case) -> bool:
    levels = {queue.get("priority", 0) for queue in case.input["queues"]}
    return len(levels) > 1 and any(rest > 0 for rest in _left_over(case).values())


def _divides_units(case: Case) -> bool:
    """Return whether the parts by weight are no whole numbers."""
    for name, rest in _left_over(case).items():
        weights = [queue["resources"][name]["over_quota_weight"] for queue in case.input["queues"]]
        limited = any(queue["resources"][name]["limit"] >= 0 for queue in case.input["queues"])
        if rest > 0 and not limited and any(rest * weight % sum(weights) for weight in weights):
            return True
    return False


CHECKS: dict[str, Check] = {
    "kubequeue_quota": check_quota_tree,
    "quota_available": check_available,
    "weighted_division_kai": check_division,
}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "a queue without a capability is unlimited",
        in_family("kubequeue_quota", where=lambda case: case.expect.get("reason") == "empty-max"),
    ),
    Skip(
        "of what is given by name and is more than there is, each queue gets the same part",
        in_family("weighted_division_kai", where=_gives_more_than_there_is),
    ),
    Skip(
        "the rest is divided by weight alone; priority decides who is served first",
        in_family("weighted_division_kai", where=_divides_by_priority),
    ),
    Skip(
        "a deserved share may be a fraction of a unit",
        in_family("weighted_division_kai", where=_divides_units),
    ),
    Skip(
        "a queue's share is allocated / deserved, not what it borrows of what others may lend",
        in_family("fair_share_value"),
    ),
)
