"""Requests of a pod, counted as kube-scheduler counts them."""

from typing import Any

import msgspec
import pytest

from extender.api import keys
from extender.api.objects.pods import PodSpec
from extender.api.units import BadQuantity
from extender.domain.model.resources import is_counted, offered, pod_requests, requested_amounts, show
from tests.rows import each_of


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}, "restartPolicy": restart}


def sidecar(**requests: str) -> dict[str, Any]:
    return container("Always", **requests)


CASES: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("nothing but a place", {"containers": [{}]}, {"pods": 1}),
    ("one container", {"containers": [container(cpu="1", memory="1Ki")]}, {"cpu": 1000, "memory": 1024}),
    ("containers add up", {"containers": [container(cpu="1"), container(cpu="250m")]}, {"cpu": 1250}),
    (
        "init containers run one after the other: the largest counts",
        {
            "containers": [container(cpu="1")],
            "initContainers": [container(cpu="3"), container(cpu="2", memory="5")],
        },
        {"cpu": 3000, "memory": 5},
    ),
    (
        "a small init container costs nothing",
        {"containers": [container(cpu="2")], "initContainers": [container(cpu="1")]},
        {"cpu": 2000},
    ),
    (
        "a sidecar runs next to the containers",
        {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="2")]},
        {"cpu": 3000},
    ),
    (
        "init containers run next to the sidecars that started before them",
        {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="2"), container(cpu="4")]},
        {"cpu": 6000},
    ),
    (
        "but not next to those that start after them",
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="4"), sidecar(cpu="2")]},
        {"cpu": 4000},
    ),
    (
        "overhead comes on top",
        {"containers": [container(cpu="1")], "overhead": {"cpu": "100m", "memory": "1Ki"}},
        {"cpu": 1100, "memory": 1024},
    ),
    (
        "overhead comes on top of the initialisation too",
        {"containers": [{}], "initContainers": [container(cpu="2")], "overhead": {"cpu": "1"}},
        {"cpu": 3000},
    ),
    (
        "pod-level resources replace the sum",
        {"containers": [container(cpu="1", memory="9")], "resources": {"requests": {"cpu": "5"}}},
        {"cpu": 5000, "memory": 9},
    ),
    (
        "overhead comes on top of pod-level resources",
        {
            "containers": [{}],
            "resources": {"requests": {"cpu": "5", "hugepages-2Mi": "2Mi"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": 6000, "hugepages-2Mi": 2**21},
    ),
    (
        "pod-level resources do not speak of devices",
        {"containers": [container(**{"x.io/gpu": "1"})], "resources": {"requests": {"x.io/gpu": "7"}}},
        {"x.io/gpu": 1},
    ),
    (
        "requests round up",
        {"containers": [container(cpu="100u", memory="100m", **{"x.io/gpu": "1500m"})]},
        {"cpu": 1, "memory": 1, "x.io/gpu": 2},
    ),
    ("nothing asked is not kept", {"containers": [container(cpu="0", memory="0")]}, {"pods": 1}),
    (
        "resources that do not count",
        {
            "containers": [
                container(**{"count/pods": "1", "unheard": "1", **dict.fromkeys(keys.MARKERS, "1")})
            ]
        },
        {"pods": 1},
    ),
]


@each_of(*(case[1:] for case in CASES))
def test_pod_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_requests(msgspec.convert(spec, PodSpec)) == {"pods": 1, **expected}


def test_a_quantity_that_does_not_parse_is_refused() -> None:
    with pytest.raises(BadQuantity, match="1 core"):
        pod_requests(msgspec.convert({"containers": [container(cpu="1 core")]}, PodSpec))


@each_of(
    ("cpu", True),
    ("memory", True),
    ("pods", True),
    ("ephemeral-storage", True),
    ("hugepages-1Gi", True),
    ("attachable-volumes-x", True),
    ("nvidia.com/gpu", True),
    ("count/jobs.batch", False),
    ("storage", False),
    ("requests.cpu", False),
    (keys.PLACE_MARK, False),
    (keys.BIND_MARK, False),
)
def test_which_resources_count(name: str, counted: bool) -> None:
    assert is_counted(name) is counted


def test_capacities_are_rounded_down_and_keep_zeros() -> None:
    assert offered({"cpu": "1.0009", "memory": "0", "x.io/gpu": "1.9"}) == {
        "cpu": 1000,
        "memory": 0,
        "x.io/gpu": 1,
    }
    assert requested_amounts(None) == {}


@each_of(
    ("cpu", 1500, "1.5"),
    ("memory", 512, "512"),
    ("memory", 3 * 2**29, "1.5Gi"),
    ("memory", 3 * 2**40, "3Ti"),
    ("x.io/gpu", 8, "8"),
    ("pods", 110, "110"),
)
def test_amounts_in_words(name: str, amount: int, text: str) -> None:
    assert show(name, amount) == text
