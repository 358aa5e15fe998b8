"""Waiting for conditions, so that tests never wait for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
GENEROUS_SECONDS = 60.0  # seconds
FIRST_PAUSE, LAST_PAUSE = 0.002, 0.05  # seconds


def wait_for(condition: Callable[[], Value], timeout: float = GENEROUS_SECONDS, what: str = "") -> Value:
    """Call `condition` until its value is true, and return the value.

    After `timeout` seconds, raise TimeoutError with `what` and the last value.
    """
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what or condition} not within {timeout:g} s, last value: {value!r}")
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)
    return value
