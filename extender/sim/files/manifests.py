"""Reading what `-f` names: files and folders of objects, in the order in which they can be created.

All faults are told, each as FILE:LINE, with what is allowed there.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from extender.sim.apiserver.kinds import BY_NAME, KINDS, Json, ResourceKind
from extender.sim.files.fields import FIELDS, Form, Leaf

_SUFFIXES = (".yaml", ".yml", ".json")


class InvalidManifests(ValueError):
    """What has to be corrected, a line for each fault."""


class Manifest(NamedTuple):
    """One object, and where it stands."""

    kind: ResourceKind
    object: Json
    where: str


class _Loader(yaml.SafeLoader):
    """Times stay the texts that they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(paths: Sequence[Path]) -> list[Manifest]:
    """Namespaces and queues before what is in them. Raises InvalidManifests."""
    faults: list[str] = []
    found = [manifest for path in paths for file in _files(path) for manifest in _read(file, faults)]
    if faults:
        raise InvalidManifests("\n".join(faults))
    if not found:
        raise InvalidManifests(f"{', '.join(map(str, paths))}: no objects in there")
    return sorted(found, key=lambda manifest: KINDS.index(manifest.kind))


def _files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    return [path]


def _read(path: Path, faults: list[str]) -> Iterator[Manifest]:
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                yield from _objects(path, loader, node, faults)
    except (OSError, UnicodeDecodeError) as fault:
        faults.append(f"{path}: cannot be read: {getattr(fault, 'strerror', None) or fault}")
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        faults.append(f"{path}:{line}: not YAML: {fault.problem}")
    except yaml.YAMLError as fault:
        faults.append(f"{path}: not YAML: {fault}")


def _objects(path: Path, loader: _Loader, node: yaml.Node, faults: list[str]) -> Iterator[Manifest]:
    """The object of one document, or those of a List. Empty documents are usual."""
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return
    if not isinstance(node, yaml.MappingNode):
        faults.append(f"{_where(path, node)}: a document must be an object with apiVersion and kind")
        return
    document = loader.construct_document(node)
    if document.get("kind") == "List":
        items = _value(node, "items")
        for item in items.value if isinstance(items, yaml.SequenceNode) else []:
            yield from _objects(path, loader, item, faults)
        return
    before = len(faults)
    kind = _kind(path, node, document, faults)
    if kind is not None:
        faults.extend(_faults(path, node, document, FIELDS[kind], ""))
        faults.extend(_nameless(path, node, document))
    if kind is not None and len(faults) == before:
        yield Manifest(kind, document, _where(path, node))


def _kind(path: Path, node: yaml.MappingNode, document: Json, faults: list[str]) -> ResourceKind | None:
    named = (document.get("apiVersion"), document.get("kind"))
    kind = BY_NAME.get(named) if all(isinstance(each, str) for each in named) else None  # type: ignore[arg-type]
    if kind is None:
        at = _value(node, "kind") or node
        allowed = ", ".join(sorted(f"{each.name} ({each.api_version})" for each in KINDS))
        got = f"{named[1] or 'nothing'} ({named[0] or 'no apiVersion'})"
        faults.append(f"{_where(path, at)}: kind: got {got}; allowed are {allowed}")
    return kind


def _nameless(path: Path, node: yaml.MappingNode, document: Json) -> Iterator[str]:
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        yield f"{_where(path, node)}: metadata.name: missing; every object has one"


# ---- fields


def _faults(path: Path, node: yaml.Node, value: Any, form: Form, at: str) -> Iterator[str]:
    """What is wrong with a value and with all in it. Nulls count as absent."""
    if value is None:
        return
    if isinstance(form, Leaf):
        if not form.test(value):
            yield f"{_where(path, node)}: {at}: got {_short(value)}; allowed is {form.allowed}"
    elif isinstance(form, list):
        yield from _faults_of_list(path, node, value, form[0], at)
    else:
        yield from _faults_of_object(path, node, value, form, at)


def _faults_of_list(path: Path, node: yaml.Node, value: Any, form: Form, at: str) -> Iterator[str]:
    if not isinstance(node, yaml.SequenceNode):
        yield f"{_where(path, node)}: {at}: got {_short(value)}; allowed is a list"
        return
    for number, (item, part) in enumerate(zip(node.value, value, strict=True)):
        yield from _faults(path, item, part, form, f"{at}[{number}]")


def _faults_of_object(
    path: Path, node: yaml.Node, value: Any, form: dict[str, Form], at: str
) -> Iterator[str]:
    if not isinstance(node, yaml.MappingNode):
        yield f"{_where(path, node)}: {at}: got {_short(value)}; allowed is an object"
        return
    for key, part in node.value:
        name = key.value
        inside = f"{at}.{name}" if at else str(name)
        if name not in form:
            yield f"{_where(path, key)}: {inside}: unknown field; allowed are {', '.join(sorted(form))}"
        else:
            yield from _faults(path, part, value.get(name), form[name], inside)


def _value(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((part for key, part in node.value if key.value == name), None)


def _where(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
