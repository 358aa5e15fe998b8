"""Line of progress: rewritten in place on a terminal, printed every 15 seconds elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import TextIO

EVERY = {True: 0.5, False: 15.0}  # seconds, on a terminal and elsewhere


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
        if now - self._shown < EVERY[self._live]:
            return
        self._shown = now
        passed = now - self._began
        stage = f"{passed:.0f} of {self._seconds:g} s" if passed < self._seconds else "the end is checked"
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        self._stream.write(f"\r\x1b[K{stage}: {listed}" if self._live else f"{stage}: {listed}\n")
        self._stream.flush()

    def close(self) -> None:
        if self._live:
            self._stream.write("\n")
