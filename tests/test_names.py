"""A public name of a type has one meaning: it is defined once in the whole of extender/."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "extender"


def types_in(source: str) -> Iterator[str]:
    """Classes, and type aliases that say that they are one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("TypeAlias"):
            yield ast.unparse(node.target)


def test_no_public_name_of_a_type_is_defined_twice() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in types_in(path.read_text(encoding="utf-8")):
            if not name.startswith("_"):
                found[name].append(str(path.relative_to(SOURCE)))
    doubles = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert not doubles, "\n".join(f"{name}: {', '.join(paths)}" for name, paths in doubles.items())


def test_which_names_are_looked_at() -> None:
    assert set(types_in("class A:\n    class B: ...\nC: TypeAlias = int\nd = 1")) == {"A", "B", "C"}
