"""Rules of Kubernetes for the values of its own kinds: the published rules, and the table of rules.yaml.

Errors name the same field, list or object as a real API server. The text of common errors is the same, the
text of others is similar.
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from extender.api.units import rounded_up
from extender.api.workloads.shape import value_at as at_path
from extender.apimachinery import errors
from extender.apimachinery.errors import FieldErrors
from extender.apimachinery.field_schemas import KUBERNETES, FieldSchema
from extender.apimachinery.kinds import Json
from extender.apimachinery.validation.metadata import dns_label, label_key, labels_errors, subdomain
from extender.shipped import read

_CHECKED_ELSEWHERE = (
    *("ObjectMeta", "Taint", "ResourceRequirements", "NodeStatus"),
    "ScopedResourceSelectorRequirement",
)
_OPTIONAL_FIELDS = {  # optional fields that the schema calls required
    **dict.fromkeys(("DeploymentSpec", "StatefulSetSpec", "JobSpec"), "template"),
    "PodFailurePolicy": "rules",
}
_WHOLE_TYPES = ("DeploymentStrategy", "StatefulSetUpdateStrategy", "PodOS")  # errors name the whole object
_LIST_TYPES = ("EnvFromSource", "VolumeMount")  # errors name the whole list
_MIXED = ("EnvVarSource", "EnvFromSource", "PodFailurePolicyRule")  # errors name two set alternatives


@cache
def _table() -> Any:
    """Return the rules, keyed by type, then by field."""
    [table] = read([KUBERNETES.with_name("rules.yaml")])
    return table


Relations = Mapping[str, Callable[[Json, str], FieldErrors]]  # rules between fields, by type


def rule_errors(value: Any, schema: FieldSchema, at: str, relations: Relations) -> FieldErrors:
    """Yield the errors of an object, or of a list of objects, at a path.

    `relations` has rules between fields, by type, in addition to the rules of this module.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_errors(item, schema.items, f"{at}[{index}]", relations)
    if not isinstance(value, dict) or schema.type_name in _CHECKED_ELSEWHERE:
        return
    if schema.type_name == "PodTemplateSpec":
        value = {"spec": {}, **value}
    if relation := relations.get(schema.type_name) or _RELATIONS.get(schema.type_name):
        yield from relation(value, at)
    kinds = schema.published.get("x-kubernetes-group-version-kind") or [{"kind": ""}]
    rules = _table().get(schema.type_name or kinds[0]["kind"], {})
    yield from _missing_errors(value, rules, schema, at)
    if "" in rules:
        yield from _alternative_errors(value, rules[""]["one_of"], at, schema.type_name)
    for name, part in value.items():
        if part not in (None, "") and name != "status":
            path = _field_path(schema, at, name)
            yield from _field_errors(part, rules.get(name, {}), schema, at, name)
            yield from rule_errors(part, schema.field(name), path, relations)


def _missing_errors(value: Json, rules: dict[str, Json], schema: FieldSchema, at: str) -> FieldErrors:
    for name in schema.published.get("required", ()):
        if value.get(name) in (None, "", []) and name != _OPTIONAL_FIELDS.get(schema.type_name):
            yield errors.required(f"{at}.{name}".lstrip("."))
    for name, rule in rules.items():
        if "needed" in rule and not value.get(name):
            yield errors.required(f"{at}.{name}")


def _alternative_errors(value: Json, fields: list[str], at: str, type_name: str) -> FieldErrors:
    """Yield the errors of an object that must have exactly one of some fields."""
    present_fields = [name for name in fields if value.get(name) is not None]
    path = _list_at(at) if type_name in _LIST_TYPES else at
    if not present_fields and type_name != "Volume":  # no source means an empty folder
        yield errors.required(path, f"must specify one of: {', '.join(fields)}")
    for name in present_fields[1:]:
        message = "may not specify more than one of these"
        yield errors.forbidden_field(path if type_name in _MIXED else f"{at}.{name}", message)


def _field_errors(part: Any, rule: Json, schema: FieldSchema, at: str, name: str) -> FieldErrors:
    path = _field_path(schema, at, name)
    allowed_values = rule.get("enum") or schema.field(name).published.get("enum")
    if allowed_values and part not in allowed_values:
        yield errors.not_supported(at if schema.type_name in _WHOLE_TYPES else path, part, allowed_values)
    yield from _value_errors(part, rule, path)


def _field_path(schema: FieldSchema, at: str, name: str) -> str:
    is_of_list = schema.type_name in _LIST_TYPES and name not in ("name", "mountPath")
    return f"{_list_at(at) if is_of_list else at}.{name}".lstrip(".")


def _list_at(at: str) -> str:
    return re.sub(r"\[[0-9]+\]$", "", at)


def _value_errors(value: Any, rule: Json, path: str) -> FieldErrors:
    """Yield the errors of a value by one rule of the table."""
    if "minimum" in rule and value < rule["minimum"]:
        yield errors.bad_value(path, value, f"must be greater than or equal to {rule['minimum']}")
    if "between" in rule:
        minimum, maximum = rule["between"]
        if not minimum <= value <= maximum:
            yield errors.bad_value(path, value, f"must be between {minimum} and {maximum}, inclusive")
    if "format" in rule:
        yield from _FORMATS[rule["format"]](path, value)
    if "each" in rule:
        for index, item in enumerate(value):
            yield from _value_errors(item, rule["each"], f"{path}[{index}]")
    if "unique" in rule:
        names = [item.get(rule["unique"]) for item in value]
        for index, name in enumerate(names):
            if name and name in names[:index]:
                yield errors.duplicate(f"{path}[{index}].{rule['unique']}", name)


def _requirement_errors(value: Json, at: str) -> FieldErrors:
    """Yield the errors of a requirement in a label selector."""
    operator, values = value.get("operator"), value.get("values") or []
    if operator in ("In", "NotIn") and not values:
        yield errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("Exists", "DoesNotExist") and values:
        message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield errors.forbidden_field(f"{at}.values", message)
    if operator in ("Gt", "Lt") and len(values) != 1:
        message = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield errors.required(f"{at}.values", message)


def _variable_errors(value: Json, at: str) -> FieldErrors:
    if value.get("value") and value.get("valueFrom") is not None:
        yield errors.bad_value(f"{at}.valueFrom", "", "may not be specified when `value` is not empty")


def _seccomp_errors(value: Json, at: str) -> FieldErrors:
    if value.get("type") == "Localhost" and not value.get("localhostProfile"):
        yield errors.required(f"{at}.localhostProfile", "must be set when seccomp type is Localhost")


def _security_errors(value: Json, at: str) -> FieldErrors:
    added_capabilities = at_path(value, ("capabilities", "add")) or ()
    needs_escalation = value.get("privileged") or "CAP_SYS_ADMIN" in added_capabilities
    if needs_escalation and value.get("allowPrivilegeEscalation") is False:
        message = "cannot set `allowPrivilegeEscalation` to false and this one to true"
        yield errors.bad_value(at, value, message)


_RELATIONS: Relations = {
    "LabelSelectorRequirement": _requirement_errors,
    "NodeSelectorRequirement": _requirement_errors,
    "EnvVar": _variable_errors,
    "SeccompProfile": _seccomp_errors,
    "SecurityContext": _security_errors,
}

_Format = Callable[[str, Any], FieldErrors]


def _format_of(rule: Callable[[str], list[str]]) -> _Format:
    return lambda path, value: (errors.bad_value(path, value, message) for message in rule(value))


def _passes(test: Callable[[Any], object], message: str) -> _Format:
    """Return a rule from a `test` that raises ValueError, or returns a false value, for invalid input."""

    def check(path: str, value: Any) -> FieldErrors:
        try:
            is_valid = test(value)
        except ValueError:
            is_valid = False
        if not is_valid:
            yield errors.bad_value(path, value, message)

    return check


def _matches(pattern: str, message: str) -> _Format:
    compiled_pattern = re.compile(pattern)
    return _passes(lambda value: compiled_pattern.fullmatch(str(value)), message)


_PORT_NAME = r"(?!.*--)(?!\d+$)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?"
_SYSCTL_PART = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_FIELDS = (
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)(\['[^']+'\])?|spec\.(nodeName"
    r"|serviceAccountName|hostname)|status\.(hostIPs?|podIPs?)"
)
_TIME = r"(\d+|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat)"
_TIME_RANGE = rf"(\*|\?|{_TIME}(-{_TIME})?)(/\d+)?"
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))  # minimum and maximum of each field of a schedule


def _is_port(value: Any) -> object:
    return 1 <= value <= 65535 if isinstance(value, int) else re.fullmatch(_PORT_NAME, value)


def _is_schedule(value: str) -> bool:
    """Return whether this is a cron schedule: five fields with ranges, steps and lists, or @daily etc."""
    if re.fullmatch("@(yearly|annually|monthly|weekly|daily|midnight|hourly|every .+)", value):
        return True
    parts = value.lower().split()
    if len(parts) != len(_BOUNDS):
        return False
    for part, (minimum, maximum) in zip(parts, _BOUNDS, strict=True):
        numbers = map(int, re.findall(r"(?<![/\d])\d+", part))
        if not re.fullmatch(rf"{_TIME_RANGE}(,{_TIME_RANGE})*", part):
            return False
        if not all(minimum <= number <= maximum for number in numbers):
            return False
    return True


def _has_parent_step(text: str) -> bool:
    return ".." in text.split("/")


def _finalizer_errors(path: str, names: list[str]) -> FieldErrors:
    for name in names:
        if name != "kubernetes" and "/" not in name:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            yield errors.bad_value(path, name, message)


def _amount_errors(path: str, value: Any) -> FieldErrors:
    if rounded_up(value) < 0:
        yield errors.forbidden_field(path, "SizeLimit field must be a valid resource quantity")


_FORMATS: dict[str, _Format] = {
    "label": _format_of(dns_label),
    "subdomain": _format_of(subdomain),
    "key": _format_of(label_key),
    "labels": labels_errors,
    "finalizers": _finalizer_errors,
    "amount": _amount_errors,
    "address": _passes(ipaddress.ip_address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    "port": _passes(_is_port, "must be between 1 and 65535, inclusive, or the name of a port"),
    "port_name": _matches(_PORT_NAME, "must be at most 15 lower case letters, digits and '-', with a letter"),
    "time_zone": _passes(lambda zone: zone in zoneinfo.available_timezones(), "unknown time zone"),
    "schedule": _passes(_is_schedule, "must be five parts, without a time zone"),
    "trimmed": _passes(lambda text: text == text.strip(), "must not have leading or trailing whitespace"),
    "variable": _matches("[ -<>-~]+", "must consist only of printable ASCII characters other than '='"),
    "sysctl": _matches(rf"{_SYSCTL_PART}([./]{_SYSCTL_PART})*", "must be the name of a sysctl"),
    "field": _matches(_FIELDS, "error converting fieldPath: field label not supported"),
    "path": _passes(lambda text: not _has_parent_step(text), "must not contain '..'"),
    "inner_path": _passes(
        lambda text: not (_has_parent_step(text) or text[0] == "/"), "must be a path inside the volume"
    ),
    "domain_path": _matches("[^/]+/.+", 'must be a domain-prefixed path (such as "acme.io/foo")'),
    "part": _matches(r"\d+%?", "must be an integer or percentage (e.g '5%')"),
}
