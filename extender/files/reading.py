"""Reader of YAML and JSON documents in files, folders and standard input, in any usual encoding."""

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from extender.apimachinery.objects import ObjectLoader

STANDARD_INPUT = Path("-")
_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_NODES = 1_000_000  # most YAML nodes of an object
_NULL = "tag:yaml.org,2002:null"
_ADVICE = {
    "'\\t'": "; a tab cannot stand there: use spaces",
    "escape": "; in double quotes a backslash begins an escape: use single quotes",
}


class Document(NamedTuple):
    """Document in a file. It is a mapping."""

    file: str  # path of the file, as the user gave it
    node: yaml.MappingNode
    object: dict[str, Any]

    def where(self, node: yaml.Node | None = None) -> str:
        """Return FILE:LINE of a node, by default of the document."""
        return where(self.file, node or self.node)


def path_text(path: Path) -> str:
    return "stdin" if path == STANDARD_INPUT else str(path)


def where(file: str, node: yaml.Node) -> str:
    """Return FILE:LINE of a node."""
    return f"{file}:{node.start_mark.line + 1}"


def value_of(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    """Return the node of a field's value; None if the field is missing."""
    return next((part for key, part in node.value if key.value == name), None)


def documents(path: Path, faults: list[str]) -> Iterator[Document]:
    """Yield the documents of a file, or of all files in a folder."""
    try:
        files = [path]
        if path.is_dir():  # folders inside the folder are not read
            inside = (file for file in path.iterdir() if not file.is_dir())
            files = sorted(file for file in inside if file.suffix.lower() in _SUFFIXES)
    except OSError as fault:
        faults.append(f"{path_text(path)}: cannot be read: {fault.strerror}")
        return
    if not files:
        faults.append(f"{path}: no files in there that end in {', '.join(_SUFFIXES)}")
    for file in files:
        yield from _read(file, faults)


def _read(path: Path, faults: list[str]) -> Iterator[Document]:
    """Yield the documents of a file, and add its faults to `faults`."""
    file = path_text(path)
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
        is_utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # mark of UTF-16 files, as on Windows
        text = data.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except OSError as fault:
        hint = "" if "\\" not in str(path) or path.exists() else "; paths are written with / here"
        faults.append(f"{file}: cannot be read: {fault.strerror or fault}{hint}")
        return
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        faults.append(f"{file}:{line}: cannot be read: not UTF-8")
        return
    try:
        is_json = path.suffix == ".json" or text.lstrip().startswith("{")
        loader = ObjectLoader(text.replace("\t", " ") if is_json else text)  # only JSON allows these tabs
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield from _documents_in(file, loader, node, faults)
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        advice = next((advice for sign, advice in _ADVICE.items() if sign in str(fault.problem)), "")
        if "{{" in text:
            advice = "; it is a template of a Helm chart: use the output of helm template"
        faults.append(f"{file}:{line}: not YAML: {fault.problem}{advice}")
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        faults.append(f"{file}:{line}: not YAML: it has a character that is not text")
    except (yaml.YAMLError, ValueError) as fault:
        faults.append(f"{file}: not YAML: {fault}")
    except RecursionError:
        faults.append(f"{file}: not YAML: it is nested too deep, or contains itself")


def _documents_in(file: str, loader: ObjectLoader, node: yaml.Node, faults: list[str]) -> Iterable[Document]:
    """Yield a document, or the items of a list of objects. An empty document is left out."""
    if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
        return
    if not isinstance(node, yaml.MappingNode):
        faults.append(f"{where(file, node)}: a document must be an object with apiVersion and kind")
        return
    items, kind = value_of(node, "items"), value_of(node, "kind")
    is_list = isinstance(kind, yaml.ScalarNode) and kind.value.endswith("List")  # also kinds such as PodList
    if isinstance(items, yaml.SequenceNode) and is_list:
        for item in items.value:
            yield from _documents_in(file, loader, item, faults)
        return
    if _size(node, {}) > _MAX_NODES:
        message = f"more than {_MAX_NODES} values, once its aliases are written out"
        faults.append(f"{where(file, node)}: {message}")
        return
    duplicates = _duplicate_keys(node, set())
    faults.extend(f"{where(file, key)}: {key.value} stands twice in one object" for key in duplicates)
    yield Document(file, node, loader.construct_document(node))


def _duplicate_keys(node: yaml.Node, visited: set[int]) -> Iterator[yaml.ScalarNode]:
    """Yield duplicate keys, of which YAML silently uses the last. A node with aliases is visited once."""
    if isinstance(node, yaml.ScalarNode) or id(node) in visited:
        return
    visited.add(id(node))
    names: set[str] = set()
    for part in node.value:
        key, value = part if isinstance(part, tuple) else (None, part)
        if isinstance(key, yaml.ScalarNode):
            if key.value in names:
                yield key
            names.add(key.value)
        yield from _duplicate_keys(value, visited)


def _size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Return the number of values after all aliases are expanded.

    An alias that contains itself makes the number infinite.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]
