"""What is imported: arrows go down, and there are few of them. `make shape` prints the figures."""

from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tools.shape import (
    DEEPEST,
    MOST_ARROWS,
    MOST_FILES,
    Arrow,
    arrows,
    folder_arrows,
    modules,
    only_siblings,
    reach_of_decide,
)


@pytest.fixture(scope="module")
def pairs() -> set[Arrow]:
    return arrows(modules())


def order_of(pairs: Iterable[Arrow]) -> list[str]:
    """Those that import nothing first. Raises CycleError."""
    graph: dict[str, set[str]] = {}
    for one, other in pairs:
        graph.setdefault(one, set()).add(other)
    return list(TopologicalSorter(graph).static_order())


def test_modules_form_no_circle(pairs: set[Arrow]) -> None:
    assert order_of(pairs)


def test_folders_of_the_domain_form_no_circle(pairs: set[Arrow]) -> None:
    assert order_of(folder_arrows(pairs))


def test_there_are_few_arrows_between_folders_of_the_domain(pairs: set[Arrow]) -> None:
    found = sorted(folder_arrows(pairs))
    assert len(found) <= MOST_ARROWS, found


def test_imports_in_functions_and_of_modules_by_name_are_arrows(tmp_path: Path) -> None:
    write(tmp_path, "extender/domain/model/pods.py", "")
    write(tmp_path, "extender/domain/queues/tree.py", "def f():\n  from extender.domain.model import pods\n")
    write(tmp_path, "extender/domain/queues/shares.py", "import extender.domain.queues.tree\n")
    known = modules(tmp_path)
    found = arrows(known)
    assert found == {
        ("extender.domain.queues.tree", "extender.domain.model.pods"),
        ("extender.domain.queues.shares", "extender.domain.queues.tree"),
    }
    assert folder_arrows(found) == {("queues", "model")}
    assert only_siblings(found, known) == ["extender.domain.queues.tree"]


def test_a_decision_about_one_gang_stays_in_few_files() -> None:
    reach = reach_of_decide()
    assert 1 < reach.files <= MOST_FILES
    assert 1 < reach.depth <= DEEPEST


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
