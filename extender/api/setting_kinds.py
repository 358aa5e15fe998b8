"""Kinds of settings: their allowed values, and the text form of the values."""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.units import as_duration, as_seconds, rounded_down


class Address(NamedTuple):
    """Address to listen on. An empty host means every address of the machine, port 0 means any free port."""

    host: str
    port: int

    @property
    def is_on_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ObjectName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LogicalPart(NamedTuple):
    """Part of a logical resource: one unit of `resource` counts as `amount` of the logical resource."""

    amount: str  # a quantity, or `capacity.NAME` for a capacity of the device
    resource: str

    @property
    def capacity(self) -> str:
        """Return the name of the device capacity in `amount`; empty if the amount is a quantity."""
        return self.amount.removeprefix(_CAPACITY) if self.amount.startswith(_CAPACITY) else ""


class LogicalResource(NamedTuple):
    """Resource that stands for other resources, so that a queue can limit all of them by one amount."""

    name: str
    parts: tuple[LogicalPart, ...]

    def __str__(self) -> str:
        return f"{self.name}={'+'.join(map('*'.join, self.parts))}"


class Kind(NamedTuple):
    """Kind of a setting: its allowed values, and functions that read and write a value as text.

    `parse` raises ValueError for an invalid text.
    """

    allowed_values: str
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_RESOURCE = rf"{_NAME}/[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_CAPACITY = "capacity."


def text_reader(test: Callable[[str], bool]) -> Callable[[str], str]:
    """Return a function that returns its text if the text passes `test`, and raises ValueError otherwise.

    The test itself may also raise ValueError.
    """

    def read(text: str) -> str:
        if not test(text):
            raise ValueError(text)
        return text

    return read


def _matching(pattern: str) -> Callable[[str], str]:
    return text_reader(lambda text: re.fullmatch(pattern, text) is not None)


def within(read: Callable[[str], Any], minimum: str, maximum: str) -> Callable[[str], Any]:
    """Return a reader like `read` that also raises ValueError for values outside of these limits."""

    def read_within(text: str) -> Any:
        value = read(text)
        if not read(minimum) <= value <= read(maximum):
            raise ValueError(text)
        return value

    return read_within


def _read_address(text: str) -> Address:
    match = re.fullmatch(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(text)
    return Address(match["ipv6"] or match["host"], int(match["port"]))


def _read_address_or_off(text: str) -> Address | None:
    return None if text == "off" else _read_address(text)


def _read_loopback_or_off(text: str) -> Address | None:
    address = _read_address_or_off(text)
    # ip_address raises ValueError for a host name and for an empty host.
    if address and not ipaddress.ip_address(address.host).is_loopback:
        raise ValueError(text)
    return address


def _read_host(text: str) -> str:
    """Return a host name, or an IPv6 address in the form that certificates use, which has no zone."""
    return str(ipaddress.IPv6Address(text)) if ":" in text and "%" not in text else _matching(_NAME)(text)


def _read_object_name(text: str) -> ObjectName:
    return ObjectName(*_matching(rf"{_LABEL}/{_NAME}")(text).split("/"))


def _read_logical_resource(text: str) -> LogicalResource:
    name, _, formula = text.partition("=")
    parts = []
    for part in formula.split("+"):
        amount, _, resource = part.partition("*")
        parts.append(LogicalPart(amount, _matching(_RESOURCE)(resource)))
        if not (parts[-1].capacity and resource.startswith("deviceclass/")) and rounded_down(amount) <= 0:
            raise ValueError(text)
    return LogicalResource(_matching(_RESOURCE)(name), tuple(parts))


def one_of(*values: str) -> Kind:
    """Return the kind of a setting that is one of these words."""
    return Kind(" or ".join(values), _matching("|".join(values)))


def whole_number(minimum: int, maximum: int) -> Kind:
    """Return the kind of a setting that is a whole number in this range."""
    read_number = _matching("[0-9]{1,9}")
    read = within(lambda text: int(read_number(text)), str(minimum), str(maximum))
    return Kind(f"a whole number from {minimum} to {maximum}", read)


def duration(minimum: str, maximum: str) -> Kind:
    allowed = f"a duration from {minimum} to {maximum}, such as 500ms, 2s or 1m30s"
    return Kind(allowed, within(as_seconds, minimum, maximum), as_duration)


def factor(maximum: int) -> Kind:
    """Return the kind of a setting that is a factor from 1 to `maximum`."""
    read_number = _matching(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
    read = within(lambda text: float(read_number(text)), "1", str(maximum))
    return Kind(f"a number from 1 to {maximum}, such as 1.5", read, "{:g}".format)


def fraction() -> Kind:
    """Return the kind of a setting that is a number from 0 to 1."""
    read_number = _matching(r"[0-9](?:\.[0-9]{1,9})?")
    read = within(lambda text: float(read_number(text)), "0", "1")
    return Kind("a number from 0 to 1, such as 0.1", read, "{:g}".format)


def some_of(*values: str) -> Kind:
    """Return the kind of a setting that lists some of these words, separated by commas; `off` means none."""

    def read(text: str) -> frozenset[str]:
        parts = [] if text == "off" else text.split(",")
        if len(set(parts)) < len(parts) or not set(parts) <= set(values):
            raise ValueError(text)
        return frozenset(parts)

    def write(chosen: frozenset[str]) -> str:
        return ",".join(value for value in values if value in chosen) or "off"

    return Kind(f"off, or one or more of {', '.join(values)}, separated by commas", read, write)


TEXT = Kind("any text", str)
NAME = Kind("a name of lower-case letters, digits, '-' and '.'", _matching(_NAME))
HOST = Kind("a name of lower-case letters, digits, '-' and '.', or an IP address such as fd00::1", _read_host)
ADDRESS = Kind("an address such as 127.0.0.1:8281, [::1]:8281 or :8281", _read_address)
ADDRESS_OR_OFF = Kind(
    "off, or an address such as 127.0.0.1:8285 or :8285",
    _read_address_or_off,
    lambda address: str(address or "off"),
)
LOGICAL = Kind(
    "NAME=AMOUNT*RESOURCE+..., such as example.com/memory=80Gi*deviceclass/h100+5Gi*nvidia.com/mig-1g.5gb",
    _read_logical_resource,
)
LOOPBACK = Kind(
    "off, or an address on loopback such as 127.0.0.1:8284 or [::1]:8284",
    _read_loopback_or_off,
    lambda address: str(address or "off"),
)
JOB_KIND = Kind(
    "a kind with its API group, such as Job.batch", _matching(rf"[A-Za-z]{{1,63}}\.{_LABEL}(?:\.{_LABEL})*")
)
OBJECT = Kind("the namespace and name of an object, such as kube-system/muster-scheduler", _read_object_name)
