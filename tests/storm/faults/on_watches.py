"""Muster's watches end too early, or repeat earlier events."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from random import Random

from extender.api.protobuf import Frames
from tests.e2e.harness.faults import OFTEN, Fault, Pieces
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

KINDS = ("nodes", "podgroups", "pods", "queues")
REMEMBERED = 20  # events of each kind
MOST_EXPIRED = 24
_BEGINNING = 20  # bytes of an event, with its type
AGENT = "kube-muster/"  # watches of others through the proxy have other formats


class Lines:
    """Cuts a watch in JSON into its events."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._begun = (self._begun + data).split(b"\n")
        return [line + b"\n" for line in lines]


class Echo:
    """Filter of the watches of one kind.

    On demand it repeats events at once, at random; or begins each watch with the last events of earlier
    ones, in their order.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._reported = deque[bytes](maxlen=REMEMBERED)
        self.doubles = self.retells = False

    def __call__(self, pieces: Pieces) -> Iterator[bytes]:
        if self.retells and self._reported:
            yield b"".join(self._reported)
        cutter: Lines | Frames | None = None
        for piece in pieces:
            cutter = cutter or (Lines() if piece.startswith(b"{") else Frames())
            if reported := b"".join(map(self._passed_on, cutter.feed(piece))):
                yield reported

    def _passed_on(self, event: bytes) -> bytes:
        if b"ERROR" not in event[:_BEGINNING]:
            self._reported.append(event)
        return event * 2 if self.doubles and self._rng.random() < 0.5 else event


def _events_doubled(field: Field) -> Broken:
    echoes, faults = _listen(field)
    for each in echoes:
        each.doubles = True
    field.arena.muster_wire.cut()
    title = f"events of Muster's watches come twice for {field.lasting:.1f} s"
    return Broken(title, partial(_fall_silent, field.arena, echoes, faults))


def _events_retold(field: Field) -> Broken:
    """Repeat events as a server that is behind does.

    The watches are cut twice, and send the second time the events between the two cuts.
    """
    echoes, faults = _listen(field)
    field.arena.muster_wire.cut()
    title = f"Muster's watches are cut, and repeat {field.lasting:.1f} s"
    return Broken(title, partial(_retell, field.arena, echoes, faults))


def _listen(field: Field) -> tuple[list[Echo], list[Fault]]:
    takes_down(field, "echo")
    echoes = [Echo(Random(field.rng.random())) for _ in KINDS]
    faults = [
        Fault("GET", rf"/{kind}$", asked="watch=", agent=AGENT, pieces=echo, times=OFTEN)
        for kind, echo in zip(KINDS, echoes, strict=True)
    ]
    field.arena.proxy.inject(*faults)
    return echoes, faults


def _retell(arena: Arena, echoes: list[Echo], faults: list[Fault]) -> bool:
    """Repeat the events of all kinds; return whether those of pods have been repeated."""
    restarted = faults[KINDS.index("pods")].hit
    if not echoes[0].retells:
        restarted.clear()
        for echo in echoes:
            echo.retells = True
        arena.muster_wire.cut()
    if not restarted.is_set():
        return False
    _fall_silent(arena, echoes, faults)
    return True


def _fall_silent(arena: Arena, echoes: list[Echo], faults: list[Fault]) -> None:
    for fault in faults:
        fault.times = 0
    for echo in echoes:
        echo.doubles = echo.retells = False
    arena.give_back(["echo"])


def _watches_expired(field: Field) -> Broken:
    """Expire the versions from which watches continue: all objects are listed again."""
    times = field.rng.randint(1, MOST_EXPIRED)
    field.arena.proxy.inject(expired := Fault("GET", r"", asked="watch=", status=410, times=times))
    field.arena.muster_wire.cut()
    return Broken(f"{times} watches of Muster meet 410", partial(setattr, expired, "times", 0))


FAULTS: dict[str, Inflict] = {
    "events-doubled": _events_doubled,
    "events-retold": _events_retold,
    "watches-expired": _watches_expired,
}
