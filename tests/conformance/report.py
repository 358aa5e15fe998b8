"""What is told of judged cases: failures, a table by kind, why what was skipped, and the closing line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.conformance.cases import Case
from tests.conformance.verdicts import Outcome, Result

Judged = Sequence[tuple[Case, Result]]


def lines(judged: Judged) -> Iterator[str]:
    yield from _failures(judged)
    yield from _by_kind(judged)
    yield from _skips(judged)
    yield _counted(result.outcome for _, result in judged)


def _failures(judged: Judged) -> Iterator[str]:
    for case, result in judged:
        if result.outcome is Outcome.FAILED:
            yield f"{case.id}: {case.title}"
            yield from (f"    {words}" for words in result.words)


def _by_kind(judged: Judged) -> Iterator[str]:
    yield f"{'kind':26}" + "".join(f"{outcome:>9}" for outcome in Outcome)
    count = Counter((case.kind, result.outcome) for case, result in judged)
    for kind in dict.fromkeys(case.kind for case, _ in judged):
        yield f"{kind:26}" + "".join(f"{count[kind, outcome]:9}" for outcome in Outcome)


def _skips(judged: Judged) -> Iterator[str]:
    skipped = [result.words[0] for _, result in judged if result.outcome is Outcome.SKIPPED]
    if skipped:
        yield "skipped:"
    for reason, times in Counter(skipped).items():
        yield f"{times:5}  {reason}"


def _counted(outcomes: Iterable[Outcome]) -> str:
    count = Counter(outcomes)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in Outcome)
