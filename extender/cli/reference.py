"""docs/configuration.md, made from the table of settings: `python -m extender.cli.reference` writes it."""

from pathlib import Path

from extender.api.configuration import API_VERSION, KIND, SETTINGS, Setting
from extender.cli.serving import CONFIG_VARIABLE, shown_default

DOCUMENT = Path("docs/configuration.md")

HEAD = f"""\
# Configuration

<!-- Made by `python -m extender.cli.reference` from extender/api/configuration.py. -->

`muster serve` reads each setting from its flag, else from its environment variable, else from the file that
`--config` (or `${CONFIG_VARIABLE}`) names, else it takes the default. A value that is not allowed, or a key
of the file that is not known, ends the start with status 2 and a line for each fault.

A setting with several values takes its flag several times, its variable with commas, its key with a list.
Durations are written as in Go: `500ms`, `2s`, `1m30s`.

| flag | variable | key | default | allowed | meaning |
|---|---|---|---|---|---|
"""

EXAMPLE = f"""
## The file

YAML or JSON; every key but the first two may be left out.

```yaml
apiVersion: {API_VERSION}
kind: {KIND}
"""


def document() -> str:
    return HEAD + "".join(map(_row, SETTINGS)) + EXAMPLE + "".join(map(_line, SETTINGS)) + "```\n"


def _row(each: Setting) -> str:
    default = each.unset or f"`{shown_default(each)}`"
    names = f"`{each.flag}` | `{each.variable}` | `{each.key}`"
    return f"| {names} | {default} | {each.kind.allowed} | {each.help} |\n"


def _line(each: Setting) -> str:
    """The line of the example that sets the default; settings without a value of their own are left out."""
    if each.unset:
        return ""
    written = each.written(each.default)
    return f"{each.key}: {written if isinstance(written, str) else '[' + ', '.join(written) + ']'}\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
