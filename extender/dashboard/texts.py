"""Texts of the pages: amounts, times and long names.

Long texts are shortened, so that no author of a name can fill a page.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Blueprint
from markupsafe import Markup

from extender.api.units import human_duration, may_be_name, precise_duration, rounded_up, unix_seconds

MAX_NAME_LENGTH, MAX_TEXT_LENGTH = 120, 1200  # maximum characters of a name, of a text
NONE = "-"
_BYTE_RESOURCES = ("memory", "ephemeral-storage", "storage")
_PHRASES = {  # phrases, by method of an estimate
    "Declared": "by the run times that are declared for what ends before it",
    "Learnt": "by how long groups like those that end before it ran",
    "Reclaim": "once other groups have given up capacity for it",
}


def amount(value: float | None, resource: str) -> str:
    """Return an amount for users, such as `12`, `0.25`, `1,024`, `1.5 TiB`, or `no limit` for None."""
    if value is None:
        return "no limit"
    if resource not in _BYTE_RESOURCES and not resource.startswith("hugepages-"):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    for suffix in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or suffix == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {suffix}" if abs(value) >= 100 else f"{value:.3g} {suffix}"


def address_parts(full_name: str) -> dict[str, Any]:
    """Return the address parts of a name such as `team/train` or `team/job/train`; empty if it is invalid."""
    namespace, _, rest = full_name.partition("/")
    kind, slash, name = rest.rpartition("/")
    parts = {"namespace": namespace, "name": name} | ({"kind": kind} if slash else {})
    return parts if all(map(may_be_name, parts.values())) else {}


def quantity(text: str, resource: str) -> str:
    """Return a quantity for users, such as `8 GiB` for `8589934592`; an invalid quantity stays unchanged."""
    try:
        return amount(rounded_up(text, 1000) / 1000, resource)
    except ValueError:
        return shortened_name(text)


def amounts(values: Mapping[str, float]) -> str:
    """Return several amounts for users, such as `4 cpu, 16 GiB memory`."""
    texts = (f"{amount(value, name)} {short_resource(name)}" for name, value in values.items())
    return ", ".join(texts)


def short_resource(resource: str) -> str:
    """Return the short name of a resource, such as `gpu` for nvidia.com/gpu.

    The pages of queues and nodes show the vendor, too.
    """
    return shortened_name(resource.rpartition("/")[2])


def shortened_name(name: str) -> str:
    """Return a name without its middle if it is too long. The end of a name is often the distinct part."""
    if len(name) <= MAX_NAME_LENGTH:
        return name
    half = MAX_NAME_LENGTH // 2
    return f"{name[:half]}…{name[-half:]}"


def sentence(text: str) -> str:
    """Return a text as a sentence: with a full stop, and capitalized unless it begins with a name."""
    first = text[:1].upper() if text.partition(" ")[0].isalpha() else text[:1]
    return shortened_text(f"{first}{text[1:]}{'' if text.endswith('.') else '.'}")


def known_by(method: str) -> str:
    return _PHRASES.get(method, method)


def shortened_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…"


def hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    return NONE if seconds is None else precise_duration(seconds)


def short_time(timestamp: str) -> str:
    """Return `14:03:20` for `2026-11-27T14:03:20Z`, in UTC."""
    return timestamp[11:19] if len(timestamp) >= 19 else shortened_name(timestamp)


def install(blueprint: Blueprint, clock: Callable[[], float]) -> None:
    """Add the functions of this module to all templates, as filters.

    `since` and `until` return durations from now. An open page keeps counting them.
    """

    def since(timestamp: str) -> str:
        return distance(timestamp, "since", 1)

    def until(timestamp: str) -> str:
        return distance(timestamp, "until", -1)

    def distance(timestamp: str, kind: str, sign: int) -> str:
        seconds = unix_seconds(timestamp)
        if not seconds:
            return NONE
        text = human_duration(max(0, int(sign * (clock() - seconds))))
        return Markup('<time class="{}" datetime="{}">{}</time>').format(kind, timestamp, text)

    for filter in (
        address_parts,
        amount,
        amounts,
        quantity,
        sentence,
        known_by,
        short_resource,
        shortened_name,
        may_be_name,
        shortened_text,
        hours,
        duration,
        short_time,
        since,
        until,
    ):
        blueprint.add_app_template_filter(filter)
