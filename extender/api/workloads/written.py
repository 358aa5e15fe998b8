"""A value of a file, where it stands, and the faults that are found in it."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

_LONGEST = 200  # characters of a value that a fault repeats


T = TypeVar("T")


class Written(NamedTuple):
    """Reading goes on after a fault, with what stands for the value, so that all faults are found."""

    where: str
    value: Any
    faults: list[str]

    def refused(self, allowed: str) -> None:
        shown = repr(self.value)
        got = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        self.faults.append(f"{self.where}: got {got}; allowed is {allowed}")

    def read(self, reader: Callable[[str], T], instead: T, allowed: str) -> T:
        """What `reader` makes of a text; it raises ValueError for one that is not allowed."""
        try:
            if isinstance(self.value, str):
                return reader(self.value)
        except ValueError:
            pass
        if self.value is not None:  # missing, which is told already
            self.refused(allowed)
        return instead

    def text(self, pattern: str, allowed: str) -> str:
        def matching(text: str) -> str:
            if re.fullmatch(pattern, text) is None:
                raise ValueError(text)
            return text

        return self.read(matching, "", allowed)

    def texts(self, allowed: str) -> list[str]:
        return [each.text(r"\S(?:.*\S)?", "a text") for each in self.items(allowed)]

    def items(self, allowed: str) -> "list[Written]":
        """Those of a list that is not empty."""
        if isinstance(self.value, list) and self.value:
            return [
                Written(f"{self.where}[{number}]", each, self.faults)
                for number, each in enumerate(self.value)
            ]
        if self.value is not None:
            self.refused(allowed)
        return []

    def fields(self, optional: tuple[str, ...] = (), **needed: str) -> "dict[str, Written]":
        """All needed ones, by name, with what is allowed there, and of the optional ones those that are
        there."""
        given = self.value if isinstance(self.value, dict) else {}
        known = (*needed, *optional)
        if given is not self.value and self.value is not None:
            self.refused(f"fields: {', '.join(known)}")
        elif self.value is not None:
            self._check_names(given, known, needed)
        return {
            name: Written(f"{self.where}.{name}", given.get(name), self.faults)
            for name in known
            if name in needed or name in given
        }

    def _check_names(self, given: dict[str, Any], known: tuple[str, ...], needed: dict[str, str]) -> None:
        for name in given:
            if name not in known:
                self.faults.append(f"{self.where}.{name}: unknown; allowed are {', '.join(known)}")
        for name, allowed in needed.items():
            if given.get(name) is None:
                self.faults.append(f"{self.where}.{name}: got nothing; allowed is {allowed}")
