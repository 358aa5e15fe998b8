"""Tables of many short rows in one test.

pytest makes an item of each row of a parametrized test, in each worker. That costs more than a row of a
millisecond.
"""

from collections.abc import Callable, Iterable
from typing import Any


def each_of(rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make one test of all rows; a tuple holds several arguments. A failure names its row."""
    table = [row if type(row) is tuple else (row,) for row in rows]

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert table
            for row in table:
                try:
                    check(*row)
                except BaseException as fault:
                    fault.add_note(f"in the row {row!r}")
                    raise

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
