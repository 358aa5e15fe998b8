"""What there is to draw on, and text that fits it."""

import shutil
import textwrap
from typing import NamedTuple, TextIO

from extender.terminal.columns import bar, shortened, shows_unicode

_NARROWEST = 40
_WIDE = 100  # columns, from which on reasons are in the table of gangs


class Canvas(NamedTuple):
    width: int = 80
    height: int = 24
    unicode: bool = True  # whether it has more than ASCII

    @property
    def roomy(self) -> bool:
        """Whether numbers get an explanation."""
        return self.width >= 60

    @property
    def wide(self) -> bool:
        return self.width >= _WIDE

    def bar_of(self, part: float, length: int) -> str:
        return "".join(bar(part, length, self.unicode))

    def shortened(self, name: str, width: int) -> str:
        return shortened(name, width, self.unicode)

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        """Lines that fit, except those of a single word, as a path is."""
        return textwrap.wrap(
            text,
            max(self.width, _NARROWEST),
            break_on_hyphens=False,
            break_long_words=False,
            initial_indent=indent,
            subsequent_indent=indent,
        )


def canvas_of(stream: TextIO) -> Canvas:
    """What `stream` can show; a stream that is no terminal has 80 columns unless $COLUMNS says otherwise."""
    size = shutil.get_terminal_size((80, 24))
    return Canvas(max(size.columns, 20), max(size.lines, 10), shows_unicode(stream))
