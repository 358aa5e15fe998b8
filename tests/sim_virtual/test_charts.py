"""The chart: well-formed in each of its forms, small, and true to the run."""

from collections.abc import Iterable
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.domain.model.records import GroupKey
from extender.sim.virtual import chart as charts
from extender.sim.virtual.chart import Bar, Piece, averages, chart, pack
from extender.sim.virtual.measurements import GroupTimeline
from extender.sim.virtual.runner import Result
from extender.sim.virtual.svg import WIDTH
from tests.sim_virtual.bench import row, run_rows

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def titles(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def test_few_gangs_have_a_row_each() -> None:
    svg = chart(run_rows(row("first", 8), row("second & last", 8, arrival=1.0)))
    assert {"first", "second & last", "8 pods", "default", "10s", "20s"} <= set(texts(svg))
    assert "default/second & last (default, 8 pods), waited 9s, ran 10s" in titles(svg)
    assert "prefers-color-scheme: dark" in svg


def test_a_long_legend_takes_several_lines() -> None:
    queues = [f"the-queue-of-team-{number:02}" for number in range(12)]
    svg = chart(run_rows(*(row(f"g{number}", 1, queue=queue) for number, queue in enumerate(queues))))
    places = {
        each.text: (float(each.get("x", "0")), float(each.get("y", "0")))
        for each in ElementTree.fromstring(svg).iter(f"{SVG}text")
    }
    assert all(places[queue][0] + len(queue) * 7 <= WIDTH for queue in queues)
    assert len({places[queue] for queue in queues}) == len(queues)
    assert max(places[queue][1] for queue in queues) < places["g0"][1]


def many() -> Result:
    return run_rows(*(row(f"g{n}", 2, arrival=float(n)) for n in range(50)))


def test_many_gangs_fill_the_capacity() -> None:
    svg = chart(many())
    assert {"gangs that wait", "8", "4"} <= set(texts(svg))
    assert len([title for title in titles(svg) if "ran 10s" in title]) >= 50


def test_very_many_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    result = many()
    bars = chart(result)
    monkeypatch.setattr(charts, "_MAX_BARS", 10)
    sums = chart(result)
    assert "usage of the gangs of each queue" in " ".join(texts(sums))
    assert len(titles(sums)) == 1 < len(titles(bars))


def test_nothing_that_ran_can_be_drawn() -> None:
    assert "never started" in " ".join(titles(chart(run_rows(row("giant", 1, cpu="9")))))


@st.composite
def spans(draw: st.DrawFn) -> list[Bar]:
    timeline = GroupTimeline(GroupKey("default/g"), "default/g", 1)
    made = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 10))
        made.append(Bar(timeline, start, start + draw(st.integers(1, 6)), draw(st.integers(1, 4)), 1))
    return made


@given(spans())
def test_bars_never_overlap_and_keep_their_height(bars: list[Bar]) -> None:
    most = max(sum(bar.amount for bar in bars if bar.start <= t < bar.end) for t in range(20))
    pieces = list(pack(bars, most))
    assert sum(map(area, pieces)) == sum(bar.amount * (bar.end - bar.start) for bar in bars)
    for instant in range(20):
        assert apart(piece for piece in pieces if piece.bar.start <= instant < piece.bar.end)


def area(piece: Piece) -> float:
    return (piece.high - piece.low) * (piece.bar.end - piece.bar.start)


def apart(pieces: Iterable[Piece]) -> bool:
    return all(a.high <= b.low for a, b in pairwise(sorted(pieces, key=lambda piece: piece.low)))


def test_columns_have_the_mean_of_their_time() -> None:
    changes = [(0.0, 2.0), (5.0, 2.0), (10.0, -4.0)]
    assert np.allclose(averages(changes, 0.0, 20.0, 5), [2, 3.5, 2, 0, 0])
