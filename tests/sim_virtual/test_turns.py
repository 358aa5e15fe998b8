"""Queues with a backlog get their part of the node time over time, whatever their age."""

import random

import pytest

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueSpec
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import Row, from_rows
from extender.sim.virtual.workload import VirtualWorkload
from tests.bench.cases.turning import WINDOW, NodeTime, WeightedCluster, backlog_row


@pytest.mark.parametrize(
    "cluster",
    [WeightedCluster((1,) * 4, 2), WeightedCluster((1, 2, 10), 4)],
    ids=lambda cluster: str(cluster.weights),
)
def test_each_gets_its_part_of_half_an_hour(cluster: WeightedCluster) -> None:
    measured = backlog_row(cluster, seed=0, seconds=WINDOW)
    assert 0.85 <= float(measured["least"]) <= float(measured["most"]) <= 1.15


class Evictions(NodeTime):
    evicted = 0

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        self.pod_ended(pod, now)
        self.evicted += 1


def test_a_gang_larger_than_its_share_starts_next_to_a_backlog_and_is_left_alone() -> None:
    """It asks for 5 of 8 cpus, and its queue deserves 4. Then the other queue has its turn."""
    rng, queues = random.Random(0), tuple(Queue(Meta(name, uid=name), QueueSpec()) for name in "ab")
    rows = [Row(0.0, f"s{n}", 1, 1, rng.uniform(40, 80), {"cpu": "1"}, "b") for n in range(100)]
    rows += [Row(300.0 + n, f"gang{n}", 5, 5, 300.0, {"cpu": "1"}, "a") for n in range(2)]
    given = make_nodes(1, "8", "64Gi") + VirtualWorkload(queues=queues) + from_rows(rows, queues, {})
    measured = Evictions({GroupKey(f"default/{row.group}"): row.queue for row in rows})
    Simulation(given, Limits(), frozenset({"muster"}), measured).run()
    assert min(measured.waits["a"]) < 120.0
    assert max(measured.waits["a"]) < 900.0
    assert not measured.evicted
