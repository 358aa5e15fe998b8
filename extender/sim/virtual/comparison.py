"""Two reports side by side: as given, and with traverse only."""

from collections.abc import Iterator

from extender.api.durations import two_units
from extender.sim.virtual.fitting import Cells, fitting
from extender.sim.virtual.report import SimulationReport, SizeReport


def comparison(given: SimulationReport, other: SimulationReport, width: int) -> list[str]:
    title = "against traverse only, without reservations and reclaim"
    return ["", title, *fitting(("", "as given", "traverse"), list(_rows(given, other)), width)]


def _rows(given: SimulationReport, other: SimulationReport) -> Iterator[Cells]:
    yield "makespan", *(two_units(each.makespan) for each in (given, other))
    for name in given.utilisation:
        yield f"utilisation of {name}", *(f"{each.utilisation.get(name, 0.0):.1%}" for each in (given, other))
    for level in (each.level for each in given.fairness):
        yield f"fairness of level {level}", _jain(given, level), _jain(other, level)
    yield "evicted pods", given.evictions, other.evictions
    yield "mean wait", _mean(given), _mean(other)
    yield "longest wait", _longest(given), _longest(other)
    for mine, its in zip(given.sizes, other.sizes, strict=True):
        yield f"mean wait of {mine.pods} pods", _mean(mine), _mean(its)
        yield f"longest wait of {mine.pods} pods", _longest(mine), _longest(its)


def _jain(of: SimulationReport, level: int) -> str:
    return next((f"{each.jain:.2f}" for each in of.fairness if each.level == level), "-")


def _mean(of: SimulationReport | SizeReport) -> str:
    return two_units(of.waits.mean) if of.waits else "-"


def _longest(of: SimulationReport | SizeReport) -> str:
    return two_units(of.waits.max) if of.waits else "-"
