"""CEL selectors of devices, as kube-scheduler evaluates them (`dynamic-resource-allocation/cel`).

Attributes and capacities are grouped by domain, which is the driver's for names without one. A selector that
cannot be evaluated here selects every device: the scheduler, which can, has the last word.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import cel

from extender.api.objects.devices import Device, DeviceAttribute
from extender.api.units import rounded_down

_DOMAIN = re.compile(r"""\b(?:attributes|capacity)\s*\[\s*["']([^"']+)["']\s*\]""")
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_LOOPS = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b")
_CAUTIOUS = re.compile(rf"{_LOOPS.pattern}|\bsize\b")  # may depend on any attribute
_MOST_CACHED = 16_384  # results
_MOST_STEPS = 10_000  # of an evaluation; the library has no limit of its own
_ATTRIBUTES = 32  # the most that a device has, as the API limits them
_MOST_PROGRAMS = 1024
_MILLI = 1000
Domains = dict[str, dict[str, Any]]
Pairs = tuple[tuple[str, Any], ...]
Facts = tuple[str, Pairs, Pairs]  # driver, attributes, capacities


def selects(expression: str, driver: str, device: Device) -> bool:
    """Return whether a selector admits a device. Devices with equal values of its fields share a result."""
    return _result(expression, facts_of(expression, driver, device))


def facts_of(expressions: str, driver: str, device: Device) -> Facts:
    """Return the facts of a device that these selectors, joined to one text, may depend on."""
    attributes, capacity = device.attributes or {}, device.capacity or {}
    attribute_names = _named_in(expressions, tuple(attributes))
    values = tuple([(name, _value(attributes[name])) for name in attribute_names])
    capacity_names = _named_in(expressions, tuple(capacity))
    return driver, values, tuple([(name, capacity[name].value) for name in capacity_names])


def _value(attribute: DeviceAttribute) -> tuple[str, Any]:
    if attribute.version is not None:
        return "version", attribute.version
    values = (attribute.string, attribute.integer, attribute.boolean)
    return "value", next((value for value in values if value is not None), None)


@lru_cache(maxsize=_MOST_PROGRAMS)
def _named_in(expression: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of attributes or capacities on which a selector may depend."""
    if _CAUTIOUS.search(expression):
        return names
    return tuple(name for name in names if name.rpartition("/")[2] in expression)


@lru_cache(maxsize=_MOST_CACHED)
def _result(expression: str, facts: Facts) -> bool:
    if _steps(expression) > _MOST_STEPS:
        return True
    try:
        program, context = _program(expression), cel.Context(functions=dict(_FUNCTIONS))
        context.add_variable("device", _variable(_DOMAIN.findall(expression), *facts))
        return program.execute(context) is not False
    except Exception:  # of the expression, a value, or the library: the scheduler decides on the device
        return True


def cost_of(expression: str) -> int:
    """Return the most characters and steps that an evaluation takes, with loops over attributes."""
    return len(expression) + _steps(expression, _ATTRIBUTES)


def _steps(expression: str, minimum: int = 0) -> int:
    """Return the most steps that the loops of an expression take: all nested, over its longest list.

    `minimum`: the least length of a list.
    """
    loops = len(_LOOPS.findall(expression))
    longest = max(expression.count(",") // loops, minimum) if loops else 0
    return int(longest**loops) if loops else 0


def _variable(domains: list[str], driver: str, attributes: Pairs, capacity: Pairs) -> dict[str, Any]:
    """Return the variable `device` of selectors, also with `domains` that have no values."""
    return {
        "driver": driver,
        "attributes": _by_domain(driver, {name: _typed(*value) for name, value in attributes}, domains),
        "capacity": _by_domain(driver, {name: _quantity(value) for name, value in capacity}, domains),
    }


@lru_cache(maxsize=_MOST_PROGRAMS)
def _program(expression: str) -> cel.Program:
    return cel.compile(expression)


def _by_domain(driver: str, values: Mapping[str, Any], domains: list[str]) -> Domains:
    by_domain: Domains = {driver: {}, **{domain: {} for domain in domains}}
    for name, value in values.items():
        domain, _, identifier = name.rpartition("/")
        by_domain.setdefault(domain or driver, {})[identifier] = value
    return by_domain


def _typed(form: str, value: Any) -> Any:
    return _semver(value) if form == "version" and _SEMVER.fullmatch(value) else value


def _quantity(text: Any) -> dict[str, Any]:
    return {"quantity": rounded_down(text, _MILLI)}


def _semver(text: str) -> dict[str, Any]:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return {"semver": [*map(int, match.group(1, 2, 3)), match[4] or "~"]}  # releases after their candidates


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
