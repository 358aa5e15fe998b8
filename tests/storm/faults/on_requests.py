"""Faults of Muster's requests: they are refused, delayed, lost, doubled or left hanging."""

import threading
import time
from functools import partial

from tests.e2e.harness.faults import BINDING, Fault
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, mark_down
from tests.storm.storm_cluster import StormCluster

EVICTION = r"/eviction$"
STATUSES = (409, 429, 500, 503)
WRITES = ("POST", "PATCH", "PUT", "DELETE")
FEW, MANY = 6, 10**6  # requests
SLOW = 1.5  # seconds


class Standstill:
    """Fault that hangs the request for the gate or the binding of a gang's first pod for a while.

    With `hangs_at` "half", it hangs the bindings of every second pod. Until the requests continue, the gang
    is at the barrier or incomplete. `fault.hit` is set when the first request hangs.
    """

    def __init__(self, gang: str, hangs_at: str, lasting: float) -> None:
        self._lasting = lasting
        self._until: float | None = None
        method, path = {
            "gate": ("PATCH", rf"/pods/{gang}-0$"),
            "binding": ("POST", rf"/pods/{gang}-0/binding$"),
            "half": ("POST", rf"/pods/{gang}-\d*[02468]/binding$"),
        }[hangs_at]
        self.fault = Fault(method, path, before=self._wait, times=MANY, while_awaited=True)

    def _wait(self) -> None:
        """Wait until the fault ends; repeated requests wait for the same end."""
        now = time.monotonic()
        self._until = self._until or now + self._lasting
        time.sleep(max(self._until - now, 0))
        self.fault.times = 0


def _inject(context: FaultContext, title: str, *faults: Fault) -> InflictedFault:
    """Inject faults until they have met their number of requests, or are repaired."""
    context.storm_cluster.proxy.inject(*faults)
    return InflictedFault(title, partial(_end_faults, faults))


def _end_faults(faults: tuple[Fault, ...]) -> None:
    for fault in faults:
        fault.times = 0


def _bindings_refused(context: FaultContext) -> InflictedFault:
    status, times = context.rng.choice(STATUSES), context.rng.randint(1, FEW)
    return _inject(
        context, f"{times} bindings meet {status}", Fault("POST", BINDING, status=status, times=times)
    )


def _bindings_slow(context: FaultContext) -> InflictedFault:
    slow = Fault("POST", BINDING, before=partial(time.sleep, SLOW), times=MANY, while_awaited=True)
    return _inject(context, f"bindings take {SLOW} s longer for {context.lasting:.1f} s", slow)


def _bindings_lost(context: FaultContext) -> InflictedFault:
    times = context.rng.randint(1, FEW)
    fault = Fault("POST", BINDING, answered=False, times=times)
    return _inject(context, f"{times} answers to bindings are lost", fault)


def _bindings_hang(context: FaultContext) -> InflictedFault:
    """Hang bindings before or after they took effect: the caller cannot know."""
    released, times = threading.Event(), context.rng.randint(1, FEW)
    wait = partial(released.wait, 60)
    fault = Fault("POST", BINDING, times=times, while_awaited=True)
    phase = context.rng.choice(("before", "after"))
    setattr(fault, phase, wait)
    context.storm_cluster.proxy.inject(fault)
    title = f"{times} bindings hang, {phase} they take effect"
    return InflictedFault(title, partial(_release, released, fault))


def _release(released: threading.Event, fault: Fault) -> None:
    fault.times = 0
    released.set()


def _writes_refused(context: FaultContext) -> InflictedFault:
    """Refuse a few writes of each method, for any object."""
    status, times = context.rng.choice(STATUSES), context.rng.randint(1, FEW)
    faults = [Fault(method, r"", status=status, times=times) for method in WRITES]
    return _inject(context, f"{times} writes of each method meet {status}", *faults)


def _writes_slow(context: FaultContext) -> InflictedFault:
    faults = [
        Fault(method, r"", before=partial(time.sleep, SLOW), times=4 * FEW, while_awaited=True)
        for method in WRITES
    ]
    return _inject(context, f"{4 * FEW} writes of each method take {SLOW} s longer", *faults)


def _evictions_refused(context: FaultContext) -> InflictedFault:
    times = context.rng.randint(1, FEW)
    return _inject(context, f"{times} evictions meet 429", Fault("POST", EVICTION, status=429, times=times))


def _writes_lost(context: FaultContext) -> InflictedFault:
    times = context.rng.randint(1, FEW)
    faults = [Fault(method, r"", answered=False, times=times) for method in WRITES]
    return _inject(context, f"{times} answers to writes of each method are lost", *faults)


def _writes_doubled(context: FaultContext) -> InflictedFault:
    """Send a few writes twice, as a client or a proxy does after a broken connection."""
    times = context.rng.randint(1, FEW)
    faults = [Fault(method, r"", twice=True, times=times) for method in WRITES]
    return _inject(context, f"{times} writes of each method come twice", *faults)


def _reads_refused(context: FaultContext) -> InflictedFault:
    status, times = context.rng.choice(STATUSES), context.rng.randint(1, FEW)
    refused = Fault("GET", r"", status=status, times=times)
    context.storm_cluster.muster_wire.cut()  # so that Muster reads again
    return _inject(context, f"{times} reads meet {status}", refused)


def _reads_slow(context: FaultContext) -> InflictedFault:
    slow = Fault("GET", r"", before=partial(time.sleep, SLOW), times=MANY, while_awaited=True)
    context.storm_cluster.muster_wire.cut()
    return _inject(context, f"reads take {SLOW} s longer for {context.lasting:.1f} s", slow)


def _all_requests_fail(status: int | None, context: FaultContext) -> InflictedFault:
    """Answer all requests of Muster except watches with a status; without one, let them hang."""
    mark_down(context, "api-down-for-muster")
    context.storm_cluster.undisturbed_time.begin("api-down-for-muster")
    released = threading.Event()
    wait = partial(released.wait, 60) if status is None else bool
    faults = [
        Fault(method, r"", status=status, before=wait, times=MANY, while_awaited=True)
        for method in (*WRITES, "GET")
    ]
    context.storm_cluster.proxy.inject(*faults)
    context.storm_cluster.muster_wire.cut()  # so that lists and watches are requested again, and refused
    title = f"everything {f'meets {status}' if status else 'hangs'} for {context.lasting:.1f} s"
    return InflictedFault(title, partial(_restore_api, context.storm_cluster, faults, released))


def _api_down(context: FaultContext) -> InflictedFault:
    """Refuse all requests, as an overloaded API server does."""
    return _all_requests_fail(context.rng.choice((429, 500)), context)


def _restore_api(storm_cluster: StormCluster, faults: list[Fault], released: threading.Event) -> None:
    _end_faults(tuple(faults))
    released.set()
    storm_cluster.mark_up(["api-down-for-muster"])


FAULTS: dict[str, Inflict] = {
    "api-down-for-muster": _api_down,
    "api-hangs-for-muster": partial(_all_requests_fail, None),
    "token-expired": partial(_all_requests_fail, 401),
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
