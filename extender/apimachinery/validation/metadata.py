"""Validation of metadata: names, label keys and label values.

Rules and texts follow k8s.io/apimachinery: pkg/util/validation, pkg/api/validate/content, and
ValidateObjectMeta of pkg/api/validation.
"""

import re
from collections.abc import Callable
from typing import Any

from extender.apimachinery.errors import FieldError, FieldErrors, bad_value, required, too_long
from extender.apimachinery.kinds import EVENTS, NAMESPACES, Json, ResourceKind

NameRule = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_ENDS_RULE = "and must start and end with an alphanumeric character"
_LOWER_RULE = "must consist of lower case alphanumeric characters"
_KEY_CHARACTERS = f"consist of alphanumeric characters, '-', '_' or '.', {_ENDS_RULE}"
_KEY_RULE = f"must {_KEY_CHARACTERS}"
_MAX_LABEL, _MAX_SUBDOMAIN_LENGTH = 63, 253


def subdomain(name: str) -> list[str]:
    """Return the errors of a name that must be an RFC 1123 subdomain, like the names of most objects."""
    rule = f"a lowercase RFC 1123 subdomain {_LOWER_RULE}, '-' or '.', {_ENDS_RULE}"
    mismatch = _mismatch(name, _SUBDOMAIN, rule, "example.com")
    return [*_too_long(name, _MAX_SUBDOMAIN_LENGTH, "characters"), *mismatch]


def dns_label(name: str) -> list[str]:
    """Return the errors of a name that must be an RFC 1123 label, such as the name of a namespace."""
    messages = _too_long(name, _MAX_LABEL, "characters")
    if re.fullmatch(_LABEL, name):
        return messages
    if re.fullmatch(_SUBDOMAIN, name):
        return [*messages, "must not contain dots"]
    rule = f"a lowercase RFC 1123 label {_LOWER_RULE} or '-', {_ENDS_RULE}"
    return [*messages, *_mismatch(name, _LABEL, rule, "my-name", "123-abc")]


def path_segment(name: str) -> list[str]:
    """Return the errors of a name that must be a path segment, such as the name of an Event."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def label_key(key: str) -> list[str]:
    """Return the errors of a label key: a name, optionally with a subdomain and a slash in front of it.

    Names of resources and gates have the same form.
    """
    prefix, slash, name = key.rpartition("/")
    errors = _mismatch(name, _KEY, _KEY_RULE, "MyName", "my.name", "123-abc")
    if "/" in prefix:
        errors = _mismatch("", _KEY, f"a valid label key {_KEY_RULE}", "MyName", "my.name", "123-abc")
        return [f"{errors[0]} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    messages = [f"prefix part {message}" for message in subdomain(prefix)] if prefix else []
    if slash and not prefix:
        messages.append("prefix part must be non-empty")
    if not name:
        messages.append("name part must be non-empty")
    return [*messages, *(f"name part {message}" for message in [*_too_long(name, _MAX_LABEL), *errors])]


def label_value(value: str) -> list[str]:
    rule = f"a valid label must be an empty string or {_KEY_CHARACTERS}"
    messages = _mismatch(value, _VALUE, rule, "MyValue", "my_value", "12345")
    return [*_too_long(value, _MAX_LABEL), *messages]


def _too_long(text: str, longest: int, unit: str = "bytes") -> list[str]:
    return [f"must be no more than {longest} {unit}"] if len(text.encode()) > longest else []


def _mismatch(text: str, pattern: str, rule: str, *examples: str) -> list[str]:
    if re.fullmatch(pattern, text):
        return []
    examples_text = " or ".join(f"'{example}', " for example in examples)
    return [f"{rule} (e.g. {examples_text}regex used for validation is '{pattern}')"]


_MAX_ANNOTATION_BYTES = 256 * 1024


def metadata_errors(kind: ResourceKind, metadata: Json) -> FieldErrors:
    """Yield the errors of an object's metadata."""
    rule: NameRule = {NAMESPACES: dns_label, EVENTS: path_segment}.get(kind, subdomain)
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    if prefix:  # a name may not end with a dash, but its prefix may
        start_of_name = f"{prefix[:-2]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix
        yield from _value_errors("metadata.generateName", prefix, rule(start_of_name))
    if name:
        yield from _value_errors("metadata.name", name, rule(name))
    else:
        yield required("metadata.name", "name or generateName is required")
    yield from labels_errors("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _value_errors("metadata.annotations", key, label_key(key.lower()))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        yield too_long("metadata.annotations", _MAX_ANNOTATION_BYTES)
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
    for finalizer in metadata.get("finalizers") or ():
        yield from _value_errors("metadata.finalizers", finalizer, label_key(finalizer))


def labels_errors(field: str, labels: Json | None) -> FieldErrors:
    """Yield the errors of labels, or of a selector in the form of labels."""
    for key, value in (labels or {}).items():
        yield from _value_errors(field, key, label_key(key))
        yield from _value_errors(field, value, label_value(value))


def _value_errors(field: str, value: Any, messages: list[str]) -> list[FieldError]:
    return [bad_value(field, value, message) for message in messages]
