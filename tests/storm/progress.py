"""Line of progress: rewritten in place on a terminal, printed every 15 seconds elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import TextIO

INTERVALS = {True: 0.5, False: 15.0}  # seconds between two lines: on a terminal, and elsewhere


class Progress:
    """`Progress(600).show({"faults": 3})`."""

    def __init__(self, seconds: float, stream: TextIO = sys.stderr) -> None:
        self._seconds = seconds
        self._stream = stream
        self._live = stream.isatty()
        self._began = time.monotonic()
        self._shown = 0.0

    def show(self, counts: Mapping[str, int]) -> None:
        now = time.monotonic()
        if now - self._shown < INTERVALS[self._live]:
            return
        self._shown = now
        elapsed = now - self._began
        stage = f"{elapsed:.0f} of {self._seconds:g} s" if elapsed < self._seconds else "the end is checked"
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        self._stream.write(f"\r\x1b[K{stage}: {listed}" if self._live else f"{stage}: {listed}\n")
        self._stream.flush()

    def close(self) -> None:
        if self._live:
            self._stream.write("\n")
