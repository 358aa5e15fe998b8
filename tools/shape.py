"""Figures of the structure of the code, with their goals.

    python -m tools.shape [--arrows]

Sizes and imports are read from the source. The reach of decide() is measured while decide() runs for one
gang, in a process in which decide() has not run before.
"""

import argparse
import ast
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
CODE = "extender"
DOMAIN = f"{CODE}.domain"
# All other code is the server.
TOOLS = tuple(f"{CODE}.{name}" for name in ("cli", "sim", "files", "apimachinery", "terminal"))
SMALL_MODULE, LONG_FUNCTION = 40, 40  # limits of lines: a small module, a long function
MAX_ARROWS = 20  # between folders of the domain
MAX_FILES, MAX_DEPTH = 25, 11  # limits of the reach of decide() for a gang of three

Arrow = tuple[str, str]


@dataclass
class Module:
    """Module of the code. `name` has dots; the name of a package does not end in `__init__`."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the syntax tree. The result is cached, since walking the tree takes long."""
        return list(ast.walk(self.tree))

    @property
    def code_lines(self) -> int:
        """Return the number of lines outside docstrings."""
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        bodies = [node.body[0] for node in self.nodes if isinstance(node, documented) and node.body]
        texts = [first for first in bodies if isinstance(first, ast.Expr) and _is_text(first.value)]
        return self.lines - sum(_last(text) - text.lineno + 1 for text in texts)

    @property
    def import_lines(self) -> int:
        return sum(
            _last(node) - node.lineno + 1
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
        )

    @property
    def functions(self) -> list[int]:
        """Return the number of lines in the body of each function and method, docstring included."""
        return [
            _last(node) - node.body[0].lineno + 1
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def imports(self) -> Iterator[str]:
        """Yield the names of imported modules, and of objects in them, which may also be modules.

        Imports under TYPE_CHECKING and inside functions are included.
        """
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _last(node: ast.stmt) -> int:
    assert node.end_lineno is not None  # the parser always sets it
    return node.end_lineno


def modules(root: Path = ROOT) -> dict[str, Module]:
    """Return all modules below a folder, by name."""
    by_name: dict[str, Module] = {}
    for path in sorted((root / CODE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        by_name[name] = Module(name, path)
    return by_name


def arrows(modules_: Mapping[str, Module]) -> set[Arrow]:
    """Return the imports between these modules.

    Packages are left out, because an `__init__.py` only imports from the modules of its package.
    """
    inner = {name: module for name, module in modules_.items() if not module.is_package}
    return {
        (name, target)
        for name, module in inner.items()
        for target in module.imports()
        if target in inner and target != name
    }


def folder_arrows(pairs: set[Arrow]) -> set[Arrow]:
    """Return the imports between folders of the domain."""
    prefix = f"{DOMAIN}."
    folders = {
        (first.removeprefix(prefix).split(".")[0], second.removeprefix(prefix).split(".")[0])
        for first, second in pairs
        if first.startswith(prefix) and second.startswith(prefix)
    }
    return {(first, second) for first, second in folders if first != second}


def only_siblings(pairs: set[Arrow], modules_: Mapping[str, Module]) -> list[str]:
    """Return the modules that only one module imports, if both modules are in the same package."""
    importers = Counter(target for _, target in pairs)
    return sorted(
        target
        for name, target in pairs
        if importers[target] == 1 and modules_[name].package == modules_[target].package
    )


@dataclass(frozen=True)
class Reach:
    """Reach of a call: the number of files whose code the call executes, and the depth of the call stack."""

    files: int
    depth: int


def reach_of(work: Callable[[], Any]) -> Reach:
    inside = f"{ROOT / CODE}/"
    files: set[str] = set()
    is_inside: dict[CodeType, bool] = {}
    depth = deepest = 0

    def record(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, deepest
        is_own_code = is_inside.get(frame.f_code)
        if is_own_code is None:
            is_own_code = is_inside[frame.f_code] = frame.f_code.co_filename.startswith(inside)
        if not is_own_code:
            return
        if event == "call":
            files.add(frame.f_code.co_filename)
            depth += 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Reach(len(files), deepest)


def reach_of_decide() -> Reach:
    """Return the reach of the first decide() in this process, for a gang of three pods that fits."""
    from extender.domain.scheduling.decide import decide
    from tests.domain.world import World, gang, nodes

    snapshot = World(nodes("n0", "n1", "n2", cpu="4"), gang("a", 3, cpu="1")).ledger.snapshot()
    reach = reach_of(lambda: decide(snapshot))
    return Reach(reach.files, reach.depth - 1)  # without decide() itself


@dataclass(frozen=True)
class Figure:
    """Figure with its goal, `minimum` to `maximum`."""

    name: str
    value: float
    maximum: float
    minimum: float = 0.0
    form: str = ",.0f"

    @property
    def is_met(self) -> bool:
        return self.minimum <= self.value <= self.maximum

    @property
    def goal(self) -> str:
        maximum = format(self.maximum, self.form)
        return f"{self.minimum:{self.form}}-{maximum}" if self.minimum else f"<= {maximum}"


def figures(modules_: Mapping[str, Module], reach: Reach) -> Iterator[Figure]:
    """Yield each figure with its goal.

    The limits rise no more. A feature that needs more lines first makes others unnecessary.
    """
    plain_modules = [module for module in modules_.values() if not module.is_package]
    domain = {name for name in modules_ if name.startswith(f"{DOMAIN}.")}
    pairs = arrows(modules_)
    lines = [module.code_lines for module in plain_modules]
    lengths = sorted(length for module in modules_.values() for length in module.functions)
    total = sum(module.lines for module in modules_.values())
    code = {name: module.code_lines for name, module in modules_.items()}
    tool_lines = sum(lines for name, lines in code.items() if name.startswith(TOOLS))
    # Raised from 300 for DRA's devices, selectors and requests; topologies, their requests and domains;
    # composites of PodGroups.
    yield Figure("modules, without __init__", len(plain_modules), 308)
    yield Figure("  median lines, no docstrings", statistics.median(lines), 220, 130)
    yield Figure(f"  below {SMALL_MODULE} lines", _share(lines, SMALL_MODULE.__gt__), 0.08, form=".1%")
    # Raised from 100: composites of PodGroups.
    yield Figure("domain: modules", sum(not modules_[name].is_package for name in domain), 101)
    yield Figure("  folders", len({name.split(".")[2] for name in domain}), 8)
    yield Figure("  arrows between folders", len(folder_arrows(pairs)), MAX_ARROWS)
    yield Figure("functions: p90 lines", lengths[len(lengths) * 9 // 10], 30, 14)
    yield Figure(f"  over {LONG_FUNCTION} lines", _share(lengths, LONG_FUNCTION.__lt__), 0.03, form=".1%")
    yield Figure("modules with one importer, a sibling", len(only_siblings(pairs, modules_)), 40)
    yield Figure("decide(), one gang of 3, cold: files", reach.files, MAX_FILES)
    yield Figure("  depth", reach.depth, MAX_DEPTH)
    imports = sum(module.import_lines for module in modules_.values())
    yield Figure("import lines", imports / total, 0.07, form=".1%")
    # Raised from 48,950: topologies, HyperNodes, slices, rank order, pod sets, restarts; devices: claims of
    # starts, what requests select, and logical resources; sub-groups that start whole, with their minimum;
    # composites of PodGroups, with a minimum at each level, moved in portions.
    yield Figure("lines of the server, no docstrings", sum(code.values()) - tool_lines, 52_870)
    # Raised from 18,350: topologies in the commands, names of all forms, empty names; devices in files.
    yield Figure("  of the tools", tool_lines, 18_650)


def _share(lengths: Sequence[int], counts: Callable[[int], bool]) -> float:
    return sum(map(counts, lengths)) / len(lengths)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.shape", description="The shape of the code.")
    parser.add_argument("--arrows", action="store_true", help="list the arrows between the domain's folders")
    chosen = parser.parse_args()
    all_modules = modules()
    for figure in figures(all_modules, reach_of_decide()):
        value = format(figure.value, figure.form)
        missed = "" if figure.is_met else "   missed"
        sys.stdout.write(f"{figure.name:<38}{value:>8}   {figure.goal}{missed}\n")
    if chosen.arrows:
        sys.stdout.writelines(
            f"{first} -> {second}\n" for first, second in sorted(folder_arrows(arrows(all_modules)))
        )


if __name__ == "__main__":
    main()
