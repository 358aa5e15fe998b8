"""What is wrong with the fields of a document, each fault with its line and what is allowed there."""

from collections.abc import Iterator
from typing import Any

import yaml

from extender.sim.files.forms import OTHERS, Form, Leaf, Needed
from extender.sim.files.reading import Document, where


def faults_of(document: Document, form: Form) -> Iterator[str]:
    yield from _faults(document.file, document.node, document.object, form, "")


def nameless(document: Document) -> Iterator[str]:
    meta = document.object.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        yield f"{document.where()}: metadata.name: missing; every object has one"


def _faults(file: str, node: yaml.Node, value: Any, form: Form, at: str) -> Iterator[str]:
    """What is wrong with a value and with all in it. Nulls count as absent."""
    if value is None:
        return
    if isinstance(form, Needed):
        yield from _faults(file, node, value, form.form, at)
    elif isinstance(form, Leaf):
        if not form.test(value):
            yield f"{where(file, node)}: {at}: got {_short(value)}; allowed is {form.allowed}"
    elif isinstance(form, list):
        yield from _faults_of_list(file, node, value, form[0], at)
    else:
        yield from _faults_of_object(file, node, value, form, at)


def _faults_of_list(file: str, node: yaml.Node, value: Any, form: Form, at: str) -> Iterator[str]:
    if not isinstance(node, yaml.SequenceNode):
        yield f"{where(file, node)}: {at}: got {_short(value)}; allowed is a list"
        return
    for number, (item, part) in enumerate(zip(node.value, value, strict=True)):
        if part is None:
            yield f"{where(file, item)}: {at}[{number}]: empty; every item of a list has a value"
        yield from _faults(file, item, part, form, f"{at}[{number}]")


def _faults_of_object(
    file: str, node: yaml.Node, value: Any, form: dict[str, Form], at: str
) -> Iterator[str]:
    if not isinstance(node, yaml.MappingNode):
        yield f"{where(file, node)}: {at}: got {_short(value)}; allowed is an object"
        return
    for key, part in node.value:
        name = key.value
        inside, known = _below(at, name), form.get(name, form.get(OTHERS))
        if known is None:
            yield f"{where(file, key)}: {inside}: unknown field; allowed are {', '.join(sorted(form))}"
        else:
            yield from _faults(file, part, value.get(name), known, inside)
    for name, part in form.items():
        if isinstance(part, Needed) and not value.get(name):
            yield f"{where(file, node)}: {_below(at, name)}: missing; {part.why}"


def _below(at: str, name: Any) -> str:
    return f"{at}.{name}" if at else str(name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
