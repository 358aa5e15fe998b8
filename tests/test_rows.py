"""Tables of rows as one test: all rows are checked, and each that fails is reported."""

from pathlib import Path

import pytest

from tests.rows import each_of


def positive(number: int, *, tmp_path: Path) -> None:
    assert number > 0


def test_each_row_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as alone:
        each_of(1, -2, 3)(positive)(tmp_path=tmp_path)
    assert alone.value.__notes__ == ["in row 2: -2"]
    with pytest.raises(BaseExceptionGroup) as several:
        each_of(-1, 2, -3)(positive)(tmp_path=tmp_path)
    assert [fault.__notes__ for fault in several.value.exceptions] == [["in row 1: -1"], ["in row 3: -3"]]


@each_of((1, {"a": 1}), (2, {"a": 2}))
def test_a_row_of_several_has_them_in_order(number: int, given: dict[str, int], *, tmp_path: Path) -> None:
    assert given["a"] == number
    assert tmp_path.exists()
