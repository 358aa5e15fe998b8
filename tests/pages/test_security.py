"""Each claim of SECURITY.md names the tests that show it, and these are there."""

import re

from tests.rows import each_of
from tests.test_docs import ROOT, rows

DEFINED_OBJECTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


@each_of("a tenant can", "a tenant cannot", "credential", "port")
def test_each_claim_names_its_tests(first: str) -> None:
    found = rows("SECURITY.md", first)
    assert found
    for claim, *_, tests in found:
        assert re.fullmatch(r"(`test_\w+` ?)+", tests), f"{claim}: no tests"


def test_the_tests_that_are_named_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert named - DEFINED_OBJECTS == set()
