"""Figures of the language in code and pages, with their goals.

    python -m tools.words [--list FIGURE]

The rules are those of docs/contributing/style.md. `--list` prints the places that a figure counts.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CODE, PAGES = ("extender", "tools"), ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")

# Openings of a sentence without its noun, such as "What waits: ..." or "Of each queue the ...".
_NO_NOUN = "what|who|whom|whose|whoever|whatever|that|those|of|by|with what|anew|alike"
_OPENS_WITHOUT_NOUN = re.compile(rf"(?:{_NO_NOUN})\b(?!.*\?$)", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(?:what|who|whom|whose|whoever|whatever|which|that)\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")
# Words of the glossary's left column, and literary forms, in the text and the names of tests.
_LITERARY = re.compile(
    r"\b(?:[Nn]obody|[Ee]verybody|[Ww]hoever|anew|alike|told|[Rr]oom|taken back|let go|moments?|of its own)\b"
)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef  # nodes with docstrings
_DEFINED = re.compile(r"(?:async )?(?:def|class) (\w+)")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

# Words of the glossary's left column, as parts of identifiers.
_PRIVATE_TEXT = """
round rounds judge judged judges judging room rooms taking takings kept lent sleep sleeps sleeper sleepers
asleep awake wake woken stir stirred bucket buckets turned touched unit units maker makers stood moment
moments note noted notes marks marked dear told anew alike beside nobody everybody whoever
"""
PRIVATE_WORDS = frozenset(_PRIVATE_TEXT.split())
# Identifiers that keep such a word, each with its reason.
ALLOWED_WORDS = {
    "round": "builtin of Python",
    "sleep": "time.sleep",
    "STOOD_WHOLE": "public: condition StoodWhole",
    "STOOD_WHOLE_NOTE": "public: annotation stood-whole",
    "stood_whole": "public: condition StoodWhole",
    "NO_ROOM": "public: reason NoRoom",
    "notes": "public: field of -o json",
    "note": "public: field of Events and reports",
    "lent": "public: field of -o json",
    "lent_until": "public: field of -o json",
    "waiting_for_room": "public: setting",
    "TokenBucket": "term of rate limits",
    "buckets": "argument of prometheus_client",
    "EvictionUnit": "own term: pods that are evicted together",
    "eviction_unit": "own term",
    "eviction_units": "own term",
    "_eviction_units": "own term",
    "eviction_units_of": "own term",
    "eviction_unit_of": "own term",
    "_eviction_unit_of": "own term",
    "EvictionUnitsOfRow": "own term",
    "in_units": "units of quantities",
    "_UNITS": "units of time and memory",
    "units": "units of quantities",
    "MarkedYAMLError": "class of PyYAML",
}


class Place(NamedTuple):
    """Place that a figure counts. `where` is `path:line`, `text` is the text at this place."""

    where: str
    text: str


class Figure(NamedTuple):
    """Figure with its goal, which is the maximum of the figure."""

    name: str
    goal: float
    places: list[Place]
    total: int  # number of all places; 0 means that the figure is a number and not a share

    @property
    def value(self) -> float:
        return 100.0 * len(self.places) / self.total if self.total else float(len(self.places))

    @property
    def is_met(self) -> bool:
        return self.value <= self.goal


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def _sources(folders: Sequence[str]) -> Iterator[tuple[Path, list[ast.AST]]]:
    """Yield the path of each source file below the folders, with the nodes of its syntax tree."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), _nodes(path)


def _docstrings(folders: Sequence[str]) -> Iterator[Place]:
    """Yield the docstrings of modules, classes and functions."""
    for path, nodes in _sources(folders):
        for node in nodes:
            text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
            if text:
                yield Place(f"{path}:{getattr(node, 'lineno', 1)}", text)


def _pages() -> Iterator[Path]:
    for name in PAGES:
        path = ROOT / name
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def _sentences() -> Iterator[Place]:
    """Yield the sentences of the pages, without code, tables, headings and links' targets."""
    for path in _pages():
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for number, paragraph in enumerate(re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text), 1):
            if paragraph.lstrip().startswith(("#", "|", "<", "    ")):
                continue
            plain = re.sub(r"\]\([^)]*\)", "]", paragraph)
            plain = re.sub(r"[`*_\[\]]", "", " ".join(plain.split()))
            plain = re.sub(r"^(?:[-*>]|\d+\.) ", "", plain)
            for sentence in _SENTENCE.split(plain):
                if len(_WORD.findall(sentence)) > 2:
                    yield Place(f"{path.relative_to(ROOT)} paragraph {number}", sentence)


def _identifiers(folders: Sequence[str]) -> Iterator[Place]:
    """Yield the names that the code defines or uses."""
    for path, nodes in _sources(folders):
        for node in nodes:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Name):
                names = [node.id]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.arg | ast.keyword) and node.arg:
                names = [node.arg]
            for name in names:
                yield Place(f"{path}:{getattr(node, 'lineno', 0)}", name)


def _test_lines() -> Iterator[Place]:
    """Yield the lines of the tests. Lines are used because parsing all tests would take seconds."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield Place(f"{path.relative_to(ROOT)}:{number}", line.strip())


def _figures_of_tests() -> list[Figure]:
    """Return the figures of the tests, in which parts of names count as words.

    Goals above 0 allow for values of the API and names of users in the tests.
    """
    lines = list(_test_lines())
    literary = [line for line in lines if _LITERARY.search(line.text.replace("_", " "))]
    openings = [line for line in lines if line.text[:3] == '"""' and opens_without_noun(line.text[3:])]
    definitions = ((line, _DEFINED.match(line.text)) for line in lines)
    names = [line for line, match in definitions if match and is_private(match[1])]
    return [
        Figure("lines of tests with a literary word", 33, literary, 0),
        Figure("docstrings of tests that open without their noun", 1, openings, 0),
        Figure("names that tests define with a word of the glossary", 33, names, 0),
    ]


def opens_without_noun(sentence: str) -> bool:
    """Return whether a sentence begins without its noun, for example with `What`. Questions return False."""
    return _OPENS_WITHOUT_NOUN.match(sentence) is not None


def is_private(name: str) -> bool:
    """Return whether an identifier has a word that the glossary replaces."""
    if name in ALLOWED_WORDS:
        return False
    return not PRIVATE_WORDS.isdisjoint(part.lower() for part in _PART.findall(name))


def figures() -> list[Figure]:
    docstrings = list(_docstrings(CODE))
    sentences = list(_sentences())
    relatives = [Place(place.where, word) for place in sentences for word in _RELATIVE.findall(place.text)]
    words = sum(len(_WORD.findall(place.text)) for place in sentences)
    page_words = [Place(path.name, word) for path in _pages() for word in path.read_text().split()]
    without_noun = [place for place in docstrings if opens_without_noun(place.text)]
    openings = [place for place in sentences if opens_without_noun(place.text)]
    private = [place for place in _identifiers(CODE) if is_private(place.text)]
    return [
        Figure("docstrings that open without their noun, %", 0.5, without_noun, len(docstrings)),
        Figure("sentences of pages that open without their noun, %", 0.5, openings, len(sentences)),
        Figure("relative pronouns per 100 words of pages", 1.3, relatives, words),
        Figure("identifiers with a word that the glossary replaces", 50, private, 0),
        *_figures_of_tests(),
        Figure("words of pages, with code and tables", 34_000, page_words, 0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list", metavar="FIGURE", help="print the places of the figures whose name has this"
    )
    requested = parser.parse_args().list
    out: Callable[[str], object] = sys.stdout.write
    for figure in figures():
        if requested and requested in figure.name:
            for place in figure.places:
                out(f"{place.where}: {place.text.partition(chr(10))[0]}\n")
        state = "" if figure.is_met else "   missed"
        out(f"{figure.name:52} {figure.value:8.1f}   <= {figure.goal:g}{state}\n")


if __name__ == "__main__":
    main()
