"""Kinds `deserved` and `queue.share`: the division of a cluster, and how much of it a queue holds."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import offered, requested_amounts
from extender.domain.queues.deserved import Share
from extender.domain.queues.records import queue_record
from extender.domain.queues.share_tree import QueueDemand, exceeded_dimensions, share
from tests.conformance.amounts import amounts, differing, ratio_difference, unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import queue
from tests.sharing import divide


def check_deserved(case: Case) -> Iterator[str]:
    data = case.input["queues"]
    shares = divide(offered(case.input["total"]), [_queue_demand(queue_data) for queue_data in data])
    yield from unequal("queues that take part", sorted(case.expect["deserved"]), sorted(shares))
    for queue_data in data:
        if queue_data["name"] in shares:
            yield from _differences(queue_data, shares[queue_data["name"]], case.expect)


def _queue_demand(data: Mapping[str, Any]) -> QueueDemand:
    record = queue_record(queue(data))
    return QueueDemand(
        record.name,
        record.weight,
        requested_amounts(data.get("request")),
        record.capability,
        record.guarantee,
        has_groups=data.get("podGroups", 1) > 0,
    )


def _differences(data: Mapping[str, Any], actual: Share, expect: Mapping[str, Any]) -> Iterator[str]:
    name, held = data["name"], requested_amounts(data.get("allocated"))
    yield from differing(f"deserved of {name}", amounts(expect["deserved"].get(name, {})), actual.deserved)
    if name in expect.get("realCapability", {}):
        yield from differing(f"ceiling of {name}", amounts(expect["realCapability"][name]), actual.ceiling)
    if name in expect.get("share", {}):
        yield from ratio_difference(f"share of {name}", expect["share"][name], share(held, actual.deserved))
    if name in expect.get("overused", {}):
        yield from unequal(f"overused {name}", expect["overused"][name], _is_overused(held, actual.deserved))


def _is_overused(held: Mapping[str, int], deserved: Mapping[str, float]) -> bool:
    """Return whether the share gate would not let a queue have more of anything."""
    return all(exceeded_dimensions({name: 1}, held, deserved) for name in deserved)


def check_share(case: Case) -> Iterator[str]:
    deserved = {name: float(amount) for name, amount in offered(case.input["deserved"]).items()}
    yield from ratio_difference(
        "share", case.expect["share"], share(requested_amounts(case.input["allocated"]), deserved)
    )
