"""Who is evicted for a group: by priority, up a tree, by fairness."""

from tests.conformance.queueing.needs import not_built
from tests.conformance.verdicts import Check, Skip

CHECKS: dict[str, Check] = {}
SKIPS: tuple[Skip, ...] = not_built(
    "preempt_classic",
    "preempt_hierarchical",
    "preempt_fair",
)
