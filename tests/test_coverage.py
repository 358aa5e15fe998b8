"""The floors of coverage: an area below its floor is named."""

from itertools import product
from typing import Any

from tests.rows import each_of
from tools.coverage import FLOORS, Coverage, areas_below_floor, coverage_of


def report(**covered: tuple[int, int]) -> dict[str, Any]:
    """Return a report of 100 lines and 50 branches in each file, by its name."""
    return {
        "files": {
            f"extender/{name.replace('__', '/')}.py": {
                "summary": {
                    "num_statements": 100,
                    "covered_lines": lines,
                    "num_branches": 50,
                    "covered_branches": branches,
                    "percent_covered_display": "any",
                }
            }
            for name, (lines, branches) in covered.items()
        }
    }


def test_the_files_of_an_area_count_together() -> None:
    result = report(domain__model__pods=(100, 50), domain__queues__tree=(80, 30), view__relay=(0, 0))
    assert coverage_of(result, "extender/domain") == Coverage(90.0, 80.0)


@each_of(*product(FLOORS, [(99, 0), (0, 49)]))
def test_less_of_lines_or_of_branches_is_below_the_floor(area: str, less: tuple[int, int]) -> None:
    whole = {f"{name.removeprefix('extender/')}__file": (100, 50) for name in FLOORS}
    assert not list(areas_below_floor(report(**whole)))
    assert list(areas_below_floor(report(**{**whole, f"{area.removeprefix('extender/')}__file": less}))) == [
        area
    ]
