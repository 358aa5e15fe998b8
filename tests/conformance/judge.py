"""Run of a case, and its result.

Skipped cases are run as well: a skipped case that passes is a failure, since its skip is too broad.
"""

from collections.abc import Mapping

from tests.conformance.cases import Case
from tests.conformance.queueing import families
from tests.conformance.skips import skip_for
from tests.conformance.topology import skips as topology
from tests.conformance.verdicts import Check, NoCounterpart, Outcome, Result
from tests.conformance.volcano import kinds

CHECKS: Mapping[str, Check] = {**kinds.CHECKS, **families.CHECKS, **topology.CHECKS}


def judge(case: Case) -> Result:
    try:
        return _result(_differences(case), skip_for(case))
    except Exception as fault:  # a case without the fields of its kind
        return Result(Outcome.FAILED, (f"{type(fault).__name__}: {fault}",))


def _result(differences: tuple[str, ...], reason: str | None) -> Result:
    if reason is None:
        return Result(Outcome.FAILED if differences else Outcome.PASSED, differences)
    if differences:
        return Result(Outcome.SKIPPED, (reason,))
    return Result(Outcome.FAILED, (f"passes, so it must not be skipped as: {reason}",))


def _differences(case: Case) -> tuple[str, ...]:
    """Return the differences from the expected result, or the reason why the case cannot be run."""
    try:
        if case.kind not in CHECKS:
            raise NoCounterpart(f"kind {case.kind}")
        return tuple(CHECKS[case.kind](case))
    except NoCounterpart as fault:
        return (f"nothing that serves does this: {fault}",)
