"""Every case that is not skipped holds, and no skip hides one that would."""

import pytest

from tests.conformance.cases import DATA, Case, load
from tests.conformance.judge import judge
from tests.conformance.verdicts import Outcome

CASES = load(DATA)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case_holds_or_is_skipped_and_would_not(case: Case) -> None:
    result = judge(case)
    assert result.outcome is not Outcome.FAILED, "\n".join(result.findings)
