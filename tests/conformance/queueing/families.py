"""The families of queueing.json: the check of each, and what of them is skipped. Each theme has a table."""

from collections.abc import Mapping

from tests.conformance.queueing import (
    cycles,
    flavors,
    orders,
    policies,
    preemption,
    quotas,
    requeueing,
    retries,
    victims,
)
from tests.conformance.verdicts import Check, Skip

_THEMES = (orders, retries, requeueing, quotas, policies, flavors, cycles, preemption, victims)
CHECKS: Mapping[str, Check] = {family: check for theme in _THEMES for family, check in theme.CHECKS.items()}
SKIPS: tuple[Skip, ...] = tuple(skip for theme in _THEMES for skip in theme.SKIPS)
