"""Every case that is not skipped holds, and no skip hides one that would."""

from tests.conformance.cases import DATA, Case, load
from tests.conformance.judge import judge
from tests.conformance.verdicts import Outcome
from tests.rows import each_of

CASES = load(DATA)


@each_of(*CASES)
def test_each_case_passes_or_is_a_known_deviation(case: Case) -> None:
    result = judge(case)
    assert result.outcome is not Outcome.FAILED, "\n".join(result.findings)
