"""Connections break, or nothing gets through them."""

from collections.abc import Callable
from functools import partial

from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

A_FEW_EVENTS = 20_000  # bytes


def _cut(which: Callable[[Arena], TcpProxy], title: str, field: Field) -> Broken:
    cut = which(field.arena).cut()
    return Broken(f"{cut} connections of {title} cut")


def _cut_view(field: Field) -> Broken:
    """Cut the proxy at a random byte of its next events."""
    count = field.rng.randrange(A_FEW_EVENTS)
    cut = field.arena.leading.scheduler_wire.cut_after(count)
    return Broken(f"{cut} connections of scheduler to the proxy end after {count} more bytes")


def _offline(which: Callable[[Arena], TcpProxy], part: str, field: Field) -> Broken:
    """Refuse all connections: the other end does not look dead."""
    takes_down(field, part)
    field.arena.calm.begin(part)
    wire = which(field.arena)
    wire.refuse()
    return Broken(f"{part} for {field.lasting:.1f} s", partial(_online, field.arena, wire, part))


def _online(arena: Arena, wire: TcpProxy, part: str) -> None:
    wire.restore()
    arena.give_back([part])


def _scheduler_wire(arena: Arena) -> TcpProxy:
    return arena.leading.scheduler_wire


FAULTS: dict[str, Inflict] = {
    "cut-muster-watches": partial(_cut, lambda arena: arena.muster_wire, "Muster to API server"),
    "cut-scheduler-watches": partial(_cut, _scheduler_wire, "scheduler to API server"),
    "cut-view": _cut_view,
    "cut-calls": partial(_cut, lambda arena: arena.leading.verbs_wire, "scheduler to Muster"),
    "muster-offline": partial(_offline, lambda arena: arena.muster_wire, "muster-offline"),
    "scheduler-offline": partial(_offline, _scheduler_wire, "scheduler-offline"),
}
