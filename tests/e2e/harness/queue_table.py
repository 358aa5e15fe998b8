"""Output of `vcctl queue list` and `get` as rows."""

HEAD = ["Name", "Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown", "Completed"]
Row = dict[str, str]
_NAME, _CELL = 25, 8  # wide


def rows(printed: str) -> list[Row]:
    head, *lines = printed.splitlines()
    assert head.split() == HEAD
    return [_row(line) for line in lines]


def _row(line: str) -> Row:
    """Return a row; state and parent may be empty."""
    cells = [line[start : start + _CELL].strip() for start in range(_NAME, len(line), _CELL)]
    return dict(zip(HEAD, [line[:_NAME].strip(), *cells], strict=False))
