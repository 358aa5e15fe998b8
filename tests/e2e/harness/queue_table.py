"""Rows of the tables that `vcctl queue list` and `vcctl queue get` print."""

HEAD = ["Name", "Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown", "Completed"]
Row = dict[str, str]
_NAME_WIDTH, _CELL_WIDTH = 25, 8  # widths of the first and of each further column, in characters


def rows(printed: str) -> list[Row]:
    """Return the rows of a printed table. Fail if the header is not the expected header."""
    head, *lines = printed.splitlines()
    assert head.split() == HEAD
    return [_row(line) for line in lines]


def _row(line: str) -> Row:
    """Return one row, keyed by column. The cells of state and parent may be empty."""
    cells = [
        line[start : start + _CELL_WIDTH].strip() for start in range(_NAME_WIDTH, len(line), _CELL_WIDTH)
    ]
    return dict(zip(HEAD, [line[:_NAME_WIDTH].strip(), *cells], strict=False))
