"""Reader of the generated.proto files of Kubernetes' Go modules: the fields of messages by number.

Two facts are in the Go types only:

- Which structs are embedded. A message has a field for the struct; JSON has the struct's fields instead.
- Which numbers are left out of JSON if they are 0. A message has these numbers even if they are 0.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e.build import DEFAULT, MODULES, release, sources

Json = dict[str, Any]
_API, _MACHINERY = "k8s.io/api", "k8s.io/apimachinery"
_FILES = (
    *((_API, f"{group}/v1") for group in ("apps", "authentication", "authorization", "autoscaling", "batch")),
    *((_API, f"{group}/v1") for group in ("coordination", "core", "policy", "scheduling")),
    (_API, "scheduling/v1alpha3"),  # Jobs name some of these
    *((_MACHINERY, f"pkg/{folder}") for folder in ("apis/meta/v1", "api/resource", "runtime", "util/intstr")),
)
_PACKAGE_RE = re.compile(r"^package (\S+);", re.MULTILINE)
_MESSAGE_RE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD_RE = re.compile(r"^  (?:(optional|repeated) |(map)<string, )([\w.]+)>? (\w+) = (\d+);", re.MULTILINE)
_STRUCT_RE = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_MEMBER_RE = re.compile(
    r'^\s+(?:\w+ +)?([*\[\]\w.]+)\s+`json:"([\w-]*)([^"]*)" protobuf:"\w+,(\d+)', re.MULTILINE
)
_ZEROS = ("bool", "int32", "int64")
_SCALARS = ("string", "bool", "int32", "int64", "bytes")


def messages(kinds: Iterable[str]) -> dict[str, Json]:
    """Return the messages of these kinds, and all messages that they refer to, by full name.

    A message maps the number of each field to the form, type and name of the field. The form is `optional`,
    `repeated`, `map`, `inline` (an embedded struct), or `nonzero` (JSON leaves the field out if its value is
    0 or false).
    """
    all_messages = _read()
    pending = [name for kind in kinds for name in all_messages if name.rpartition(".")[2] == kind]
    result: dict[str, Json] = {}
    while pending:
        name = pending.pop()
        if name not in result:
            result[name] = all_messages[name]
            pending += [kind for _, kind, _ in all_messages[name].values() if kind not in _SCALARS]
    return result


def _read() -> dict[str, Json]:
    all_messages: dict[str, Json] = {}
    for module, folder in _FILES:
        path = _folder_of(module) / folder
        text = (path / "generated.proto").read_text(encoding="utf-8")
        package = _PACKAGE_RE.findall(text)[0]
        forms = _forms(path)
        for name, body in _MESSAGE_RE.findall(text):
            all_messages[f"{package}.{name}"] = {
                number: [forms.get((name, number), form or map_form), _full(kind, package), field]
                for form, map_form, kind, field, number in _FIELD_RE.findall(body)
            }
    return all_messages


def _forms(folder: Path) -> dict[tuple[str, str], str]:
    """Return the forms that only the Go types show, by name of the struct and number of the field."""
    forms = dict[tuple[str, str], str]()
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("types.go"))
    for name, body in _STRUCT_RE.findall(text):
        for kind, field_name, options, number in _MEMBER_RE.findall(body):
            if not field_name:
                forms[name, number] = "inline"
            elif "omitempty" in options and kind in _ZEROS:
                forms[name, number] = "nonzero"
    return forms


def _folder_of(module: str) -> Path:
    """Return the folder of a module.

    A module of Kubernetes' staging area has the version of Kubernetes with the major number 0 instead of 1.
    """
    version = re.sub(r"^v1\.", "v0.", release(DEFAULT))
    return sources(f"{module}@{version}", MODULES / DEFAULT)


def _full(kind: str, package: str) -> str:
    if kind in _SCALARS:
        return kind
    return kind.removeprefix(".") if kind.startswith(".") else f"{package}.{kind}"
