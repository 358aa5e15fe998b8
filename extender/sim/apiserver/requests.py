"""Parser of requests: the object or collection of a path, options, and selectors."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from extender.apimachinery import errors
from extender.apimachinery.kinds import KIND_BY_PATH, Json, ResourceKind, subresources_of
from extender.apimachinery.managed_fields import UPDATE, Manager

Query = dict[str, str]
MAX_MANAGER_LENGTH = 128
APPLY_PATCH = "application/apply-patch+yaml"
_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


def check(method: str, media_type: str, query: Query) -> None:
    """Check the options of a write. `media_type` is the media type of its body.

    Raises:
        StatusError: 422 if an option is invalid for this write.
    """
    if method not in _KINDS:
        return
    faults, manager = list[errors.FieldError](), query.get("fieldManager", "")
    if method == "PATCH" and media_type == APPLY_PATCH and not manager:
        faults.append(errors.required("fieldManager", "is required for apply patch"))
    if method == "PATCH" and media_type != APPLY_PATCH and "force" in query:
        faults.append(errors.forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > MAX_MANAGER_LENGTH:
        faults.append(errors.too_long("fieldManager", MAX_MANAGER_LENGTH))
    if query.get("dryRun", "All") != "All":
        faults.append(errors.not_supported("dryRun", [query["dryRun"]], ("All",)))
    if query.get("fieldValidation", "") not in _VALIDATIONS:
        faults.append(errors.not_supported("fieldValidation", query["fieldValidation"], _VALIDATIONS))
    if faults:
        raise errors.invalid_object(_KINDS[method], "meta.k8s.io", "", faults)


# ---- selectors

Test = Callable[[Json], bool]

_SET_RE = re.compile(r"(?P<key>[^\s!=(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL_RE = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<operator>!=|==|=)\s*(?P<value>[^\s=(),]*)")
_PRESENCE_RE = re.compile(r"(?P<negated>!?)\s*(?P<key>[^\s!=(),]+)")
_FIELD_NAMES = (
    *("metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase"),
    *(f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid")),
    *("reason", "type"),
)


def selector_test(labels: str, fields: str) -> Test:
    """Return a function that tests whether an object matches the selectors.

    Raises:
        StatusError: 400 if a selector is invalid.
    """
    parts = re.split(r",(?![^(]*\))", labels)  # commas inside parentheses separate the values of a set
    requirements = filter(None, map(str.strip, parts))
    tests = [*map(_label_test, requirements), *map(_field_test, filter(None, fields.split(",")))]
    return lambda obj: all(test(obj) for test in tests)


def _label_test(text: str) -> Test:
    if match := _SET_RE.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
    elif match := _EQUAL_RE.fullmatch(text):
        values = {match["value"]}
    elif match := _PRESENCE_RE.fullmatch(text):
        name, is_present = match["key"], not match["negated"]
        return lambda obj: (name in (obj["metadata"].get("labels") or {})) is is_present
    else:
        raise errors.bad_request(f"unable to parse requirement: {text!r}")
    key, is_positive = match["key"], match["operator"] in ("in", "=", "==")
    return lambda obj: ((obj["metadata"].get("labels") or {}).get(key) in values) is is_positive


def _field_test(text: str) -> Test:
    match = _EQUAL_RE.fullmatch(text.strip())
    if match is None or match["key"] not in _FIELD_NAMES:
        raise errors.bad_request(f"field label not supported: {text!r}: must be {', '.join(_FIELD_NAMES)}")
    is_positive, value = match["operator"] != "!=", match["value"]
    part, _, field = match["key"].partition(".")
    if not field:
        return lambda obj: (obj.get(part, "") == value) is is_positive
    return lambda obj: (obj.get(part, {}).get(field, "") == value) is is_positive


def selector_text(obj: Json) -> str:
    """Return the selector of an object as text, such as `app=web,tier in (a,b)`."""
    selector = obj["spec"].get("selector") or {}
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append(texts.get(expression["operator"], str(key)))  # for Exists, only the key
    return ",".join(sorted(terms))


class RequestTarget(NamedTuple):
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Request(NamedTuple):
    method: str
    target: RequestTarget
    query: Query
    content_type: str
    body: Any
    user_agent: str = ""

    @property
    def media_type(self) -> str:
        """Return the media type of the body without its parameters."""
        return self.content_type.partition(";")[0].strip()

    @property
    def is_strict(self) -> bool:
        """Return whether unknown fields are refused."""
        return self.query.get("fieldValidation") == "Strict"

    def manager(self, operation: str = UPDATE) -> Manager:
        """Return the field manager that the request names, else its User-Agent up to the first slash."""
        name = self.query.get("fieldManager") or self.user_agent.partition("/")[0][:MAX_MANAGER_LENGTH]
        return Manager(name, operation, self.target.kind.api_version, self.target.subresource)


def target_of(path: str) -> RequestTarget:
    """Return the target of a path such as /api/v1/namespaces/team-a/pods/worker-0/binding.

    Raises:
        StatusError: 404 if there is no such path.
    """
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    root, rest = "/" + "/".join(parts[:length]), parts[length:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    kind = KIND_BY_PATH.get((root, rest[0])) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise errors.no_such_path()
    target = RequestTarget(kind, namespace, *rest[1:])
    if target.subresource and target.subresource not in subresources_of(kind):
        raise errors.no_such_path()
    return target
