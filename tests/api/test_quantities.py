"""Quantities: the API server's grammar, and rounding that never overcommits."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.units import BadQuantity, Quantity, rounded_down, rounded_up
from tests.rows import each_of

SUFFIXES = [
    ("n", Fraction(1, 10**9)),
    ("u", Fraction(1, 10**6)),
    ("m", Fraction(1, 1000)),
    ("", Fraction(1)),
    ("k", Fraction(10**3)),
    ("M", Fraction(10**6)),
    ("G", Fraction(10**9)),
    ("T", Fraction(10**12)),
    ("P", Fraction(10**15)),
    ("E", Fraction(10**18)),
    ("Ki", Fraction(2**10)),
    ("Mi", Fraction(2**20)),
    ("Gi", Fraction(2**30)),
    ("Ti", Fraction(2**40)),
    ("Pi", Fraction(2**50)),
    ("Ei", Fraction(2**60)),
    ("e3", Fraction(1000)),
    ("E3", Fraction(1000)),
    ("e+3", Fraction(1000)),
    ("e-3", Fraction(1, 1000)),
]


@each_of(*SUFFIXES)
def test_a_suffix_multiplies(suffix: str, factor: Fraction) -> None:
    assert rounded_up(f"3{suffix}", 10**9) == 3 * factor * 10**9 or 3 * factor * 10**9 > 2**63 - 1
    assert rounded_down(f"2{suffix}", 1) == int(2 * factor)


@each_of(
    ("1", 1, 1),
    ("+1", 1, 1),
    ("1.", 1, 1),
    (".5", 1, 0),
    ("0.1", 1, 0),
    ("1.5", 2, 1),
    ("1500m", 2, 1),
    ("1n", 1, 0),
    ("1.5Ki", 1536, 1536),
    ("0.0001Ki", 1, 0),
    ("-1.5", -1, -2),
    ("0", 0, 0),
    (2, 2, 2),
    ("007", 7, 7),
)
def test_requests_are_rounded_up_and_capacities_down(text: Quantity, up: int, down: int) -> None:
    assert (rounded_up(text), rounded_down(text)) == (up, down)


def test_cpu_is_counted_in_millicores() -> None:
    assert rounded_up("0.1", 1000) == 100
    assert rounded_up("100u", 1000) == 1
    assert rounded_down("100u", 1000) == 0


@each_of("16E", "9223372036854775808", "1e30", "1e999")
def test_a_number_too_large_is_the_largest(text: str) -> None:
    assert rounded_up(text) == rounded_down(text) == 2**63 - 1
    assert rounded_up(f"-{text}") == -(2**63 - 1)


@each_of(
    "",
    " ",
    ".",
    "-",
    "+",
    "1 ",
    " 1",
    "1 Gi",
    "1K",
    "1ki",
    "1KI",
    "1g",
    "1mi",
    "1Mi2",
    "1b",
    "1GiB",
    "1e",
    "1e1.5",
    "1e1000",
    "1ee3",
    "1Ee3",
    "1kk",
    "1k3",
    "--1",
    "+-1",
    "1,5",
    "1_000",
    "0x10",
    "NaN",
    "inf",
    "one",
    "1..5",
    "1.5.",
    "\u0661",
    "1\n",
    "1/2",
    "None",
    "True",
)
def test_a_quantity_that_the_api_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity, match="is not a quantity"):
        rounded_up(text)
    with pytest.raises(BadQuantity):
        rounded_down(text)


@given(
    st.decimals(min_value=0, max_value=10**6, places=6),
    st.sampled_from([suffix for suffix, _ in SUFFIXES]),
    st.sampled_from([1, 1000]),
)
def test_rounding_brackets_the_exact_value(number: object, suffix: str, scale: int) -> None:
    exact = Fraction(str(number)) * dict(SUFFIXES)[suffix] * scale
    up, down = rounded_up(f"{number}{suffix}", scale), rounded_down(f"{number}{suffix}", scale)
    assert up - down == (exact.denominator != 1) or up == 2**63 - 1
    assert down <= exact
    assert up >= exact or up == 2**63 - 1
