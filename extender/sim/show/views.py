"""Where pictures go: a terminal, rewritten in place; a pipe, in plain lines; or nowhere until the end.

On a terminal only what has changed is written, and in one piece, so that nothing flickers. The cursor is
hidden meanwhile, and comes back however it ends.
"""

import os
import shutil
from collections.abc import Sequence
from typing import Protocol, TextIO

from extender.sim.show.drawing import Line, Paper, frame, head_lines, turn_text
from extender.sim.show.history import Turn
from extender.sim.show.picture import Picture

_COLOURS = {"dim": "2", "good": "32", "waits": "33"}
_HIDE, _SHOW, _ERASE_REST, _ERASE_LINE = "\x1b[?25l", "\x1b[?25h", "\x1b[J", "\x1b[K"


class View(Protocol):
    def begin(self, head: Sequence[str]) -> None: ...
    def show(self, picture: Picture, turns: Sequence[Turn], new: Sequence[Turn]) -> None: ...
    def end(self, lines: Sequence[str]) -> None: ...


class Silence:
    """For those who want the result only."""

    def begin(self, head: Sequence[str]) -> None:
        pass

    def show(self, picture: Picture, turns: Sequence[Turn], new: Sequence[Turn]) -> None:
        pass

    def end(self, lines: Sequence[str]) -> None:
        pass


class Lines:
    """A line for everything that happens, as it happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._paper = paper(stream)

    def begin(self, head: Sequence[str]) -> None:
        self._write(head)

    def show(self, picture: Picture, turns: Sequence[Turn], new: Sequence[Turn]) -> None:
        for turn in new:
            self._write(turn_text(turn, self._paper))

    def end(self, lines: Sequence[str]) -> None:
        self._write(["", *lines])

    def _write(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()


class Screen:
    """A terminal that understands ANSI sequences."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._head: Sequence[str] = ()
        self._shown: list[str] = []
        self._paper = paper(stream)
        self._colours = "NO_COLOR" not in os.environ

    def begin(self, head: Sequence[str]) -> None:
        self._head = head
        self._stream.write(_HIDE)
        lines = [*head_lines(head, self._paper), Line("Starting ...")]
        self._rewrite([self._coloured(line) for line in lines])

    def show(self, picture: Picture, turns: Sequence[Turn], new: Sequence[Turn]) -> None:
        self._follow_size()
        drawn = frame(picture, turns, self._head, self._paper)
        self._rewrite([self._coloured(line) for line in drawn])

    def end(self, lines: Sequence[str]) -> None:
        """What was shown stays, what is to be said comes below."""
        self._stream.write("\n".join(["", *lines, ""]) + _SHOW)
        self._stream.flush()

    def _follow_size(self) -> None:
        """In another size the old lines stand elsewhere: start over on an empty screen."""
        if (now := paper(self._stream)) != self._paper:
            self._paper, self._shown = now, []
            self._stream.write("\x1b[2J\x1b[H")

    def _rewrite(self, lines: list[str]) -> None:
        if lines == self._shown:
            return
        up = f"\x1b[{len(self._shown)}A\r" if self._shown else ""
        padded = [*self._shown, *[None] * len(lines)]
        parts = [
            "\n" if line == old else f"{line}{_ERASE_LINE}\n"
            for line, old in zip(lines, padded, strict=False)
        ]
        self._stream.write(up + "".join(parts) + _ERASE_REST)
        self._stream.flush()
        self._shown = lines

    def _coloured(self, line: Line) -> str:
        colour = _COLOURS.get(line.style) if self._colours else None
        return f"\x1b[{colour}m{line.text}\x1b[0m" if colour else line.text


def paper(stream: TextIO) -> Paper:
    """What `stream` can show; a stream that is no terminal has 80 columns unless $COLUMNS says otherwise."""
    size = shutil.get_terminal_size((80, 24))
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    return Paper(max(size.columns, 20), max(size.lines, 10), blocks=encoding.startswith("utf"))


def view_for(stream: TextIO) -> View:
    """A screen where there is one."""
    usable = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Screen(stream) if usable else Lines(stream)
