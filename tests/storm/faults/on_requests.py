"""Requests of Muster's are refused, delayed, lost, doubled or left hanging."""

import threading
import time
from functools import partial

from tests.e2e.harness.faults import BINDING, Fault
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

EVICTION = r"/eviction$"
STATUSES = (409, 429, 500, 503)
WRITES = ("POST", "PATCH", "PUT", "DELETE")
FEW, MANY = 6, 10**6
SLOW = 1.5  # seconds


class Standstill:
    """Fault that hangs the request for the gate or the binding of a gang's first pod for a while.

    With `at` "half" it is the bindings of every second pod. The gang stays at the barrier, or incomplete,
    until then. `fault.hit` is set when that begins.
    """

    def __init__(self, gang: str, at: str, lasting: float) -> None:
        self._lasting = lasting
        self._until: float | None = None
        method, path = {
            "gate": ("PATCH", rf"/pods/{gang}-0$"),
            "binding": ("POST", rf"/pods/{gang}-0/binding$"),
            "half": ("POST", rf"/pods/{gang}-\d*[02468]/binding$"),
        }[at]
        self.fault = Fault(method, path, before=self._wait, times=MANY, while_awaited=True)

    def _wait(self) -> None:
        """Wait for the rest of the fault: requests that come again wait for it, too."""
        now = time.monotonic()
        self._until = self._until or now + self._lasting
        time.sleep(max(self._until - now, 0))
        self.fault.times = 0


def _meet(field: Field, title: str, *faults: Fault) -> Broken:
    """Let requests meet these faults until they are used up, or time is over."""
    field.arena.proxy.inject(*faults)
    return Broken(title, partial(_over, faults))


def _over(faults: tuple[Fault, ...]) -> None:
    for fault in faults:
        fault.times = 0


def _bindings_refused(field: Field) -> Broken:
    status, times = field.rng.choice(STATUSES), field.rng.randint(1, FEW)
    return _meet(field, f"{times} bindings meet {status}", Fault("POST", BINDING, status=status, times=times))


def _bindings_slow(field: Field) -> Broken:
    slow = Fault("POST", BINDING, before=partial(time.sleep, SLOW), times=MANY, while_awaited=True)
    return _meet(field, f"bindings take {SLOW} s longer for {field.lasting:.1f} s", slow)


def _bindings_lost(field: Field) -> Broken:
    times = field.rng.randint(1, FEW)
    fault = Fault("POST", BINDING, answered=False, times=times)
    return _meet(field, f"{times} answers to bindings are lost", fault)


def _bindings_hang(field: Field) -> Broken:
    """Hang bindings before or after they took effect: the caller cannot know."""
    released, times = threading.Event(), field.rng.randint(1, FEW)
    wait = partial(released.wait, 60)
    fault = Fault("POST", BINDING, times=times, while_awaited=True)
    phase = field.rng.choice(("before", "after"))
    setattr(fault, phase, wait)
    field.arena.proxy.inject(fault)
    title = f"{times} bindings hang, {phase} they take effect"
    return Broken(title, partial(_release, released, fault))


def _release(released: threading.Event, fault: Fault) -> None:
    fault.times = 0
    released.set()


def _writes_refused(field: Field) -> Broken:
    """Refuse a few writes of each method, for any object."""
    status, times = field.rng.choice(STATUSES), field.rng.randint(1, FEW)
    faults = [Fault(method, r"", status=status, times=times) for method in WRITES]
    return _meet(field, f"{times} writes of each method meet {status}", *faults)


def _writes_slow(field: Field) -> Broken:
    faults = [
        Fault(method, r"", before=partial(time.sleep, SLOW), times=4 * FEW, while_awaited=True)
        for method in WRITES
    ]
    return _meet(field, f"{4 * FEW} writes of each method take {SLOW} s longer", *faults)


def _evictions_refused(field: Field) -> Broken:
    times = field.rng.randint(1, FEW)
    return _meet(field, f"{times} evictions meet 429", Fault("POST", EVICTION, status=429, times=times))


def _writes_lost(field: Field) -> Broken:
    times = field.rng.randint(1, FEW)
    faults = [Fault(method, r"", answered=False, times=times) for method in WRITES]
    return _meet(field, f"{times} answers to writes of each method are lost", *faults)


def _writes_doubled(field: Field) -> Broken:
    """Send a few writes twice, as a client or a proxy does after a broken connection."""
    times = field.rng.randint(1, FEW)
    faults = [Fault(method, r"", twice=True, times=times) for method in WRITES]
    return _meet(field, f"{times} writes of each method come twice", *faults)


def _reads_refused(field: Field) -> Broken:
    status, times = field.rng.choice(STATUSES), field.rng.randint(1, FEW)
    refused = Fault("GET", r"", status=status, times=times)
    field.arena.muster_wire.cut()  # so that something is read
    return _meet(field, f"{times} reads meet {status}", refused)


def _reads_slow(field: Field) -> Broken:
    slow = Fault("GET", r"", before=partial(time.sleep, SLOW), times=MANY, while_awaited=True)
    field.arena.muster_wire.cut()
    return _meet(field, f"reads take {SLOW} s longer for {field.lasting:.1f} s", slow)


def _everything_meets(status: int | None, field: Field) -> Broken:
    """Let every request of Muster's meet a status, but its watches; without a status it hangs."""
    takes_down(field, "api-down-for-muster")
    field.arena.calm.begin("api-down-for-muster")
    released = threading.Event()
    wait = partial(released.wait, 60) if status is None else bool
    faults = [
        Fault(method, r"", status=status, before=wait, times=MANY, while_awaited=True)
        for method in (*WRITES, "GET")
    ]
    field.arena.proxy.inject(*faults)
    field.arena.muster_wire.cut()  # so that lists and watches are requested again, and refused
    title = f"everything {f'meets {status}' if status else 'hangs'} for {field.lasting:.1f} s"
    return Broken(title, partial(_api_back, field.arena, faults, released))


def _api_down(field: Field) -> Broken:
    """Refuse all requests, as an overloaded API server does."""
    return _everything_meets(field.rng.choice((429, 500)), field)


def _api_back(arena: Arena, faults: list[Fault], released: threading.Event) -> None:
    _over(tuple(faults))
    released.set()
    arena.give_back(["api-down-for-muster"])


FAULTS: dict[str, Inflict] = {
    "api-down-for-muster": _api_down,
    "api-hangs-for-muster": partial(_everything_meets, None),
    "token-expired": partial(_everything_meets, 401),
    "bindings-refused": _bindings_refused,
    "bindings-slow": _bindings_slow,
    "bindings-lost": _bindings_lost,
    "bindings-hang": _bindings_hang,
    "writes-refused": _writes_refused,
    "writes-slow": _writes_slow,
    "writes-lost": _writes_lost,
    "writes-doubled": _writes_doubled,
    "reads-refused": _reads_refused,
    "reads-slow": _reads_slow,
    "evictions-refused": _evictions_refused,
}
