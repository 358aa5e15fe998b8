"""Checks of cases, and their possible verdicts."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tests.conformance.cases import Case

Check = Callable[[Case], Iterator[str]]
"""Function that runs a case with Muster's code, and yields a line for each difference from the expected
result. Raises NoCounterpart."""


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class NoCounterpart(Exception):
    """Error: Muster has no code with the meaning that a case tests."""


class Skip(NamedTuple):
    """A rule of Muster that differs, and the cases where it applies: by their needs, never by their names."""

    reason: str
    applies: Callable[[Case], bool]


class Result(msgspec.Struct, frozen=True):
    """Result of a case. `findings`: the differences, or the reason to skip the case."""

    outcome: Outcome
    findings: tuple[str, ...] = ()
