"""Who reads pods through the view, for the health port and for metrics."""

from collections.abc import Sequence
from typing import NamedTuple

from extender.api.durations import rounded
from extender.domain.cache.detours import Detours


class PodReader(NamedTuple):
    """One watch of pods that is open."""

    name: str  # of the program, as it names itself: kube-scheduler/v1.36.3 (linux/amd64) ...
    seconds: float  # since it was opened
    silent: float  # seconds since the last event came from the API server; bookmarks come each minute


def readers_text(readers: Sequence[PodReader], detours: Detours) -> str:
    """One line: who reads, since when, and how old that is; and whether a scheduler reads its pods
    elsewhere."""
    reading = "; ".join(map(_reading, readers)) or "nobody reads pods here"
    if detours.age is None:
        return reading
    calls = f"{detours.calls} call{'s' if detours.calls > 1 else ''}"
    last = f"the last {rounded(int(detours.age))} ago"
    return f"{reading}; a scheduler reads pods elsewhere: {calls} about pods not shown here, {last}"


def _reading(reader: PodReader) -> str:
    program = reader.name.partition(" ")[0] or "somebody"
    opened, silent = rounded(int(reader.seconds)), rounded(int(reader.silent))
    return f"{program} reads pods here for {opened}, and got the last event {silent} ago"
