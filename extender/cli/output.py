"""What commands print: objects as JSON, YAML or names, text for people. terminal/columns.py makes tables.

Colours reach terminals only, and no terminal where NO_COLOR is set. Text is folded to the terminal, or to 80
columns where there is none.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

LISTS = ("table", "wide", "json", "yaml", "name")
_CONTROL = re.compile(r"\x1b(?!\[[\d;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_NARROWEST, _WIDEST, _USUAL = 40, 100, 80


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


def echo(text: str) -> None:
    """Without what a terminal would obey, but for colours: names and messages are written by others."""
    click.echo(_CONTROL.sub("", text), color=False if os.environ.get("NO_COLOR") else None)


# ---- objects


def show_objects(objects: Sequence[Json], form: str, single: bool) -> None:
    """As kubectl prints them, without the bookkeeping of managed fields."""
    if form == "name":
        for each in objects:
            echo(_name(each))
        return
    tidy = [_tidy(each) for each in objects]
    several = {"apiVersion": "v1", "items": tidy, "kind": "List", "metadata": {"resourceVersion": ""}}
    show_document(tidy[0] if single else several, form)


def show_document(document: Any, form: str) -> None:
    if form == "json":
        import json

        click.echo(json.dumps(document, indent=4, ensure_ascii=False))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=1000).rstrip())


def _name(obj: Mapping[str, Any]) -> str:
    """`podgroup.scheduling.volcano.sh/sweep`: what kubectl takes as an argument."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = ".".join(filter(None, (obj["kind"].lower(), group)))
    return f"{kind}/{obj['metadata']['name']}"


def _tidy(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


# ---- text


def fields(rows: Iterable[tuple[str, object]]) -> str:
    """`Weight:  2`, the values below each other."""
    written = [(f"{title}:", str(value)) for title, value in rows]
    widest = max(len(title) for title, _ in written)
    return "\n".join(f"{title:<{widest}}  {value}" for title, value in written)


def section(heading: str, lines: Sequence[str], indent: str = "  ") -> str:
    """Lines under a heading; nothing where there are no lines."""
    return (
        "\n".join([click.style(heading, dim=True), *(f"{indent}{each}" for each in lines)]) if lines else ""
    )


def width() -> int:
    if not sys.stdout.isatty():
        return _USUAL
    return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))


def folded(text: str, indent: str = "", hanging: str = "") -> str:
    """`text` in lines that fit; those after the first stand further in by `hanging`."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
