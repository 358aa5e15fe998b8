"""What is told of judged cases: failures, a table by file and kind, why what was skipped, totals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.conformance.cases import Case
from tests.conformance.verdicts import Outcome, Result

Judged = Sequence[tuple[Case, Result]]


def lines(judged: Judged) -> Iterator[str]:
    yield from _failures(judged)
    yield from _by_file(judged)
    yield from _skips(judged)
    yield _counted(result.outcome for _, result in judged)


def _failures(judged: Judged) -> Iterator[str]:
    for case, result in judged:
        if result.outcome is Outcome.FAILED:
            yield f"{case.id}: {case.title}"
            yield from (f"    {finding}" for finding in result.findings)


def _by_file(judged: Judged) -> Iterator[str]:
    for file in dict.fromkeys(case.file for case, _ in judged):
        within = [(case.kind, result.outcome) for case, result in judged if case.file == file]
        yield f"{file:26}" + "".join(f"{outcome:>9}" for outcome in Outcome)
        for kind in dict.fromkeys(kind for kind, _ in within):
            yield _row(f"  {kind}", (outcome for each, outcome in within if each == kind))
        yield _row("  together", (outcome for _, outcome in within))


def _row(title: str, outcomes: Iterable[Outcome]) -> str:
    count = Counter(outcomes)
    return f"{title:26}" + "".join(f"{count[outcome]:9}" for outcome in Outcome)


def _skips(judged: Judged) -> Iterator[str]:
    skipped = [result.findings[0] for _, result in judged if result.outcome is Outcome.SKIPPED]
    if skipped:
        yield "skipped:"
    for reason, times in Counter(skipped).items():
        yield f"{times:5}  {reason}"


def _counted(outcomes: Iterable[Outcome]) -> str:
    count = Counter(outcomes)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in Outcome)
