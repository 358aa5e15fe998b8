"""Lists in sentences, and where they are cut."""

from extender.api.texts import and_more, listed


def test_a_list_says_how_many_it_leaves_out() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2, " or ") == "a or b and 1 more"
    assert and_more(0) == and_more(-1) == []
    assert and_more(1200, " nodes") == ["and 1,200 more nodes"]
