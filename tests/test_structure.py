"""Imports and names of types in extender/.

Arrows go down, there are few of them, and the architecture page lists them; a public name of a type is
defined once. `make shape` prints the figures.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.test_docs import ROOT, code, rows
from tools.shape import (
    Arrow,
    Module,
    arrows,
    figures,
    folder_arrows,
    modules,
    only_siblings,
    reach_of_decide,
)


@pytest.fixture(scope="module")
def project_modules() -> dict[str, Module]:
    return modules()


@pytest.fixture(scope="module")
def pairs(project_modules: dict[str, Module]) -> set[Arrow]:
    return arrows(project_modules)


def order_of(pairs: Iterable[Arrow]) -> list[str]:
    """Return the modules without imports first.

    Raises:
        CycleError: the imports form a cycle.
    """
    graph: dict[str, set[str]] = {}
    for one, other in pairs:
        graph.setdefault(one, set()).add(other)
    return list(TopologicalSorter(graph).static_order())


def test_modules_form_no_circle(pairs: set[Arrow]) -> None:
    assert order_of(pairs)


def test_folders_of_the_domain_form_no_circle(pairs: set[Arrow]) -> None:
    assert order_of(folder_arrows(pairs))


def test_packages_of_the_domain_are_those_of_the_architecture(pairs: set[Arrow]) -> None:
    """Check that each imports the packages of its row."""
    table = {
        code(name)[0]: re.findall(r"\w+", imports)
        for name, _, imports in rows("docs/explanation/architecture.md", "package")
    }
    assert table.keys() == {path.parent.name for path in (ROOT / "extender" / "domain").glob("*/__init__.py")}
    imported = {(package, other) for package, others in table.items() for other in others}
    assert imported == folder_arrows(pairs)


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


def test_the_shape_meets_its_goals(project_modules: dict[str, Module]) -> None:
    reach = reach_of_decide()
    assert min(reach.files, reach.depth) > 1, "nothing was watched"
    assert not [each for each in figures(project_modules, reach) if not each.is_met]


def types_in(tree: ast.AST) -> Iterator[str]:
    """Yield classes, and explicit type aliases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("TypeAlias"):
            yield ast.unparse(node.target)


def test_no_public_name_of_a_type_is_defined_twice(project_modules: dict[str, Module]) -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in project_modules.values():
        for name in types_in(module.tree):
            if not name.startswith("_"):
                found[name].append(module.name)
    doubles = {name: names for name, names in found.items() if len(names) > 1}
    assert not doubles, "\n".join(f"{name}: {', '.join(names)}" for name, names in doubles.items())


def test_which_names_are_looked_at() -> None:
    text = "class A:\n    class B: ...\nC: TypeAlias = int\nd = 1"
    assert set(types_in(ast.parse(text))) == {"A", "B", "C"}


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
