"""Texts: valid names of objects, names in sentences, and tables of texts.

A table has a line `name: text` for each text, continued in indented lines.
"""

import re
from collections.abc import Sequence

_ENTRY = re.compile(r"^([^\s:]+): (.+(?:\n  .+)*)", re.MULTILINE)

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LONGEST_NAME = 253


def may_be_name(text: str) -> bool:
    """Return whether an object can have this name.

    Other names are not looked up or linked: in a path, `q/status` and `..` lead to another object.
    """
    return len(text) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(text) is not None


def listed(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """Names for a sentence: the first of them, and how many more there are."""
    return " ".join([between.join(names[:most]), *and_more(len(names) - most)])


def and_more(left_out: int, what: str = "") -> list[str]:
    """`and 3 more`, for the end of a list that is cut; nothing where nothing is left out."""
    return [f"and {left_out:,} more{what}"] if left_out > 0 else []


def texts(table: str) -> dict[str, str]:
    """Return the texts by their names, in order, each without its line breaks."""
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(table)}
