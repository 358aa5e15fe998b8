"""Skipped cases with their reasons.

A skip that claims too much is detected: each case that it matches is run, and may not pass.
"""

from tests.conformance.cases import Case
from tests.conformance.queueing import families
from tests.conformance.topology import skips as topology
from tests.conformance.verdicts import Skip
from tests.conformance.volcano import kinds

SKIPS: tuple[Skip, ...] = kinds.SKIPS + families.SKIPS + topology.SKIPS


def skip_for(case: Case) -> str | None:
    """Return the reason why a case is skipped; None when it is not."""
    return next((skip.reason for skip in SKIPS if skip.applies(case)), None)
