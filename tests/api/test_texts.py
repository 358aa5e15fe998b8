"""Names that objects may have; lists in sentences, and where they are cut."""

from extender.api.units import and_more, listed, may_be_name
from tests.rows import each_of


def test_a_list_says_how_many_it_leaves_out() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2, " or ") == "a or b and 1 more"
    assert and_more(0) == and_more(-1) == []
    assert and_more(1200, " nodes") == ["and 1,200 more nodes"]


@each_of("q", "a.b", "a-1.b2", "x" * 253)
def test_valid_names_of_objects(name: str) -> None:
    assert may_be_name(name)


@each_of("", ".", "..", "../q", "q/status", "a%2Fb", "Q", "-a", "a.", "a\n", "x" * 254)
def test_invalid_names_of_objects(name: str) -> None:
    assert not may_be_name(name)
