"""How much a queue may have: limits of a tree, borrowing, divisions."""

from tests.conformance.queueing.needs import not_built
from tests.conformance.verdicts import Check, Skip

CHECKS: dict[str, Check] = {}
SKIPS: tuple[Skip, ...] = not_built(
    "quota_available",
    "fair_share_value",
    "kubequeue_quota",
    "weighted_division_kai",
    "guaranteed_reclaim_doc",
    "blocked_capacity",
)
