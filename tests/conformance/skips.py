"""What is skipped, and why.

A skip that claims more than it must is found out: whatever it matches is run, and may not pass.
"""

from tests.conformance.cases import Case
from tests.conformance.queueing import families
from tests.conformance.verdicts import Skip
from tests.conformance.volcano import kinds

SKIPS: tuple[Skip, ...] = kinds.SKIPS + families.SKIPS


def skip_for(case: Case) -> str | None:
    """Why a case is skipped; None when it is not."""
    return next((skip.reason for skip in SKIPS if skip.applies(case)), None)
