"""Tables of many short rows in one test.

pytest makes an item of each row of a parametrized test, in each worker. That costs more than a row of a
millisecond.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest


def each_of(*rows: Any) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make one test of all rows, which reports each row that fails.

    Args:
        rows: Arguments of the test: a tuple of them, or the only one.
    """
    assert rows

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        has_several = len(signature(check).parameters) > 1

        def test() -> None:
            faults = []
            for row in rows:
                try:
                    check(*row) if has_several else check(row)
                except (Exception, pytest.fail.Exception) as fault:
                    fault.add_note(f"in the row {row!r}")
                    faults.append(fault)
            if len(faults) == 1:
                raise faults[0]
            if faults:
                raise BaseExceptionGroup(f"{len(faults)} of {len(rows)} rows fail", faults)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
