"""Durations as Go reads them, and times as people name them."""

from datetime import UTC, datetime

import pytest

from extender.api.units import as_seconds, as_time
from tests.rows import each_of


@each_of(("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0), ("2562047h", 9223369200.0))
def test_seconds_of_a_duration(text: str, seconds: float) -> None:
    assert as_seconds(text) == seconds


@each_of("", "1", "-1s", "1d", "1s ", "2562048h", "9" * 309 + "h")
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text[:5]}"):
        as_seconds(text)


NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@each_of(
    ("7d", datetime(2026, 11, 20, 12, tzinfo=UTC)),
    ("1d12h", datetime(2026, 11, 26, tzinfo=UTC)),
    ("90m", datetime(2026, 11, 27, 10, 30, tzinfo=UTC)),
    ("0d", NOW),
    ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
    ("2026-11-01T08:00:00+01:00", datetime(2026, 11, 1, 7, tzinfo=UTC)),
)
def test_a_time_is_an_age_or_a_timestamp(text: str, instant: datetime) -> None:
    assert as_time(text, NOW.timestamp()) == instant.timestamp()


@each_of("", "d", "7", "-7d", "7d ", "7 d", "٣d", "1h1d", "999999d", "yesterday", "2026")
def test_a_text_that_names_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        as_time(text, NOW.timestamp())
