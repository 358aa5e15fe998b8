"""Faults of connections: they are cut, or new ones are refused."""

from collections.abc import Callable
from functools import partial

from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, mark_down
from tests.storm.storm_cluster import StormCluster

A_FEW_EVENTS = 20_000  # bytes


def _cut(wire_of: Callable[[StormCluster], TcpProxy], title: str, context: FaultContext) -> InflictedFault:
    cut = wire_of(context.storm_cluster).cut()
    return InflictedFault(f"{cut} connections of {title} cut")


def _cut_view(context: FaultContext) -> InflictedFault:
    """Cut the scheduler's watch at a random byte of its next events."""
    count = context.rng.randrange(A_FEW_EVENTS)
    cut = context.storm_cluster.leading.scheduler_wire.cut_after(count)
    return InflictedFault(f"{cut} connections of scheduler to the proxy end after {count} more bytes")


def _offline(wire_of: Callable[[StormCluster], TcpProxy], part: str, context: FaultContext) -> InflictedFault:
    """Refuse new connections, while the other end still listens."""
    mark_down(context, part)
    context.storm_cluster.undisturbed_time.begin(part)
    wire = wire_of(context.storm_cluster)
    wire.refuse()
    return InflictedFault(
        f"{part} for {context.lasting:.1f} s", partial(_online, context.storm_cluster, wire, part)
    )


def _online(storm_cluster: StormCluster, wire: TcpProxy, part: str) -> None:
    wire.restore()
    storm_cluster.mark_up([part])


def _scheduler_wire(storm_cluster: StormCluster) -> TcpProxy:
    return storm_cluster.leading.scheduler_wire


FAULTS: dict[str, Inflict] = {
    "cut-muster-watches": partial(
        _cut, lambda storm_cluster: storm_cluster.muster_wire, "Muster to API server"
    ),
    "cut-scheduler-watches": partial(_cut, _scheduler_wire, "scheduler to API server"),
    "cut-view": _cut_view,
    "cut-calls": partial(_cut, lambda storm_cluster: storm_cluster.leading.verbs_wire, "scheduler to Muster"),
    "muster-offline": partial(_offline, lambda storm_cluster: storm_cluster.muster_wire, "muster-offline"),
    "scheduler-offline": partial(_offline, _scheduler_wire, "scheduler-offline"),
}
