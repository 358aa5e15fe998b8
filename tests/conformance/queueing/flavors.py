"""Which nodes a group may have: the flavors of its queue, in order."""

from tests.conformance.queueing.needs import not_built
from tests.conformance.verdicts import Check, Skip

CHECKS: dict[str, Check] = {}
SKIPS: tuple[Skip, ...] = not_built(
    "assign_flavors",
    "assign_flavors_v01",
    "partial_admission_search",
)
