"""Faults of Muster's watches: they end too early, or repeat earlier events."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from random import Random

from extender.api.protobuf import Frames
from tests.e2e.harness.faults import ALL_REQUESTS, Fault, Pieces
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, mark_down
from tests.storm.storm_cluster import StormCluster

KINDS = ("nodes", "podgroups", "pods", "queues")
MAX_REMEMBERED = 20  # events of each kind
MAX_EXPIRED = 24
_PREFIX_BYTES = 20  # bytes of an event, with its type
AGENT = "kube-muster/"  # other clients of the proxy may watch in other formats


class LineSplitter:
    """Splitter of a JSON watch into events."""

    def __init__(self) -> None:
        self._partial_line = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        return [line + b"\n" for line in lines]


class Echo:
    """Filter that repeats events in the watches of one kind.

    `doubles`: random events are sent twice. `repeats_last`: each watch begins with the last events of the
    earlier watches.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._reported = deque[bytes](maxlen=MAX_REMEMBERED)
        self.doubles = self.repeats_last = False

    def __call__(self, pieces: Pieces) -> Iterator[bytes]:
        if self.repeats_last and self._reported:
            yield b"".join(self._reported)
        splitter: LineSplitter | Frames | None = None
        for piece in pieces:
            splitter = splitter or (LineSplitter() if piece.startswith(b"{") else Frames())
            if reported := b"".join(map(self._repeated, splitter.feed(piece))):
                yield reported

    def _repeated(self, event: bytes) -> bytes:
        if b"ERROR" not in event[:_PREFIX_BYTES]:
            self._reported.append(event)
        return event * 2 if self.doubles and self._rng.random() < 0.5 else event


def _events_doubled(context: FaultContext) -> InflictedFault:
    echoes, faults = _inject_echoes(context)
    for echo in echoes:
        echo.doubles = True
    context.storm_cluster.muster_wire.cut()
    title = f"events of Muster's watches come twice for {context.lasting:.1f} s"
    return InflictedFault(title, partial(_stop_echoes, context.storm_cluster, echoes, faults))


def _events_repeated(context: FaultContext) -> InflictedFault:
    """Repeat events as an API server with an old cache does.

    The watches are cut twice. After the second cut they repeat the events between both.
    """
    echoes, faults = _inject_echoes(context)
    context.storm_cluster.muster_wire.cut()
    title = f"Muster's watches are cut, and repeat the events of {context.lasting:.1f} s"
    return InflictedFault(title, partial(_repeat_last_events, context.storm_cluster, echoes, faults))


def _inject_echoes(context: FaultContext) -> tuple[list[Echo], list[Fault]]:
    mark_down(context, "echo")
    echoes = [Echo(Random(context.rng.random())) for _ in KINDS]
    faults = [
        Fault("GET", rf"/{kind}$", query="watch=", agent=AGENT, pieces=echo, times=ALL_REQUESTS)
        for kind, echo in zip(KINDS, echoes, strict=True)
    ]
    context.storm_cluster.proxy.inject(*faults)
    return echoes, faults


def _repeat_last_events(storm_cluster: StormCluster, echoes: list[Echo], faults: list[Fault]) -> bool:
    """Repeat the last events of all kinds; return whether the watch of pods has restarted."""
    restarted = faults[KINDS.index("pods")].hit
    if not echoes[0].repeats_last:
        restarted.clear()
        for echo in echoes:
            echo.repeats_last = True
        storm_cluster.muster_wire.cut()
    if not restarted.is_set():
        return False
    _stop_echoes(storm_cluster, echoes, faults)
    return True


def _stop_echoes(storm_cluster: StormCluster, echoes: list[Echo], faults: list[Fault]) -> None:
    for fault in faults:
        fault.times = 0
    for echo in echoes:
        echo.doubles = echo.repeats_last = False
    storm_cluster.mark_up(["echo"])


def _watches_expired(context: FaultContext) -> InflictedFault:
    """Expire the versions from which watches continue: all objects are listed again."""
    times = context.rng.randint(1, MAX_EXPIRED)
    expired = Fault("GET", r"", query="watch=", status=410, times=times)
    context.storm_cluster.proxy.inject(expired)
    context.storm_cluster.muster_wire.cut()
    return InflictedFault(f"{times} watches of Muster meet 410", partial(setattr, expired, "times", 0))


FAULTS: dict[str, Inflict] = {
    "events-doubled": _events_doubled,
    "events-retold": _events_repeated,
    "watches-expired": _watches_expired,
}
