"""Language of code and pages: the figures of `make words`, and the rules that they count by."""

import pytest

from tools.words import figures, is_private, opens_without_noun


def test_the_language_meets_its_goals() -> None:
    assert not [(each.name, each.value, each.goal) for each in figures() if not each.is_met]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("What waits: groups that a cycle need not evaluate.", True),
        ("Of each queue the deserved share.", True),
        ("Whoever deletes a pod.", True),
        ("Return the deserved share of each queue.", False),
        ("Whatever.", True),
        ("What is a gang?", False),
        ("Offered amounts.", False),
    ],
)
def test_a_sentence_opens_without_its_noun(sentence: str, expected: bool) -> None:
    assert opens_without_noun(sentence) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("KeptRoom", True), ("round_", True), ("round", False), ("is_noted", True), ("denoted", False)],
)
def test_a_name_has_a_word_of_the_glossary(name: str, expected: bool) -> None:
    assert is_private(name) is expected
