"""Families of queueing.json, with their checks and skips. Each module of a theme has a table."""

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
