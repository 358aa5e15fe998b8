"""Connections break, and requests of Muster's are refused, delayed, lost or left hanging."""

import threading
import time
from collections.abc import Callable
from functools import partial

from tests.e2e.harness.faults import BINDING, Fault
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

EVICTION = r"/eviction$"
STATUSES = (409, 429, 500, 503)
WRITES = ("POST", "PATCH", "PUT", "DELETE")
FEW, MANY = 6, 10**6
SLOW = 1.5  # seconds
A_FEW_EVENTS = 20_000  # bytes


class Standstill:
    """The request that opens a pod's gate, or binds it, hangs for a while: its gang stands at the barrier, or
    in pieces, until then. `fault.hit` tells when that begins."""

    def __init__(self, pod: str, at: str, lasting: float) -> None:
        self._lasting = lasting
        self._until: float | None = None
        method, path = ("PATCH", rf"/pods/{pod}$") if at == "gate" else ("POST", rf"/pods/{pod}/binding$")
        self.fault = Fault(method, path, before=self._wait, times=MANY, while_awaited=True)

    def _wait(self) -> None:
        """Requests that come again wait for the rest of it."""
        now = time.monotonic()
        self._until = self._until or now + self._lasting
        time.sleep(max(self._until - now, 0))
        self.fault.times = 0


def _cut(which: Callable[[Arena], TcpProxy], what: str, field: Field) -> Broken:
    cut = which(field.arena).cut()
    return Broken(f"{cut} connections of {what} cut")


def _cut_view(field: Field) -> Broken:
    """At any byte of what comes next."""
    count = field.luck.randrange(A_FEW_EVENTS)
    cut = field.arena.scheduler_wire.cut_after(count)
    return Broken(f"{cut} connections of scheduler to Muster's view end after {count} more bytes")


def _offline(which: Callable[[Arena], TcpProxy], part: str, field: Field) -> Broken:
    """Nothing gets through; the other end does not look dead, it refuses."""
    takes_down(field, part)
    field.arena.calm.begin(part)
    wire = which(field.arena)
    wire.refuse()
    return Broken(f"{part} for {field.lasting:.1f} s", partial(_online, field.arena, wire, part))


def _online(arena: Arena, wire: TcpProxy, part: str) -> None:
    wire.restore()
    arena.give_back([part])


def _meet(field: Field, what: str, *faults: Fault) -> Broken:
    """Requests meet these until they are used up, or time is."""
    field.arena.proxy.inject(*faults)
    return Broken(what, partial(_over, faults))


def _over(faults: tuple[Fault, ...]) -> None:
    for fault in faults:
        fault.times = 0


def _bindings_refused(field: Field) -> Broken:
    status, times = field.luck.choice(STATUSES), field.luck.randint(1, FEW)
    return _meet(field, f"{times} bindings meet {status}", Fault("POST", BINDING, status=status, times=times))


def _bindings_slow(field: Field) -> Broken:
    slow = Fault("POST", BINDING, before=partial(time.sleep, SLOW), times=MANY, while_awaited=True)
    return _meet(field, f"bindings take {SLOW} s longer for {field.lasting:.1f} s", slow)


def _bindings_lost(field: Field) -> Broken:
    times = field.luck.randint(1, FEW)
    lost = Fault("POST", BINDING, answered=False, times=times)
    return _meet(field, f"{times} answers to bindings are lost", lost)


def _bindings_hang(field: Field) -> Broken:
    """Before or after they took effect: the caller cannot know."""
    released, times = threading.Event(), field.luck.randint(1, FEW)
    wait = partial(released.wait, 60)
    fault = Fault("POST", BINDING, times=times, while_awaited=True)
    when = field.luck.choice(("before", "after"))
    setattr(fault, when, wait)
    field.arena.proxy.inject(fault)
    what = f"{times} bindings hang, {when} they take effect"
    return Broken(what, partial(_let_go, released, fault))


def _let_go(released: threading.Event, fault: Fault) -> None:
    fault.times = 0
    released.set()


def _writes_refused(field: Field) -> Broken:
    """A few of each method, whatever they are about."""
    status, times = field.luck.choice(STATUSES), field.luck.randint(1, FEW)
    faults = [Fault(method, r"", status=status, times=times) for method in WRITES]
    return _meet(field, f"{times} writes of each method meet {status}", *faults)


def _writes_slow(field: Field) -> Broken:
    faults = [
        Fault(method, r"", before=partial(time.sleep, SLOW), times=4 * FEW, while_awaited=True)
        for method in WRITES
    ]
    return _meet(field, f"{4 * FEW} writes of each method take {SLOW} s longer", *faults)


def _evictions_refused(field: Field) -> Broken:
    times = field.luck.randint(1, FEW)
    return _meet(field, f"{times} evictions meet 429", Fault("POST", EVICTION, status=429, times=times))


def _api_down(field: Field) -> Broken:
    """Every request of Muster's but its watches meets 500 or 429, as with an overloaded API server."""
    takes_down(field, "api-down-for-muster")
    field.arena.calm.begin("api-down-for-muster")
    status = field.luck.choice((429, 500))
    faults = [Fault(method, r"", status=status, times=MANY) for method in (*WRITES, "GET")]
    field.arena.proxy.inject(*faults)
    field.arena.muster_wire.cut()  # so that lists and watches are asked for anew, and refused
    what = f"everything meets {status} for {field.lasting:.1f} s"
    return Broken(what, partial(_api_back, field.arena, faults))


def _api_back(arena: Arena, faults: list[Fault]) -> None:
    _over(tuple(faults))
    arena.give_back(["api-down-for-muster"])


FAULTS: dict[str, Inflict] = {
    "cut-muster-watches": partial(_cut, lambda arena: arena.muster_wire, "Muster to API server"),
    "cut-scheduler-watches": partial(_cut, lambda arena: arena.scheduler_wire, "scheduler to API server"),
    "cut-view": _cut_view,
    "cut-calls": partial(_cut, lambda arena: arena.verbs_wire, "scheduler to Muster"),
    "muster-offline": partial(_offline, lambda arena: arena.muster_wire, "muster-offline"),
    "scheduler-offline": partial(_offline, lambda arena: arena.scheduler_wire, "scheduler-offline"),
    "api-down-for-muster": _api_down,
    "bindings-refused": _bindings_refused,
    "bindings-slow": _bindings_slow,
    "bindings-lost": _bindings_lost,
    "bindings-hang": _bindings_hang,
    "writes-refused": _writes_refused,
    "writes-slow": _writes_slow,
    "evictions-refused": _evictions_refused,
}
