"""Wall clock of Muster that a test can change, by a small library in LD_PRELOAD.

The library needs a C compiler. Without one, the clock stays that of the machine.
"""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
NANO = 10**9


class Clock:
    """Changeable clock; `wrapped(["muster"])` is the command of a program that uses it."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "clock.so"
        self.step(0)
        compiler = shutil.which("cc")
        if compiler is not None:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True)
        self.can_step = compiler is not None

    def step(self, seconds: float) -> None:
        """Set the difference to the machine's clock."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", int(seconds * NANO)))

    def wrapped(self, command: Sequence[str]) -> list[str]:
        loaded = ["env", f"LD_PRELOAD={self._library}", f"STORM_CLOCK={self._file}"]
        return [*(loaded if self.can_step else []), *command]
