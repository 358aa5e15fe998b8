"""Pods covered by disruption budgets, however many budgets there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.objects.pods import LabelSelector, Requirement
from extender.domain.model import evictions
from extender.domain.model.evictions import BudgetsOfNamespace, DisruptionBudget
from extender.domain.model.selectors import Labels, selects


def _of(selector: LabelSelector | None, name: str = "p") -> DisruptionBudget:
    return DisruptionBudget("n", name, selector, 5)


def _expression(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=[Requirement(key, operator, list(values) or None)])


KEYS, VALUES = st.sampled_from("abc"), st.sampled_from("xy")
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
EXPRESSIONS = st.builds(_expression, KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), VALUES)
SELECTORS = st.none() | EXPRESSIONS | st.builds(LabelSelector, LABELS)


@given(st.lists(SELECTORS, max_size=6), LABELS)
def test_only_selected_pods_are_compared_with_budgets(
    selectors: list[LabelSelector | None], labels: dict[str, str]
) -> None:
    budgets = [_of(selector, f"p{number}") for number, selector in enumerate(selectors)]
    found = BudgetsOfNamespace(budgets).budgets_for(labels)
    assert {each.name for each in found} == {each.name for each in budgets if selects(each.selector, labels)}


@pytest.mark.parametrize(
    ("budgets", "covers"),
    [
        ([_of(LabelSelector({"app": f"{n}"}), f"p{n}") for n in range(5000)], 1),
        ([_of(LabelSelector({"all": "yes", "other": f"{n}"}), f"p{n}") for n in range(5000)], 0),
        ([_of(LabelSelector({"all": "yes"}), f"p{n}") for n in range(5000)], 2),
        ([_of(_expression(f"other{n}", "Exists"), f"p{n}") for n in range(5000)], 2),
        ([_of(_expression("app", "In", *map(str, range(100_000))))], 2),
    ],
    ids=["one each", "none", "all", "expressions", "one of a megabyte"],
)
def test_thousands_of_budgets_are_not_tried_one_by_one(
    budgets: list[DisruptionBudget], covers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that two cover is not evicted, as the Eviction API would refuse it."""
    tried: list[LabelSelector | None] = []

    def counted(selector: LabelSelector | None, labels: Labels) -> bool:
        tried.append(selector)
        return selects(selector, labels)

    monkeypatch.setattr(evictions, "selects", counted)
    known = BudgetsOfNamespace(budgets)
    assert [len(known.budgets_for({"app": f"{n}", "all": "yes"})) for n in range(100)] == [covers] * 100
    assert len(tried) <= 16 * 100
