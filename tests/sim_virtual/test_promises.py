"""Promised starts in virtual time: no group starts later than its reported time, whatever comes meanwhile.

This holds while run times are honest.
"""

from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueFlavor, QueueLimits, QueuePreemption, QueueSpec
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import CPU
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row, from_rows
from tests.property_examples import examples

PATIENCE = "20s"
LABELS = {"kind": "a"}
QUEUES = ("p", "q", "r", "s")


class Job(NamedTuple):
    """Gang `after` seconds after the one before, with a declared run time of `stretch` times the real one."""

    after: int
    queue: str
    members: int
    cpus: int
    runs: int
    stretch: float
    priority: int


class Spec(NamedTuple):
    """Settings of a queue.

    `capability` and `pods`: its ceiling; 0: no limit. `flavors`: it may use only the labelled nodes, or
    all by a flavor, of which the capability is then.
    """

    weight: int
    capability: int
    pods: int
    strategy: str
    takes_at_once: bool
    flavors: tuple[QueueFlavor, ...] = ()


class Watch(Observer):
    """Observer with `late`: groups that started later than promised.

    `late` has the earliest promise and the start of each.
    """

    def __init__(self) -> None:
        self.open: dict[GroupKey, float] = {}  # the earliest promise to each group that waits
        self.late: dict[GroupKey, tuple[float, float]] = {}
        self.reserved = 0

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        if (promise := self.open.pop(pod.group, None)) is not None:
            self.reserved += 1
            if now > promise:
                self.late[pod.group] = promise, now

    def decided(self, decisions: Decisions, now: float) -> None:
        for key, decision in decisions.groups.items():
            reservation = decision.reservation
            if reservation is not None and "to start about" in reservation.text:
                assert reservation.starts_at is not None
                self.open[key] = min(reservation.starts_at, self.open.get(key, reservation.starts_at))


JOBS = st.lists(
    st.builds(
        Job,
        st.integers(0, 30),
        st.sampled_from(QUEUES[1:]),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(1, 200),
        st.sampled_from([1.0, 1.5, 3.0]),
        st.sampled_from([0, 0, 0, 5]),
    ),
    min_size=8,
    max_size=40,
)
SPECS = st.builds(
    Spec,
    st.integers(1, 3),
    st.sampled_from([0, 0, 4, 8, 12]),
    st.sampled_from([0, 0, 0, 3, 5]),
    st.sampled_from(["traverse", "traverse", "priority", "fifo", "rotation"]),
    st.booleans(),
    st.sampled_from([(), (), (QueueFlavor("all"),), (QueueFlavor("a", LABELS),)]),
)


def run(jobs: list[Job], specs: dict[str, Spec], nodes: int, share: float) -> Watch:
    at, rows = 0.0, []
    for number, job in enumerate(jobs):
        at += job.after
        gang = Row(at, f"j{number}x", job.members, job.members, float(job.runs), {CPU: str(job.cpus)})
        gang = gang._replace(queue=job.queue, priority=job.priority, declared=job.runs * job.stretch)
        rows.append(gang)
    queues = tuple(Queue(Meta(name), _spec(name, spec)) for name, spec in specs.items())
    watch = Watch()
    cluster = make_nodes(nodes, "4", "16Gi", 0)
    labelled = [replace(node, metadata=replace(node.metadata, labels=LABELS)) for node in cluster.nodes[::2]]
    cluster = replace(cluster, nodes=(*labelled, *cluster.nodes[1::2])) + replace(
        from_rows(rows, queues, {}), queues=queues
    )
    Simulation(cluster, Limits(max_reserved_part=share), frozenset({"muster"}), watch).run()
    return watch


def _spec(name: str, spec: Spec) -> QueueSpec:
    most: dict[str, str | int] | None = {CPU: str(spec.capability)} if spec.capability else None
    return QueueSpec(
        spec.weight,
        capability=None if spec.flavors else most,
        flavors=[replace(flavor, capability=most) for flavor in spec.flavors] or None,
        parent="p" if name in ("q", "r") else "",
        limits=QueueLimits(pods=spec.pods) if spec.pods else None,
        dequeue_strategy=spec.strategy,
        reserve_after=PATIENCE,
        preemption=QueuePreemption("LowerPriority", after="0s") if spec.takes_at_once else None,
    )


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    jobs=JOBS,
    specs=st.fixed_dictionaries(dict.fromkeys(QUEUES, SPECS)),
    nodes=st.integers(2, 5),
    share=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_with_honest_run_times_no_start_is_later_than_promised(
    jobs: list[Job], specs: dict[str, Spec], nodes: int, share: float
) -> None:
    watch = run(jobs, specs, nodes, share)
    assert not watch.late
    assert not watch.open
