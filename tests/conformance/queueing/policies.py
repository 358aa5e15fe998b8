"""How a queue lets its groups go: rotation, block, strict priority, and both together."""

from tests.conformance.queueing.needs import not_built
from tests.conformance.verdicts import Check, Skip

CHECKS: dict[str, Check] = {}
SKIPS: tuple[Skip, ...] = not_built(
    "kubequeue_policy",
)
