"""Table of several storms: faults, evictions, recovery times and violations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from tests.storm.recovery import ANSWERS, BINDS, percentile
from tests.storm.series import VIRTUAL_MIX

Json = dict[str, Any]
COLUMNS = "{:28} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9}"
HEAD = ("fault", "done", "missed", "answers", "p99", "binds", "p99")


def table_of(records: Sequence[Json]) -> str:
    """Return a table of the records.

    `answers` and `binds`: median seconds from the end of a fault until Muster answers and binds again.
    """
    reviewed = [record for record in records if "failed" not in record and record["mix"] != VIRTUAL_MIX]
    virtual_runs = [record for record in records if "failed" not in record and record["mix"] == VIRTUAL_MIX]
    faults, missed = _sum_of(reviewed, "faults"), _sum_of(reviewed, "missed")
    times = {measure: _times(reviewed, measure) for measure in (ANSWERS, BINDS)}
    lines = [COLUMNS.format(*HEAD)]
    for kind in sorted(faults.keys() | missed.keys()):
        recovered = [cell for measure in times for cell in _percentile_cells(times[measure].get(kind, []))]
        lines.append(COLUMNS.format(kind, faults[kind], missed[kind], *recovered))
    all_cells: list[str] = []
    for seconds_by_kind in times.values():
        all_cells += _percentile_cells([*chain.from_iterable(seconds_by_kind.values())])
    lines.append(COLUMNS.format("all", faults.total(), missed.total(), *all_cells))
    lines += _count_lines("gangs and pods", _sum_of(reviewed, "counts"))
    lines += _count_lines("evictions, by purpose", _sum_of(reviewed, "evictions"))
    calm = sum(record["calm"] for record in reviewed)
    seconds = sum(record["seconds"] for record in reviewed)
    violations = list(_violations(records))
    lines += [
        f"{len(reviewed)} storms of {seconds:g} s ({calm:.0f} s of them calm), {len(violations)} violations"
    ]
    if virtual_runs:
        hours = sum(run["seconds"] for run in virtual_runs) / 3600
        reported = ", ".join(
            f"{count} {name}" for name, count in sorted(_sum_of(virtual_runs, "counts").items())
        )
        lines += [
            f"{hours:g} h of virtual time: {_sum_of(virtual_runs, 'faults').total()} faults, {reported}"
        ]
    lines += [f"the two judges agree on {sum(record['judges_agree'] for record in reviewed)} of them"]
    return "\n".join([*lines, *violations])


def _sum_of(records: Iterable[Json], name: str) -> Counter[str]:
    total = Counter[str]()
    for record in records:
        total.update(record[name])
    return total


def _times(records: Iterable[Json], measure: str) -> dict[str, list[float]]:
    by_kind: dict[str, list[float]] = {}
    for record in records:
        for kind, seconds in record["recoveries"].get(measure, {}).items():
            by_kind.setdefault(kind, []).extend(seconds)
    return by_kind


def _percentile_cells(times: Sequence[float]) -> tuple[str, str]:
    if not times:
        return "-", "-"
    return f"{percentile(times, 0.5):.1f} s", f"{percentile(times, 0.99):.1f} s"


def _count_lines(title: str, counts: Counter[str]) -> list[str]:
    reported = [f"  {count:7} {name}" for name, count in sorted(counts.items())]
    return [f"{title}:", *reported] if reported else []


def _violations(records: Iterable[Json]) -> Iterator[str]:
    for record in records:
        name = f"{record['mix']} {record['seed']}"
        if "failed" in record:
            yield f"{name}: {record['failed']}"
        yield from (f"{name}: {violation}" for violation in record.get("violations", []))
