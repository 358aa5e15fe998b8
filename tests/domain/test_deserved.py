"""Deserved shares: known cases. test_water_level has their definition, for any queues."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from extender.domain.model.resources import offered, requested_amounts
from extender.domain.queues.share_tree import EPSILON, QueueDemand, exceeded_dimensions, share
from tests.rows import each_of
from tests.sharing import divide

DATA = json.loads((Path(__file__).parent / "data" / "deserved.json").read_text())
NAMES = {"cpuMilli": "cpu", "memoryBytes": "memory"}


def claimant(case: Mapping[str, Any]) -> QueueDemand:
    capability = case.get("capability")
    return QueueDemand(
        case["name"],
        case["weight"],
        requested_amounts(case.get("request")),
        offered(capability) if capability else None,
        offered(case.get("guarantee")),
        has_groups=case.get("podGroups", 1) > 0,
    )


def amounts(expected: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES.get(name, name): amount for name, amount in expected.items()}


@each_of(*DATA["cases"])
def test_cases_of_the_field(case: dict[str, Any]) -> None:
    shares = divide(offered(case["total"]), [claimant(each) for each in case["queues"]])
    assert shares.keys() == case["expect"]["deserved"].keys()
    for name, given_ in shares.items():
        for resource, amount in amounts(case["expect"]["deserved"][name]).items():
            assert given_.deserved.get(resource, 0) == pytest.approx(amount, abs=EPSILON), (name, resource)
        for resource, amount in amounts(case["expect"]["realCapability"][name]).items():
            assert given_.ceiling[resource] == pytest.approx(amount, abs=EPSILON), (name, resource)
    for each in case["queues"]:
        if (expected := case["expect"].get("share", {}).get(each["name"])) is not None:
            held = requested_amounts(each.get("allocated"))
            assert share(held, shares[each["name"]].deserved) == pytest.approx(expected)


@each_of(
    ({"cpu": 1}, {}, {"cpu": 1.0}, []),
    ({"cpu": 1}, {"cpu": 1}, {"cpu": 1.0}, ["cpu"]),
    ({"cpu": 1}, {"cpu": 1}, {"cpu": 1.95}, []),
    ({"cpu": 1}, {"memory": 9}, {"cpu": 1.0, "memory": 1.0}, []),
    ({"cpu": 0}, {"cpu": 9}, {"cpu": 1.0}, []),
    ({"gpu": 1}, {}, {"cpu": 1.0}, ["gpu"]),
    ({"gpu": 1}, {}, {"gpu": float("inf")}, []),
)
def test_only_requested_resources_are_compared(
    request_: dict[str, int], held: dict[str, int], limit: dict[str, float], over: list[str]
) -> None:
    assert exceeded_dimensions(request_, held, limit) == over
    assert exceeded_dimensions(request_, held, limit, frozenset(request_)) == []
