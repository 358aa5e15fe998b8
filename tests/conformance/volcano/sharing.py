"""Kinds `deserved` and `queue.share`: the division of a cluster, and how much of it a queue holds."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import offered, requested_amounts
from extender.domain.queues.deserved import Share
from extender.domain.queues.records import queue_record
from extender.domain.queues.share_tree import QueueDemand, exceeded_dimensions, share
from tests.conformance.amounts import amounts, apart, differing, unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import queue
from tests.sharing import divide


def check_deserved(case: Case) -> Iterator[str]:
    given = case.input["queues"]
    shares = divide(offered(case.input["total"]), [_claimant(each) for each in given])
    yield from unequal("queues that take part", sorted(case.expect["deserved"]), sorted(shares))
    for each in given:
        if each["name"] in shares:
            yield from _differences(each, shares[each["name"]], case.expect)


def _claimant(given: Mapping[str, Any]) -> QueueDemand:
    record = queue_record(queue(given))
    return QueueDemand(
        record.name,
        record.weight,
        requested_amounts(given.get("request")),
        record.capability,
        record.guarantee,
        groups=given.get("podGroups", 1) > 0,
    )


def _differences(given: Mapping[str, Any], got: Share, expect: Mapping[str, Any]) -> Iterator[str]:
    name, held = given["name"], requested_amounts(given.get("allocated"))
    yield from differing(f"deserved of {name}", amounts(expect["deserved"].get(name, {})), got.deserved)
    if name in expect.get("realCapability", {}):
        yield from differing(f"ceiling of {name}", amounts(expect["realCapability"][name]), got.ceiling)
    if name in expect.get("share", {}):
        yield from apart(f"share of {name}", expect["share"][name], share(held, got.deserved))
    if name in expect.get("overused", {}):
        yield from unequal(f"overused {name}", expect["overused"][name], _overused(held, got.deserved))


def _overused(held: Mapping[str, int], deserved: Mapping[str, float]) -> bool:
    """Return whether the share gate would not let a queue have more of anything."""
    return all(exceeded_dimensions({name: 1}, held, deserved) for name in deserved)


def check_share(case: Case) -> Iterator[str]:
    deserved = {name: float(amount) for name, amount in offered(case.input["deserved"]).items()}
    yield from apart(
        "share", case.expect["share"], share(requested_amounts(case.input["allocated"]), deserved)
    )
