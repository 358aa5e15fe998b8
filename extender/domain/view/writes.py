"""What a stream of pods says, before a codec makes bytes of it."""

from typing import NamedTuple

from extender.domain.view.appearance import Appearance, PodFacts


class PassOn(NamedTuple):
    """An event as it came."""

    frame: bytes


class Show(NamedTuple):
    """The arguments of PodWriter.write."""

    type: str  # ADDED or MODIFIED
    pod: bytes
    version: int
    appearance: Appearance


class TakeAway(NamedTuple):
    """The arguments of PodWriter.deleted."""

    facts: PodFacts
    version: int


Writes = list[PassOn | Show | TakeAway]  # all in one write
