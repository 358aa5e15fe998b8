"""Whole cycles: who starts, who is evicted for it, who waits."""

from tests.conformance.queueing.needs import not_built
from tests.conformance.verdicts import Check, Skip

CHECKS: dict[str, Check] = {}
SKIPS: tuple[Skip, ...] = not_built(
    "admit_cycle",
    "admit_cycle_fair",
    "admit_cycle_v01",
)
