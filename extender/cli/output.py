"""Output of commands: objects as JSON, YAML or names, text for people, and the flags for these formats.

Colours are used on terminals only, unless NO_COLOR is set.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from extender.api import units
from extender.api.objects.queues import Estimate
from extender.api.setting_kinds import Kind
from extender.api.units import BadQuantity, Quantity, as_datetime
from extender.domain.model.resources import PODS, offered, show
from extender.terminal.text import columns, on_one_line

F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

CLIENT, SERVER = "client", "server"
_SUFFIX_BY_DRY_RUN = {"none": "", CLIENT: " (dry run)", SERVER: " (server dry run)"}

LIST_FORMATS = ("table", "wide", "json", "yaml", "name")
_CONTROL = re.compile(  # control characters except our colours, and Unicode that ends or reverses a line
    r"\x1b(?!\[(?:[012]|3[1-6])m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_MIN_WIDTH, _MAX_WIDTH, _USUAL = 40, 100, 80  # width of text: limits, and the width without a terminal


class InvalidContent(click.ClickException):
    """Error: a file that a command reads has a fault. Unlike for a fault in flags, no usage is printed."""

    exit_code = 2


def output_flag(formats: Sequence[str], default: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=default,
        show_default=True,
        metavar="|".join(formats),
        help="The output format.",
    )


def parser_of(kind: Kind) -> Callable[..., Any]:
    """Return the callback that parses the text of a flag by `kind`. An absent flag stays absent."""

    def callback(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else kind.parse(text)
        except ValueError as fault:
            raise click.BadParameter(f"{text!r}: must be {kind.allowed_values}") from fault

    return callback


class WholeNumber(click.IntRange):
    """Whole number as a flag. Its errors have the same form as the errors of `parser_of`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{value!r}: must be a whole number {bounds}", param, ctx)


def echo(text: str) -> None:
    """Print a text without control characters except colours, because other users write the texts."""
    click.echo(_CONTROL.sub("", text), color=False if os.environ.get("NO_COLOR") else None)


def show_objects(objects: Sequence[Json], form: str, is_single: bool) -> None:
    """Show objects as kubectl prints them, without managed fields."""
    if form == "name":
        for obj in objects:
            # kubectl accepts `podgroup.scheduling.volcano.sh/sweep` as an argument.
            group = obj["apiVersion"].rpartition("/")[0]
            kind = ".".join(filter(None, (obj["kind"].lower(), group)))
            echo(f"{kind}/{obj['metadata']['name']}")
        return
    tidy_objects = []
    for obj in objects:
        metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
        tidy_objects.append({**obj, "metadata": metadata})
    listing = {"apiVersion": "v1", "items": tidy_objects, "kind": "List", "metadata": {"resourceVersion": ""}}
    show_document(tidy_objects[0] if is_single else listing, form)


def show_document(document: Any, form: str) -> None:
    if form == "json":
        import json

        click.echo(json.dumps(document, indent=4, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=1000).rstrip())


def table(
    kind: str, namespace: str, head: Sequence[str], rows: Sequence[Sequence[object]], column_count: int
) -> list[str]:
    """Return the lines of a table with the first `column_count` columns. Without rows, print a message.

    The column NAMESPACE is left out if all rows are of one `namespace`.
    """
    if not rows:
        click.echo(f"No {kind} found{f' in namespace {namespace}' if namespace else ''}", err=True)
        return []
    first_column = 1 if namespace and head[0] == "NAMESPACE" else 0
    return columns(head[first_column:column_count], [row[first_column:column_count] for row in rows])


# ---- results of changes


dry_run_flag = click.option(
    "--dry-run",
    type=click.Choice(["none", CLIENT, SERVER]),
    default="none",
    show_default=True,
    help="Only show what would be done: checked by the client or by the API server.",
)
result_flag = click.option(
    "-o",
    "--output",
    type=click.Choice(["name", "json", "yaml"]),
    help="Print the object, or its name. [default: one line of result]",
)


def show_result(obj: Json, participle: str, output: str | None, dry_run: str) -> None:
    """Show the object in the requested format, else a line: `queue.scheduling.volcano.sh/a created`."""
    if output:
        show_objects([obj], output, is_single=True)
    else:
        show_done(obj["metadata"]["name"], participle, dry_run)


def show_done(name: str, done: str, dry_run: str = "none", kind: str = "queue.scheduling.volcano.sh") -> None:
    echo(f"{kind}/{name} {done}{_SUFFIX_BY_DRY_RUN[dry_run]}")


# ---- text


def fields(rows: Iterable[tuple[str, object]]) -> str:
    """Return lines such as `Weight:  2`, with aligned values."""
    texts = [(f"{title}:", on_one_line(value)) for title, value in rows]
    max_width = max(len(title) for title, _ in texts)
    return "\n".join(f"{title:<{max_width}}  {value}" for title, value in texts)


def section(heading: str, lines: Sequence[str], indent: str = "  ") -> str:
    """Return lines below a heading; empty if there are no lines."""
    texts = [click.style(heading, dim=True), *(f"{indent}{line}" for line in lines)]
    return "\n".join(texts) if lines else ""


def width() -> int:
    if not sys.stdout.isatty():
        return _USUAL
    return max(_MIN_WIDTH, min(shutil.get_terminal_size().columns, _MAX_WIDTH))


def wrap(text: str, indent: str = "", hanging: str = "") -> str:
    """Return `text` in lines that fit the terminal. `hanging` indents all lines but the first."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---- amounts, shares and ages

NOTHING = "-"


def numeric(name: str, quantity: Quantity | None) -> int:
    """Return the number of a quantity; 0 if it is invalid."""
    try:
        return offered({name: quantity or 0}).get(name, 0)
    except BadQuantity:
        return 0


def amount(name: str, quantity: Quantity | None) -> str:
    """Return a quantity for users, such as 16Gi for 17179869184 bytes."""
    return NOTHING if quantity is None else show(name, numeric(name, quantity))


def amounts(quantities: Mapping[str, Quantity] | None) -> str:
    """Return amounts for users, such as `cpu 4, memory 8Gi`; zeros and the resource `pods` are left out."""
    pairs = sorted((name, quantity) for name, quantity in (quantities or {}).items() if name != PODS)
    texts = [f"{name} {amount(name, quantity)}" for name, quantity in pairs if numeric(name, quantity)]
    return ", ".join(texts) or NOTHING


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


PHRASES = {  # explanations of expected starts, by method
    "Declared": "by the run times that are declared",
    "Learnt": "by run times of which some are learned from earlier runs",
    "Reclaim": "once other groups have given up capacity for it",
    "Reservation": "once enough is free on the nodes that are reserved for it",
}


def outlook(estimate: Estimate | None) -> str:
    """Return an estimate as a sentence; empty without an estimate."""
    if estimate is None:
        return ""
    if estimate.at_p50 is None:
        return f"When it starts is unknown: {estimate.unknown_because}."
    at = f"{estimate.at_p50} (in {_time_until(estimate.at_p50)})"
    by = f"by {estimate.at_p90} with nine chances in ten"
    return f"It is expected to start at about {at}, {by}: {PHRASES.get(estimate.method, estimate.method)}."


def interval(estimate: Estimate | None) -> str:
    """Return an estimate as an interval from now: `12m-20m` or `unknown`; `-` without an estimate."""
    if estimate is None:
        return NOTHING
    instants = estimate.at_p50, estimate.at_p90
    return "unknown" if estimate.at_p50 is None else "-".join(map(_time_until, instants))


def _time_until(timestamp: str | None) -> str:
    with suppress(ValueError):
        time_left = as_datetime(timestamp or "") - datetime.now(UTC)
        return units.human_duration(max(0, int(time_left.total_seconds())))
    return NOTHING


def age(timestamp: str | None) -> str:
    """Return the age of a timestamp, as kubectl prints ages; `-` without a timestamp."""
    with suppress(ValueError):
        return units.age(timestamp or "")
    return NOTHING
