"""The folders of the domain: arrows go down, and there are few of them."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

DOMAIN = Path(__file__).parent.parent / "extender" / "domain"
PREFIX = "extender.domain."
MOST_ARROWS = 20

Arrow = tuple[str, str]


def imports(module: Path) -> Iterator[str]:
    """All that a module imports, also under TYPE_CHECKING and inside functions."""
    for statement in ast.walk(ast.parse(module.read_text())):
        if isinstance(statement, ast.ImportFrom):
            yield statement.module or ""
        elif isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)


def modules() -> dict[str, Path]:
    """By name below the domain, as `scheduling.decide`."""
    return {
        ".".join(path.relative_to(DOMAIN).with_suffix("").parts): path
        for path in DOMAIN.rglob("*.py")
        if path.name != "__init__.py"
    }


def arrows() -> set[Arrow]:
    """Which module imports which."""
    known = modules()
    return {
        (module, target)
        for module, path in known.items()
        for target in (name.removeprefix(PREFIX) for name in imports(path) if name.startswith(PREFIX))
        if target in known
    }


def folders() -> set[Arrow]:
    pairs = {(module.split(".")[0], target.split(".")[0]) for module, target in arrows()}
    return {(folder, target) for folder, target in pairs if folder != target}


def order_of(pairs: set[Arrow]) -> list[str]:
    """Raises CycleError."""
    graph: dict[str, set[str]] = {}
    for one, other in pairs:
        graph.setdefault(one, set()).add(other)
    return list(TopologicalSorter(graph).static_order())


def test_folders_form_no_circle() -> None:
    assert order_of(folders())[-1] in {"explain", "ledger", "admission"}


def test_modules_form_no_circle() -> None:
    assert order_of(arrows())


def test_there_are_few_arrows_between_folders() -> None:
    pairs = sorted(folders())
    assert len(pairs) <= MOST_ARROWS, pairs
