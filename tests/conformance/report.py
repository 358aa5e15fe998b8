"""Report of evaluated cases: failures, a table by file and kind, reasons for skips, totals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.conformance.cases import Case
from tests.conformance.verdicts import Outcome, Result

Evaluation = Sequence[tuple[Case, Result]]


def lines(reviewed: Evaluation) -> Iterator[str]:
    yield from _failures(reviewed)
    yield from _table_by_file(reviewed)
    yield from _skips(reviewed)
    yield _totals(result.outcome for _, result in reviewed)


def _failures(reviewed: Evaluation) -> Iterator[str]:
    for case, result in reviewed:
        if result.outcome is Outcome.FAILED:
            yield f"{case.id}: {case.title}"
            yield from (f"    {finding}" for finding in result.findings)


def _table_by_file(reviewed: Evaluation) -> Iterator[str]:
    for file in dict.fromkeys(case.file for case, _ in reviewed):
        outcomes_of_file = [(case.kind, result.outcome) for case, result in reviewed if case.file == file]
        yield f"{file:26}" + "".join(f"{outcome:>9}" for outcome in Outcome)
        for kind in dict.fromkeys(kind for kind, _ in outcomes_of_file):
            yield _row(f"  {kind}", (outcome for case_kind, outcome in outcomes_of_file if case_kind == kind))
        yield _row("  together", (outcome for _, outcome in outcomes_of_file))


def _row(title: str, outcomes: Iterable[Outcome]) -> str:
    count = Counter(outcomes)
    return f"{title:26}" + "".join(f"{count[outcome]:9}" for outcome in Outcome)


def _skips(reviewed: Evaluation) -> Iterator[str]:
    skipped = [result.findings[0] for _, result in reviewed if result.outcome is Outcome.SKIPPED]
    if skipped:
        yield "skipped:"
    for reason, times in Counter(skipped).items():
        yield f"{times:5}  {reason}"


def _totals(outcomes: Iterable[Outcome]) -> str:
    count = Counter(outcomes)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in Outcome)
