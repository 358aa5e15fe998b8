"""CEL selectors of devices, as kube-scheduler evaluates them (`dynamic-resource-allocation/cel`).

Attributes and capacities are grouped by domain; a name without a domain belongs to the driver's domain. A
selector that Muster cannot evaluate selects every device here, because the scheduler decides on the device.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import cel

from extender.api.objects.devices import Device, DeviceAttribute
from extender.api.units import rounded_down

_DOMAIN_RE = re.compile(r"""\b(?:attributes|capacity)\s*\[\s*["']([^"']+)["']\s*\]""")
_SEMVER_RE = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_LOOP_RE = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b")
_CAUTIOUS_RE = re.compile(rf"{_LOOP_RE.pattern}|\bsize\b")  # words after which any attribute may matter
_MAX_CACHED = 16_384  # results
_MAX_STEPS = 10_000  # steps of one evaluation; the library itself has no limit
_MAX_ATTRIBUTES = 32  # the API's limit of attributes of a device
_MAX_PROGRAMS = 1024
_MILLI = 1000
Domains = dict[str, dict[str, Any]]
Pairs = tuple[tuple[str, Any], ...]
Facts = tuple[str, Pairs, Pairs]  # driver, attributes, capacities


def selects(expression: str, driver: str, device: Device) -> bool:
    """Return whether a selector selects a device.

    The result is cached. Devices with equal values in the fields that the selector reads share the result.
    """
    return _evaluate(expression, facts_of(expression, driver, device))


def facts_of(expressions: str, driver: str, device: Device) -> Facts:
    """Return the driver, attributes and capacities of a device on which the selectors can depend.

    Args:
        expressions: The selectors, joined into one text.
        driver: The driver of the device.
        device: The device.
    """
    attributes, capacity = device.attributes or {}, device.capacity or {}
    attribute_names = _relevant_names(expressions, tuple(attributes))
    values = tuple([(name, _value(attributes[name])) for name in attribute_names])
    capacity_names = _relevant_names(expressions, tuple(capacity))
    return driver, values, tuple([(name, capacity[name].value) for name in capacity_names])


def _value(attribute: DeviceAttribute) -> tuple[str, Any]:
    """Return the form of an attribute's value, `version` or `value`, and the value itself."""
    if attribute.version is not None:
        return "version", attribute.version
    values = (attribute.string, attribute.integer, attribute.boolean)
    return "value", next((value for value in values if value is not None), None)


@lru_cache(maxsize=_MAX_PROGRAMS)
def _relevant_names(expression: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of attributes or capacities on which a selector may depend."""
    if _CAUTIOUS_RE.search(expression):
        return names
    return tuple(name for name in names if name.rpartition("/")[2] in expression)


@lru_cache(maxsize=_MAX_CACHED)
def _evaluate(expression: str, facts: Facts) -> bool:
    """Return whether an expression selects a device with these facts; True if it cannot be evaluated."""
    if _steps(expression) > _MAX_STEPS:
        return True
    try:
        program, context = _program(expression), cel.Context(functions=dict(_FUNCTIONS))
        context.add_variable("device", _variable(_DOMAIN_RE.findall(expression), *facts))
        return program.execute(context) is not False
    except Exception:  # The expression, a value or the library failed: the scheduler decides on the device.
        return True


def cost_of(expression: str) -> int:
    """Return an upper bound of the cost of one evaluation: the characters of the selector, plus its steps.

    Each loop counts as a loop over the maximum number of attributes that the API allows.
    """
    return len(expression) + _steps(expression, _MAX_ATTRIBUTES)


def _steps(expression: str, minimum: int = 0) -> int:
    """Return an upper bound of the steps in the loops of an expression.

    All loops count as nested, and each runs over the longest list of the expression.

    Args:
        expression: The selector.
        minimum: The minimum length of the lists.
    """
    loop_count = len(_LOOP_RE.findall(expression))
    longest = max(expression.count(",") // loop_count, minimum) if loop_count else 0
    return int(longest**loop_count) if loop_count else 0


def _variable(domains: list[str], driver: str, attributes: Pairs, capacity: Pairs) -> dict[str, Any]:
    """Return the variable `device` of selectors. `domains` are present even without values."""
    return {
        "driver": driver,
        "attributes": _by_domain(driver, {name: _cel_value(*value) for name, value in attributes}, domains),
        "capacity": _by_domain(driver, {name: _quantity(value) for name, value in capacity}, domains),
    }


@lru_cache(maxsize=_MAX_PROGRAMS)
def _program(expression: str) -> cel.Program:
    return cel.compile(expression)


def _by_domain(driver: str, values: Mapping[str, Any], domains: list[str]) -> Domains:
    """Return values by domain, and by their names without the domain. The default domain is the driver."""
    by_domain: Domains = {driver: {}, **{domain: {} for domain in domains}}
    for name, value in values.items():
        domain, _, identifier = name.rpartition("/")
        by_domain.setdefault(domain or driver, {})[identifier] = value
    return by_domain


def _cel_value(form: str, value: Any) -> Any:
    return _semver(value) if form == "version" and _SEMVER_RE.fullmatch(value) else value


def _quantity(text: Any) -> dict[str, Any]:
    return {"quantity": rounded_down(text, _MILLI)}


def _semver(text: str) -> dict[str, Any]:
    """Return a version in a form that `_compare` can order."""
    match = _SEMVER_RE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return {"semver": [*map(int, match.group(1, 2, 3)), match[4] or "~"]}  # "~": releases come last


def _compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    (left,), (right,) = one.values(), other.values()
    return int(left > right) - int(left < right)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "semver": _semver,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "asInteger": lambda amount: amount["quantity"] // _MILLI,
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
}
