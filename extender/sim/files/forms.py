"""The forms that a value of a file may have, and how they are told.

A mapping lists the fields that are allowed; a list of one form allows any number of that form; a `Leaf` is a
value.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from extender.api.quantities import BadQuantity, at_least
from extender.sim.apiserver.validation.names import dns_label, subdomain


class Leaf(NamedTuple):
    """One value: what is allowed, in words and as a test."""

    allowed: str
    test: Callable[[Any], bool]


class Needed(NamedTuple):
    """A field that must be there and not be empty; `why` says so."""

    form: Any
    why: str


Form = Leaf | Needed | list[Any] | dict[str, Any]
OTHERS = "*"  # in the place of a name: all fields that are not listed


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return at_least(str(value)) >= 0
    except BadQuantity:
        return False


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not subdomain(value)


def _each(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def one_of(values: Iterable[str]) -> Leaf:
    *others, last = values
    listed = f"{', '.join(others)} or {last}" if others else last
    return Leaf(listed, lambda value: value in (*others, last))


ANY = Leaf("anything", lambda _: True)
TEXT = Leaf("a text; put numbers, true and false in quotes", _is_text)
WHOLE = Leaf("a whole number", _is_whole)
COUNT = Leaf("a whole number, 0 or more", _is_count)
TRUTH = Leaf("true or false", lambda value: isinstance(value, bool))
TEXTS = Leaf("texts by name; put numbers, true and false in quotes", _each(_is_text))
WHOLES = Leaf("whole numbers by name", _each(_is_whole))
COUNTS = Leaf("whole numbers by name, 0 or more", _each(_is_count))
QUANTITY = Leaf("a quantity, 0 or more, such as 500m or 1Gi", _is_quantity)
QUANTITIES = Leaf("quantities by resource, 0 or more, such as {cpu: 500m, memory: 1Gi}", _each(_is_quantity))
NAME = Leaf(
    "a name of at most 253 small letters, digits, - and ., that begins and ends with a letter or digit",
    _is_name,
)
PREFIX = Leaf("the beginning of such a name", lambda value: _is_text(value) and _is_name(f"{value}x"))
NAMESPACE = Leaf(
    "a name of at most 63 small letters, digits and -, that begins and ends with a letter or digit",
    lambda value: isinstance(value, str) and not dns_label(value),
)
