"""Names for a sentence; and tables of texts: a line `name: text` for each, continued in indented lines."""

import re
from collections.abc import Sequence

_ENTRY = re.compile(r"^([^\s:]+): (.+(?:\n  .+)*)", re.MULTILINE)


def listed(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """Names for a sentence: the first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def texts(table: str) -> dict[str, str]:
    """The texts by their names, in order, each without its line breaks."""
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(table)}
