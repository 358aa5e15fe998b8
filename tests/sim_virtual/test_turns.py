"""Queues with a backlog get their part of the node time over time, whatever their age."""

import pytest

from tests.bench.cases.turning import WINDOW, Turns, of_backlog


@pytest.mark.parametrize(
    "cluster", [Turns((1,) * 8, 4), Turns((1, 2, 10), 4)], ids=lambda it: str(it.weights)
)
def test_each_gets_its_part_of_half_an_hour(cluster: Turns) -> None:
    measured = of_backlog(cluster, seed=0, seconds=WINDOW)
    assert 0.85 <= float(measured["least"]) <= float(measured["most"]) <= 1.15
