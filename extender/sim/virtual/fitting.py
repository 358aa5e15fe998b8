"""Columns of a report that fit into the terminal."""

from collections.abc import Sequence

from extender.terminal.columns import columns, shortened

_SHORTEST_NAME = 12
Cells = tuple[object, ...]


def fitting(head: Sequence[str], rows: Sequence[Cells], width: int) -> list[str]:
    """Numbers are never cut; names get what they leave."""
    made = columns(head, rows, right=len(head) - 1)
    over = max(map(len, made)) - width
    if not width or over <= 0:
        return made
    longest = max(len(str(row[0])) for row in rows)
    room = max(longest - over, _SHORTEST_NAME)
    cut = [(shortened(str(name), room, unicode=False), *rest) for name, *rest in rows]
    return columns(head, cut, right=len(head) - 1)
