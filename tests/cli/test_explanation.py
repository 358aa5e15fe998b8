"""Texts of `muster why`: each code of its tables once, as in data/explanation.txt. Others compare codes."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from extender.api.units import texts_by_name
from extender.cli.why import explanation
from extender.cli.why.explanation import COMMANDS, REMEDIES, SENTENCES, Offer, Statement
from extender.kube.access import Right

EXPECTED = texts_by_name((Path(__file__).parent / "data" / "explanation.txt").read_text())
WHY = Path(explanation.__file__).parent
COMPOSED = {  # codes that the diagnosis makes of two parts
    "Group": ("Starting", "Running", "Ended", "Unknown"),
    "Partly": ("Starting", "Running"),
    "Pod": ("Succeeded", "Failed"),
    "Queue": ("Closing", "Closed", "GuaranteeUnmet", "Valid", "FlavorNotFound"),
}
OWN = ("annotation", "meaning", "remedy")  # fields that a statement fills itself
TEMPLATES = [*SENTENCES.values(), *REMEDIES.values(), *COMMANDS.values()]
FIELDS = {
    **{
        name: f"<{name}>"
        for text in TEMPLATES
        for _, name, _, _ in Formatter().parse(text)
        if name and name not in OWN
    },
    "reason": "Held",
    "share": Statement("Share", used="50%"),
}


def texts_by_code() -> Iterator[tuple[str, str]]:
    """Yield each code of a table with its text."""
    yield from ((code, Statement(code, **FIELDS).text) for code in SENTENCES)
    yield from ((f"{code}!", Statement(code, **FIELDS).remedy) for code in REMEDIES)
    for code in COMMANDS:
        command = Offer(code, right=Right("get", "", "pods"), allowed=True, **FIELDS).shown()
        yield f"{code}$", f"{command.purpose} => {command.line}"


SHOWN = dict(texts_by_code())


@pytest.mark.parametrize("code", SHOWN)
def test_the_text_of_a_code(code: str) -> None:
    assert SHOWN[code] == EXPECTED[code]


def test_no_text_is_of_another_code() -> None:
    assert SHOWN.keys() == EXPECTED.keys()


def test_each_code_is_one_of_the_diagnosis() -> None:
    written = {
        node.value
        for path in WHY.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    composed = {f"{first}{last}" for first, lasts in COMPOSED.items() for last in lasts}
    known = {*SENTENCES, *REMEDIES, *COMMANDS}
    assert composed <= known
    assert known - composed <= written
