"""A wall clock of Muster's own, that can step: a small library that is loaded before all others.

It needs a C compiler; where there is none, `wrapped` changes nothing, and the clock cannot step.
"""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
NANO = 10**9


class Clock:
    """`Clock(folder).wrapped(["muster"])` is the command that goes by it."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "clock.so"
        self.step(0)
        compiler = shutil.which("cc")
        if compiler is not None:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True)
        self.can_step = compiler is not None

    def step(self, seconds: float) -> None:
        """Set the clock so far ahead of the machine's; behind it if negative."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", int(seconds * NANO)))

    def wrapped(self, command: Sequence[str]) -> list[str]:
        loaded = ["env", f"LD_PRELOAD={self._library}", f"STORM_CLOCK={self._file}"]
        return [*(loaded if self.can_step else []), *command]
