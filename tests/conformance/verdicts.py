"""What can become of a case."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class NoCounterpart(Exception):
    """Nothing that serves has the meaning of what a case puts to the test."""


class Result(msgspec.Struct, frozen=True):
    """`words`: what differs, or why the case is skipped."""

    outcome: Outcome
    words: tuple[str, ...] = ()
