"""Check that the core's own tests cover enough of its lines and branches.

    python -m tools.coverage coverage.json

`coverage json` writes the file. The floor of a folder is slightly below the reached share. A floor is raised,
but never lowered.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Coverage:
    """Covered share of lines and of branches, in percent."""

    lines: float
    branches: float

    def __str__(self) -> str:
        return f"{self.lines:5.1f} % of lines, {self.branches:5.1f} % of branches"


FLOORS = {
    "extender/domain": Coverage(95.5, 90.5),
    "extender/ports": Coverage(92.5, 81.5),
    "extender/proxy": Coverage(97.0, 91.5),
    "extender/verbs": Coverage(98.0, 96.5),
}


def coverage_of(report: Json, area: str) -> Coverage:
    """Return the covered share of lines and branches, over all files below a folder."""
    summaries = [file["summary"] for path, file in report["files"].items() if path.startswith(f"{area}/")]

    def share(covered_field: str, total_field: str) -> float:
        covered: int = sum(summary[covered_field] for summary in summaries)
        total: int = sum(summary[total_field] for summary in summaries)
        return 100.0 * covered / total

    return Coverage(share("covered_lines", "num_statements"), share("covered_branches", "num_branches"))


def areas_below_floor(report: Json) -> Iterator[str]:
    """Yield the areas that are below their floors."""
    for area, floor in FLOORS.items():
        share = coverage_of(report, area)
        if share.lines < floor.lines or share.branches < floor.branches:
            yield area


def main() -> int:
    report = json.loads(Path(sys.argv[1]).read_text())
    for area, floor in FLOORS.items():
        sys.stdout.write(f"{area:<16} {coverage_of(report, area)}   (at least {floor})\n")
    low = list(areas_below_floor(report))
    if low:
        sys.stderr.write(f"error: below the floor of tools/coverage.py: {', '.join(low)}\n")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
