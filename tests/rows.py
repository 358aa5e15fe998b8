"""Tables of many short rows in one test.

pytest makes an item of each row of a parametrized test, in each worker. That costs more than a row of a
millisecond.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import pytest


def each_of(*rows: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one test of all rows, which reports each row that fails.

    All rows share the fixtures, which are the keyword-only parameters of the test.

    Args:
        rows: Arguments of the test: a tuple of them, or the only one.
    """
    assert rows

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        parameters = signature(check).parameters.values()
        fixtures = [parameter for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
        takes_one = len(parameters) - len(fixtures) == 1

        def test(**fixture_values: Any) -> None:
            faults = []
            for number, row in enumerate(rows, 1):
                try:
                    check(*((row,) if takes_one else row), **fixture_values)
                except (Exception, pytest.fail.Exception) as fault:
                    fault.add_note(f"in row {number}: {row!r}")
                    faults.append(fault)
            if len(faults) == 1:
                raise faults[0]
            if faults:
                raise BaseExceptionGroup(f"{len(faults)} of {len(rows)} rows fail", faults)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        test.__signature__ = signature(check).replace(parameters=fixtures)  # type: ignore[attr-defined]
        return test

    return decorate
