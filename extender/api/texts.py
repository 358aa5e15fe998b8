"""Tables of texts: a line `name: text` for each entry, which goes on in indented lines."""

import re

_ENTRY = re.compile(r"^([^\s:]+): (.+(?:\n  .+)*)", re.MULTILINE)


def texts(table: str) -> dict[str, str]:
    """The texts by their names, in order, each without its line breaks."""
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(table)}
