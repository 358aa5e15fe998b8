"""Who is evicted for a group: by priority, up a tree, by fairness."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.evictions import Cause
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.quota_world import QuotaWorld
from tests.conformance.verdicts import Check, Skip

Given = Mapping[str, Any]
_FAMILIES = ("preempt_classic", "preempt_hierarchical", "preempt_fair")
_GONE = "AlreadyEvicted"


def check_victims(case: Case) -> Iterator[str]:
    """Whoever is on the way out already is not evicted once more."""
    built = QuotaWorld(case.input, case.input["pending"])
    yield from unequal("evicted", _expected(case), built.evicted())


def _expected(case: Case) -> dict[str, Cause]:
    victims = [each for each in case.expect["preempted"] if each["reason"] != _GONE]
    return {each["id"]: _cause(each["reason"]) for each in victims}


def _cause(reason: str) -> Cause:
    return Cause.PREEMPT if reason == "InClusterQueue" else Cause.RECLAIM


CHECKS: dict[str, Check] = dict.fromkeys(_FAMILIES, check_victims)
SKIPS: tuple[Skip, ...] = ()
