"""Every case that is not skipped holds, and no skip hides one that would."""

import pytest

from tests.conformance.cases import DATA, Case, load
from tests.conformance.judge import judge
from tests.conformance.skips import skip_for
from tests.conformance.verdicts import Outcome

CASES = load(DATA)
RUN = [case for case in CASES if skip_for(case) is None]
SKIPPED = [case for case in CASES if skip_for(case) is not None]


@pytest.mark.parametrize("case", RUN, ids=[case.id for case in RUN])
def test_case(case: Case) -> None:
    result = judge(case)
    assert result.outcome is Outcome.PASSED, "\n".join(result.findings)


def test_no_skip_hides_a_case_that_would_pass() -> None:
    results = {case.id: judge(case) for case in SKIPPED}
    hidden = {id_: each.findings for id_, each in results.items() if each.outcome is Outcome.FAILED}
    assert hidden == {}
