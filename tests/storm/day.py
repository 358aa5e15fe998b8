"""Hours of virtual time: gangs of storms in a tree of queues, with faults of nodes and queues.

There is no API server and no scheduler: planned pods start at once. After every step no node is above its
capacity, no gang is partial, and no group was started above a ceiling.
"""

from collections import Counter
from functools import partial
from itertools import count
from random import Random

import msgspec
from msgspec.structs import replace

from extender.api.objects.cluster import Node, Taint
from extender.api.objects.queues import Queue
from extender.domain.model.records import PodRecord
from extender.domain.model.resources import CPU, offered
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import Row, from_rows
from extender.sim.virtual.workload import VirtualWorkload
from tests.e2e.harness import objects
from tests.sim_virtual.bench import CheckingObserver
from tests.storm.gang_specs import TREE, draw
from tests.storm.recovery import Times
from tests.storm.verdict import Json

NODES, GANGS, FAULTS = 24, 150.0, 120.0  # nodes, and mean seconds between gangs and between faults
RUNTIME_FACTOR = 60  # factor on the run times of a storm's gangs
REPAIR_SECONDS = (60.0, 1800.0)  # seconds until a fault is repaired
CAPPED_CPUS = "20"
PRIORITIES = {"storm-low": 10, "storm-high": 1000, "": 0}


class Inspector(CheckingObserver):
    """Observer that also checks the capability of a queue and its ancestors when a pod starts."""

    def __init__(self, workload: VirtualWorkload) -> None:
        super().__init__(workload)
        self.queues = {queue.metadata.name: queue for queue in workload.queues}
        self.counts: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._new_groups: set[str] = set()
        self._queue_of = {group.key: group.group.spec.queue for group in workload.groups}

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        super().pod_bound(pod, now)
        self.counts["bound"] += 1
        for name in self._queue_path(pod):
            self._held[name] += pod.shape.requests.get(CPU, 0)
            self._new_groups.add(name)

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        super().pod_ended(pod, now)
        self.counts["finished"] += 1
        self._release(pod)

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        super().pod_reclaimed(pod, now)
        self.counts["evicted"] += 1
        self._release(pod)

    def decided(self, decisions: Decisions, now: float) -> None:
        """Check the ceilings, now that victims are known: starts are reported before them."""
        super().decided(decisions, now)
        self.counts["instants"] += 1
        for name in self._new_groups:
            held, maximum = self._held[name], offered(self.queues[name].spec.capability or {}).get(CPU)
            assert maximum is None or held <= maximum, f"queue {name} has {held} of {maximum} cpu at {now}"
        self._new_groups.clear()

    def _release(self, pod: PodRecord) -> None:
        for name in self._queue_path(pod):
            self._held[name] -= pod.shape.requests.get(CPU, 0)

    def _queue_path(self, pod: PodRecord) -> list[str]:
        path = [self._queue_of[pod.group]]
        while parent := self.queues[path[-1]].spec.parent:
            path.append(parent)
        return path


class Day:
    """Storm in virtual time; `run` returns a record as other storms write it."""

    def __init__(self, seed: int, seconds: float) -> None:
        self._seed, self._seconds, self._rng = seed, seconds, Random(f"{seed} day")
        self._queues = {name: self._queue(name) for name in TREE}
        cluster, rows = make_nodes(NODES, "6", "64Gi"), self._rows()
        queues = tuple(self._queues.values())
        workload = cluster + replace(from_rows(rows, queues, {}), queues=queues)
        self._inspector = Inspector(workload)
        self._simulation = Simulation(workload, Limits(), frozenset({"muster"}), self._inspector)
        self._inspector.cluster = self._simulation
        self._nodes = workload.nodes
        self.faults: Counter[str] = Counter()
        self._plan_faults()

    def run(self) -> Json:
        violations = list[str]()
        try:
            self._simulation.run()
        except AssertionError as violation:
            violations.append(str(violation))
        return {
            "faults": self.faults,
            "missed": {},
            "counts": self._inspector.counts,
            "evictions": {},
            "recoveries": Times(),
            "violations": violations,
            "judges_agree": True,
            "calm": self._seconds,
        }

    def _queue(self, name: str) -> Queue:
        return msgspec.convert(objects.queue(name, **TREE[name]), Queue)

    def _rows(self) -> list[Row]:
        rows, at = list[Row](), 0.0
        for number in count():
            at += self._rng.expovariate(1 / GANGS)
            if at > self._seconds:
                return rows
            gang_spec = draw(self._rng, number, TREE)
            rows.append(
                Row(
                    at,
                    gang_spec.name,
                    gang_spec.size,
                    gang_spec.min_member,
                    gang_spec.runtime * RUNTIME_FACTOR,
                    {CPU: gang_spec.cpu},
                    queue=gang_spec.queue,
                    priority=PRIORITIES[gang_spec.priority],
                )
            )
        raise AssertionError

    # ---- faults of nodes and queues

    def _plan_faults(self) -> None:
        begin = self._rng.expovariate(1 / FAULTS)
        while begin < self._seconds:
            kind = self._rng.choice(
                ("cordon-node", "taint-node", "cap-queue", "close-queue", "reweigh-queue")
            )
            end = begin + self._rng.uniform(*REPAIR_SECONDS)
            if kind.endswith("node"):
                self._strike_node(kind, begin, end, self._rng.choice(self._nodes))
            else:
                self._strike_queue(
                    kind, begin, end, self._rng.choice([name for name in TREE if name != "default"])
                )
            self.faults[kind] += 1
            begin += self._rng.expovariate(1 / FAULTS)

    def _strike_node(self, kind: str, begin: float, end: float, node: Node) -> None:
        """Break a node for some time. The end of a fault repairs the node from all its faults."""
        taint = [Taint("storm", "yes", "NoSchedule")]
        spec = (
            replace(node.spec, unschedulable=True)
            if kind == "cordon-node"
            else replace(node.spec, taints=taint)
        )
        set_node = self._simulation.ledger.intake.set_node
        self._simulation.plan(begin, partial(set_node, replace(node, spec=spec)))
        self._simulation.plan(end, partial(set_node, node))

    def _strike_queue(self, kind: str, begin: float, end: float, name: str) -> None:
        changes: dict[str, Json] = {
            "cap-queue": {"capability": {"cpu": CAPPED_CPUS}},
            "close-queue": {"state": "Closed"},
            "reweigh-queue": {"weight": 9},
        }
        queue = self._queues[name]
        changed = replace(queue, spec=replace(queue.spec, **changes[kind]))
        self._simulation.plan(begin, partial(self._set_queue, changed))
        self._simulation.plan(end, partial(self._set_queue, queue))

    def _set_queue(self, queue: Queue) -> None:
        self._inspector.queues[queue.metadata.name] = queue
        self._simulation.ledger.intake.set_queue(queue)
