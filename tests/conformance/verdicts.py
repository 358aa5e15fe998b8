"""Checks of cases, and their possible verdicts."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tests.conformance.cases import Case

Check = Callable[[Case], Iterator[str]]
"""Puts a case to the code that serves, and yields what differs from what it expects: one line for each thing.
Raises NoCounterpart."""


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class NoCounterpart(Exception):
    """Nothing that serves has the meaning of what a case puts to the test."""


class Skip(NamedTuple):
    """A rule of Muster that differs, and the cases where it does: by what a case needs, never by its name."""

    reason: str
    applies: Callable[[Case], bool]


class Result(msgspec.Struct, frozen=True):
    """`words`: what differs, or why the case is skipped."""

    outcome: Outcome
    findings: tuple[str, ...] = ()
