"""Long lists in pages: search, order and position, all read from the query of the URL.

A link or a reload shows the same. Invalid parameters are ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
Query = Mapping[str, str]  # the parameters of the URL
_LONGEST = 256  # maximum of characters of a search


@dataclass(frozen=True)
class Column(Generic[Row]):
    key: str
    title: str
    order: Callable[[Row], Any] | None = None  # the sort key of rows; None: unsorted
    kind: str = ""  # a class of the style sheet: `number`, `wide` (not on a phone)


@dataclass(frozen=True)
class TablePage(Generic[Row]):
    """Page `number`, from 1 to `last`, of the `total` rows that were found."""

    rows: Sequence[Row]
    total: int
    number: int
    last: int
    sort: str  # the key of a column, with `-` in front for the largest first


def sorted_rows(rows: Sequence[Row], columns: Sequence[Column[Row]], sort: str) -> Sequence[Row]:
    column = next((column for column in columns if column.key == sort.removeprefix("-")), None)
    if column is None or column.order is None:
        return rows
    return sorted(rows, key=column.order, reverse=sort.startswith("-"))


def page(
    rows: Sequence[Row], columns: Sequence[Column[Row]], query: Query, size: int, sort: str = ""
) -> TablePage[Row]:
    """Return the requested page, sorted as requested, else by `sort`."""
    requested = query.get("sort", "")
    sortable = {column.key for column in columns if column.order}
    sort = requested if requested.removeprefix("-") in sortable else sort
    last = max(1, -(-len(rows) // size))
    number = min(_page_number(query.get("page", "")), last)
    on_page = sorted_rows(rows, columns, sort)[(number - 1) * size : number * size]
    return TablePage(on_page, len(rows), number, last, sort)


def searched(rows: Sequence[Row], query: Query, text: Callable[[Row], str]) -> Sequence[Row]:
    """Return the rows whose text has all words of `q`, in any case."""
    words = query.get("q", "")[:_LONGEST].lower().split()
    if not words:
        return rows
    return [row for row in rows if all(word in text(row).lower() for word in words)]


def _page_number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1
