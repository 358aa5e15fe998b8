"""Commands and files in the code fences of README and docs/.

`sh` fences have commands. `console` fences have commands after `$ `, each followed by its output, in which a
line `…` stands for omitted lines. A `yaml` fence whose first line is a comment with a path shows that file.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_OPENS = re.compile(r"""['"`({[<|&]|\b(?:if|for|while|until|case|select|function)\b""")  # of bash


class Command(NamedTuple):
    """Command of a page. `printed`: the output on the page; None if it is not shown."""

    page: str
    text: str
    printed: str | None = None

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"


class File(NamedTuple):
    path: str
    text: str


def commands(page: Path) -> Iterator[Command]:
    return (step for step in steps(page) if isinstance(step, Command))


def steps(page: Path) -> Iterator[Command | File]:
    """Yield the commands and files of a page, in its order."""
    name = str(page.relative_to(ROOT))
    for language, text in fences(page):
        path = re.match(r"# ([\w./-]+\.ya?ml)\n", text)
        if language == "yaml" and path:
            yield File(path[1], text)
        elif language == "sh":
            yield from (Command(name, command) for command in _complete_commands(text))
        elif language == "console":
            for transcript in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                typed, _, printed = transcript.partition("\n")
                yield Command(name, typed, printed)


def fences(page: Path) -> Iterator[tuple[str, str]]:
    matches = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for indent, language, text in matches:
        yield language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def _complete_commands(text: str) -> Iterator[str]:
    """Yield the commands of a text without comments. A command may have several lines."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines or (line.strip() and not line.startswith("#")):
            lines.append(line)
        if lines and _is_complete("\n".join(lines)):
            yield "\n".join(lines)
            lines = []
    assert not lines, f"a command that does not end: {lines}"


def _is_complete(text: str) -> bool:
    """Return whether a text is a complete command."""
    return not text.endswith("\\") and (_OPENS.search(text) is None or _is_parsable(text))


@cache
def _is_parsable(text: str) -> bool:
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).returncode == 0
