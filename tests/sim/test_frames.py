"""Frames of `muster run`, letter by letter.

After a change run `python -m tests.sim.drawings`, and look.
"""

import re

from tests.rows import each_of
from tests.sim.drawings import DRAWINGS, FOLDER, WIDTHS, Drawing, drawn

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@each_of(*DRAWINGS)
def test_each_frame_is_drawn_as_stored(drawing: Drawing) -> None:
    assert drawn(drawing) == drawing.path.read_text(encoding="utf-8")


def test_all_stored_frames_have_a_drawing() -> None:
    assert {*FOLDER.iterdir()} == {drawing.path for drawing in DRAWINGS}


@each_of(*DRAWINGS)
def test_stored_frames_fit_their_width(drawing: Drawing) -> None:
    lines = [ESCAPES.sub("", line) for line in drawing.path.read_text(encoding="utf-8").splitlines()]
    assert max(map(len, lines)) <= drawing.width
    assert drawing.form == "piped" or len(lines) < WIDTHS[drawing.width]


def test_colours_are_all_that_they_add() -> None:
    for drawing in DRAWINGS:
        if drawing.form == "coloured":
            plain = drawing._replace(form="terminal").path.read_text(encoding="utf-8")
            coloured = drawing.path.read_text(encoding="utf-8")
            assert ESCAPES.search(coloured)
            assert ESCAPES.sub("", coloured) == ESCAPES.sub("", plain)
