"""Journal of actions and observations, in order: a file, which can be searched for one object."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    at: float  # of time.monotonic
    kind: str
    text: str


class Journal:
    """Journal; times in the file are seconds since its creation."""

    def __init__(self, file: Path) -> None:
        self.began = time.monotonic()
        self._lines: list[Line] = []
        self._file = file.open("w", buffering=1)

    def record(self, kind: str, text: str) -> None:
        line = Line(time.monotonic(), kind, text)
        self._lines.append(line)
        self._file.write(self.written(line) + "\n")

    def written(self, line: Line) -> str:
        return f"{line.at - self.began:8.1f} s  {line.kind:24} {line.text}"

    def before(self, at: float, key: str, count: int = 12) -> list[str]:
        """Return the last lines up to a time that name an object, or concern all objects."""
        name = key.rpartition("/")[2]
        lines = [line for line in self._lines if line.at <= at and _is_about(line, name)]
        return [self.written(line) for line in lines[-count:]]

    def close(self) -> None:
        self._file.close()


def _is_about(line: Line, name: str) -> bool:
    mentioned = line.text.replace(",", " ").split()
    return name in mentioned or any(word.startswith(f"{name}-") for word in mentioned) or "kill" in line.kind
