"""Long tables in pages: search, sort key and page number come from the query of the URL.

So a link or a reload shows the same rows. Invalid parameters are ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
Query = Mapping[str, str]  # the parameters of the URL
_MAX_SEARCH_LENGTH = 256  # maximum characters of a search


@dataclass(frozen=True)
class Column(Generic[Row]):
    key: str
    title: str
    order: Callable[[Row], Any] | None = None  # sort key of a row; None if the column cannot be sorted
    kind: str = ""  # classes of the style sheet: `number`, `wide` (hidden on a phone)


@dataclass(frozen=True)
class TablePage(Generic[Row]):
    """Page of a table: page `number` of `last`. `total` is the number of rows on all pages."""

    rows: Sequence[Row]
    total: int
    number: int
    last: int
    sort: str  # key of the sorted column; a `-` in front means descending order


def sorted_rows(rows: Sequence[Row], columns: Sequence[Column[Row]], sort: str) -> Sequence[Row]:
    column = next((column for column in columns if column.key == sort.removeprefix("-")), None)
    if column is None or column.order is None:
        return rows
    return sorted(rows, key=column.order, reverse=sort.startswith("-"))


def page(
    rows: Sequence[Row], columns: Sequence[Column[Row]], query: Query, size: int, sort: str = ""
) -> TablePage[Row]:
    """Return the requested page of the rows, sorted as the query requests, else by `sort`."""
    requested_sort = query.get("sort", "")
    sortable_keys = {column.key for column in columns if column.order}
    sort = requested_sort if requested_sort.removeprefix("-") in sortable_keys else sort
    last = max(1, -(-len(rows) // size))
    number = min(_page_number(query.get("page", "")), last)
    page_rows = sorted_rows(rows, columns, sort)[(number - 1) * size : number * size]
    return TablePage(page_rows, len(rows), number, last, sort)


def matching_rows(rows: Sequence[Row], query: Query, text: Callable[[Row], str]) -> Sequence[Row]:
    """Return the rows whose text has all words of the parameter `q`, ignoring case."""
    words = query.get("q", "")[:_MAX_SEARCH_LENGTH].lower().split()
    if not words:
        return rows
    return [row for row in rows if all(word in text(row).lower() for word in words)]


def _page_number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1
