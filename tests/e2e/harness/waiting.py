"""Waiting for conditions: tests never wait for time to pass."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
GENEROUS = 60.0  # seconds
FIRST_PAUSE, PAUSE = 0.002, 0.05  # seconds


def wait_for(condition: Callable[[], Value], timeout: float = GENEROUS, what: str = "") -> Value:
    """Return the condition's first true value.

    After the timeout raise an error with `what` and its last value.
    """
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what or condition} not within {timeout:g} s, last value: {value!r}")
        time.sleep(pause)
        pause = min(2 * pause, PAUSE)
    return value
