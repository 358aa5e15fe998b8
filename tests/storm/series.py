"""Series of storms from a file: each runs in its own process, and none is run twice."""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.storm.day import Day
from tests.storm.faults import FAULTS
from tests.storm.plan import Mix

Json = dict[str, Any]
VIRTUAL_MIX = "virtual"  # the mix of storms that need no API server
LONGEST_END = 900.0  # seconds that a storm has to start, to settle, and to be checked


class BadSeries(Exception):
    """Error: the file is no valid series."""


@dataclass(frozen=True)
class Storm:
    """Storm of a series, with the fields that identify it in the results."""

    mix: str
    seed: int
    seconds: float

    def matches(self, record: Json) -> bool:
        return (record["mix"], record["seed"], record["seconds"]) == (self.mix, self.seed, self.seconds)

    def __str__(self) -> str:
        return f"{self.mix} {self.seed}, {self.seconds:g} s"


@dataclass(frozen=True)
class Series:
    """Content of a file: the mixes by name, and the storms in their order."""

    file: Path
    mixes: dict[str, Mix]
    storms: tuple[Storm, ...]

    @classmethod
    def read(cls, file: Path) -> "Series":
        """Read a file. Raises BadSeries with the unknown names."""
        try:
            document = tomllib.loads(file.read_text())
            mixes = {name: Mix(name=name, **spec) for name, spec in document["mixes"].items()}
            storms = [
                Storm(group["mix"], seed, group["seconds"])
                for group in document["storms"]
                for seed in group["seeds"]
            ]
        except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as fault:
            raise BadSeries(f"{file}: {type(fault).__name__} {fault}") from None
        unknown = [kind for mix in mixes.values() for kind in mix.kinds if kind not in FAULTS]
        unknown += [storm.mix for storm in storms if storm.mix not in (VIRTUAL_MIX, *mixes)]
        if unknown:
            raise BadSeries(f"{file}: neither a fault nor a mix: {', '.join(unknown)}")
        return cls(file, mixes, tuple(storms))

    def mix(self, name: str) -> Mix:
        """Return a mix. Raises BadSeries with the known names."""
        if name not in self.mixes:
            raise BadSeries(f"{self.file}: no mix {name}, but {', '.join(self.mixes)}")
        return self.mixes[name]

    def remaining(self, records: Iterable[Json]) -> list[Storm]:
        """Return the storms without a complete record."""
        completed = [record for record in records if "failed" not in record]
        return [storm for storm in self.storms if not any(map(storm.matches, completed))]


def records_of(results: Path) -> list[Json]:
    """Return the latest record of each storm."""
    lines = results.read_text().splitlines() if results.exists() else []
    latest = {(record["mix"], record["seed"], record["seconds"]): record for record in map(json.loads, lines)}
    return list(latest.values())


def run(storm: Storm, file: Path, further_arguments: Sequence[str]) -> Json:
    """Run a storm and return its record, which has `failed` if the storm could not be checked."""
    if storm.mix == VIRTUAL_MIX:
        return {**vars(storm), **Day(storm.seed, storm.seconds).run()}
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        options = [
            "--campaign",
            file,
            "--mix",
            storm.mix,
            "--seed",
            storm.seed,
            "--seconds",
            storm.seconds,
        ]
        command = [
            sys.executable,
            "-m",
            "tests.storm",
            *map(str, options),
            "--record",
            str(record),
            *further_arguments,
        ]
        failed = ""
        try:
            completed = subprocess.run(command, timeout=storm.seconds + LONGEST_END)
            failed = f"it ended with {completed.returncode}, without a record"
        except subprocess.TimeoutExpired:
            failed = f"it did not end within {storm.seconds + LONGEST_END:g} s"
        if record.exists():
            report: Json = json.loads(record.read_text())
            return report
    return {**vars(storm), "failed": failed}
