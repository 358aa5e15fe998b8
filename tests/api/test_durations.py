"""Durations as Go reads them."""

import pytest

from extender.api.units import as_seconds


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0)])
def test_seconds_of_a_duration(text: str, seconds: float) -> None:
    assert as_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "-1s", "1d", "1s ", "9" * 309 + "h"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text[:5]}"):
        as_seconds(text)
