"""Report of rows: each row at once and a table at the end, or JSON lines. Progress is printed to stderr."""

import json
import sys
import time
from collections.abc import Mapping

Value = str | int | float
Row = Mapping[str, Value]
FORMATS = ("table", "json")
_STARTED_AT = time.monotonic()


def show(line: str) -> None:
    """Print a line of progress to stderr."""
    print(f"[{time.monotonic() - _STARTED_AT:6.1f} s] {line}", file=sys.stderr, flush=True)  # noqa: T201


class Report:
    """Report that prints rows as a table or as JSON lines."""

    def __init__(self, form: str) -> None:
        self._format = form
        self._rows: dict[str, list[Row]] = {}

    def header(self, facts: Row) -> None:
        """Print facts about the run, such as the machine."""
        if self._format == "json":
            _print(json.dumps(facts))
        else:
            _print("\n".join(f"{key:12} {value}" for key, value in facts.items()))

    def row(self, case: str, row: Row) -> None:
        """Print a row of a case."""
        self._rows.setdefault(case, []).append(row)
        if self._format == "json":
            _print(json.dumps({"case": case, **row}))
        else:
            _print(f"{case:10} " + "  ".join(f"{key}={shown(value)}" for key, value in row.items()))

    def close(self) -> None:
        """For the format `table`, print all rows of each case again as a table."""
        if self._format == "table":
            for case, rows in self._rows.items():
                _print(f"\n{case}\n{table(rows)}")


def table(rows: list[Row]) -> str:
    """Return rows as the text of a table, with one column for each key."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([shown(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join(
        "  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in cells
    )


def shown(value: Value) -> str:
    """Return a value as text. Floats have three significant digits below 100, and no decimals above."""
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 100 else _without_decimals(value)


def _without_decimals(value: Value) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201
