"""Where the cluster's state is shown: live on a terminal, as lines in a pipe, or not until the end."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from extender.sim.show.canvas import canvas_of
from extender.sim.show.frames import Moment, clock_line, drawn_head, frame, head_lines, transition_text
from extender.sim.show.transitions import ShownTransition


class View(Protocol):
    def begin(self, head: Sequence[str]) -> None: ...
    def show(self, moment: Moment, new: Sequence[ShownTransition]) -> None: ...
    def end(self, lines: Sequence[str]) -> None: ...


class NoView:
    """Shows nothing: for `-o json`."""

    def begin(self, head: Sequence[str]) -> None:
        pass

    def show(self, moment: Moment, new: Sequence[ShownTransition]) -> None:
        pass

    def end(self, lines: Sequence[str]) -> None:
        pass


class LogView:
    """A line for every transition, as it happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._canvas = canvas_of(stream)

    def begin(self, head: Sequence[str]) -> None:
        self._write(head_lines(head, self._canvas))

    def show(self, moment: Moment, new: Sequence[ShownTransition]) -> None:
        for transition in new:
            self._write(transition_text(transition, self._canvas))

    def end(self, lines: Sequence[str]) -> None:
        self._write(["", *lines])

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()


class LiveView:
    """One frame of a terminal, rewritten in place where it differs from the one before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._head: Sequence[str] = ()
        self._canvas = canvas_of(stream)
        self._shown: list[Text] = []
        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def begin(self, head: Sequence[str]) -> None:
        self._head = head
        self._live.start()
        self._draw([clock_line(0.0), *drawn_head(head, self._canvas), Text("Starting ...")])

    def show(self, moment: Moment, new: Sequence[ShownTransition]) -> None:
        self._follow_size()
        self._draw(frame(moment, self._head, self._canvas))

    def end(self, lines: Sequence[str]) -> None:
        """The last frame stays, `lines` come below it; the cursor is back however the run ends."""
        self._live.stop()
        self._stream.write("\n".join(["", *lines, ""]))
        self._stream.flush()

    def _follow_size(self) -> None:
        """In another size the old lines stand elsewhere: start over on an empty screen."""
        if (now := canvas_of(self._stream)) != self._canvas:
            self._canvas, self._shown = now, []
            self._console.clear()

    def _draw(self, lines: list[Text]) -> None:
        if lines != self._shown:
            self._shown = lines
            self._live.update(Group(*lines), refresh=True)


def is_live(stream: TextIO) -> bool:
    """Whether frames can be drawn on `stream`: a terminal that moves its cursor."""
    console = Console(file=stream)
    return console.is_terminal and not console.is_dumb_terminal


def view_for(stream: TextIO) -> View:
    """Live where that is possible."""
    return LiveView(stream) if is_live(stream) else LogView(stream)
