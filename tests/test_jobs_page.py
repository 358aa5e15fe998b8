"""The page about jobs names the kinds of the table, and its example of a further kind is one."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from extender.api.workloads.further_kinds import further_kinds
from extender.api.workloads.shape import Sign
from extender.api.workloads.table import WORKLOADS

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "jobs.md").read_text()
ROW = re.compile(
    r"\| (`\S+` \w+.*) \| (.*) \| (.*) \| (.*) \| (?:`(?:jobs/\w+|volcano-jobs)`|in each install) \|"
)


def kinds_of(cell: str) -> Iterator[tuple[str, str]]:
    """Yield API version and kind of each item: `` `v1` A, B; `v2` A`` has three."""
    for version, kinds in re.findall(r"`(\S+)` ([\w, ]+)", cell):
        yield from ((version, kind) for kind in kinds.split(", "))


KINDS = {kind: found for found in ROW.finditer(PAGE) for kind in kinds_of(found[1])}


def texts(signs: tuple[Sign, ...]) -> Iterator[str]:
    """Yield the texts that the page has to mention."""
    for sign in signs:
        if sign.condition:
            yield f"condition `{sign.condition}`"
        for values in sign.fields.values():
            yield from (f"`{value}`" for value in values)
    if not signs:
        yield "never"


def test_the_table_has_all_kinds_that_can_wait() -> None:
    assert KINDS.keys() == {key for key, row in WORKLOADS.items() if row.manageable}


def test_the_table_says_what_the_code_does() -> None:
    for key, found in KINDS.items():
        row = WORKLOADS[key]
        assert found[2] == (
            f"`{'.'.join(row.suspend)}`" if row.suspend else "Commands `AbortJob`, `ResumeJob`"
        )
        assert all(text in found[3] for text in texts(row.success))
        assert all(text in found[4] for text in texts(row.failure))


def test_the_example_of_a_further_kind_is_sound() -> None:
    (text,) = (each for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "jobKinds" in each)
    kinds, faults = further_kinds(yaml.load(text, Loader=yaml.BaseLoader)["jobKinds"], "jobKinds")
    assert not faults
    assert [kind.row.plural for kind in kinds] == ["trainingruns"]
