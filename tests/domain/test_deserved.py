"""Deserved shares: known cases, and properties that hold for any queues."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.model.resources import asked, offered
from extender.domain.queues.deserved import Share
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
        asked(case.get("request")),
        offered(capability) if capability else None,
        offered(case.get("guarantee")),
        groups=case.get("podGroups", 1) > 0,
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
            held = asked(each.get("allocated"))
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


# ---- properties

RESOURCES = ("cpu", "memory", "x.io/gpu")
some = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 10_000))


@st.composite
def claimants(draw: st.DrawFn, guarantees: bool = True) -> list[QueueDemand]:
    return [
        QueueDemand(
            f"q{n}",
            draw(st.integers(1, 100)),
            draw(some),
            draw(st.none() | some),
            draw(some) if guarantees and draw(st.booleans()) else {},
            groups=draw(st.integers(0, 9)) > 0,
        )
        for n in range(draw(st.integers(1, 6)))
    ]


def due(shares: Mapping[str, Share], queue: str, resource: str) -> float:
    return shares[queue].deserved.get(resource, 0.0)


@given(some, claimants(guarantees=False))
def test_no_queue_gets_more_than_is_free_requested_or_allowed(
    total: dict[str, int], queues: list[QueueDemand]
) -> None:
    shares = divide(total, queues)
    for resource in RESOURCES:
        assert sum(due(shares, name, resource) for name in shares) <= total.get(resource, 0) + EPSILON
    for queue in queues:
        for resource, amount in shares[queue.name].deserved.items() if queue.groups else ():
            assert amount <= queue.request.get(resource, 0) + EPSILON
            assert amount <= shares[queue.name].ceiling[resource] + EPSILON


@given(some, claimants())
def test_a_guarantee_is_given_whatever_others_want(total: dict[str, int], queues: list[QueueDemand]) -> None:
    shares = divide(total, queues)
    for queue in queues:
        for resource, amount in queue.guarantee.items() if queue.groups else ():
            if resource in shares[queue.name].deserved:
                assert due(shares, queue.name, resource) >= amount


@given(some, claimants(), st.randoms(use_true_random=False))
def test_the_order_of_queues_does_not_matter(
    total: dict[str, int], queues: list[QueueDemand], dice: Any
) -> None:
    shuffled = list(queues)
    dice.shuffle(shuffled)
    straight, mixed = divide(total, queues), divide(total, shuffled)
    assert straight.keys() == mixed.keys()
    for name in straight:
        for resource in straight[name].deserved:
            assert due(straight, name, resource) == pytest.approx(due(mixed, name, resource), abs=EPSILON)


one = st.integers(0, 10_000).map(lambda amount: {"cpu": amount})
rivals = st.lists(st.tuples(st.integers(1, 100), one), min_size=2, max_size=6)


def contest(total: int, rivals: list[tuple[int, dict[str, int]]]) -> dict[str, Share]:
    return divide({"cpu": total}, [QueueDemand(f"q{n}", *rival) for n, rival in enumerate(rivals)])


@given(st.integers(0, 20_000), rivals, st.integers(1, 100))
def test_more_weight_never_gives_less(
    total: int, rivals: list[tuple[int, dict[str, int]]], more: int
) -> None:
    heavier = [(rivals[0][0] + more, rivals[0][1]), *rivals[1:]]
    gained = due(contest(total, heavier), "q0", "cpu") - due(contest(total, rivals), "q0", "cpu")
    assert gained >= -EPSILON


@given(st.integers(0, 20_000), st.integers(0, 20_000), rivals)
def test_a_larger_cluster_gives_no_queue_less(
    total: int, more: int, rivals: list[tuple[int, dict[str, int]]]
) -> None:
    small, large = contest(total, rivals), contest(total + more, rivals)
    assert all(due(large, name, "cpu") >= due(small, name, "cpu") - EPSILON for name in small)


@given(st.integers(0, 20_000), rivals)
def test_no_capacity_stays_idle_while_a_queue_requests_it(
    total: int, rivals: list[tuple[int, dict[str, int]]]
) -> None:
    given_ = sum(each.deserved.get("cpu", 0) for each in contest(total, rivals).values())
    wanted = sum(request["cpu"] for _, request in rivals)
    assert given_ == pytest.approx(min(total, wanted), abs=1.0)


@given(st.integers(1, 20_000), rivals)
def test_a_queue_that_gets_less_than_it_requests_has_no_less_for_its_weight_than_others(
    total: int, rivals: list[tuple[int, dict[str, int]]]
) -> None:
    shares = contest(total, rivals)
    for n, (weight, request) in enumerate(rivals):
        level = due(shares, f"q{n}", "cpu") / weight
        if due(shares, f"q{n}", "cpu") < request["cpu"] - 1:
            others = (due(shares, f"q{m}", "cpu") / rivals[m][0] for m in range(len(rivals)))
            assert all(other <= level + 1.0 for other in others)
