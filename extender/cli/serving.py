"""`muster serve`: its flags are the rows of the configuration's table."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from extender.api.configuration import SETTINGS, Configuration, InvalidConfiguration, Setting
from extender.cli.setting_sources import from_environment, from_file, from_flags, resolve

CONFIG_VARIABLE = "MUSTER_CONFIG"


def _options() -> Iterator[click.Option]:
    yield click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        help=f"A configuration file (docs/configuration.md). [${CONFIG_VARIABLE}]",
    )
    for each in SETTINGS:
        yield click.Option(
            [each.flag, each.field], multiple=each.repeatable, metavar="VALUE", help=_help(each)
        )


def _help(setting: Setting) -> str:
    """click shows no defaults: it has none, for values are judged together with those of other sources."""
    return f"{setting.help} [default: {shown_default(setting)}; ${setting.variable}]"


def shown_default(setting: Setting) -> str:
    if setting.repeatable:
        return ", ".join(setting.written(setting.default))
    return setting.unset or str(setting.written(setting.default))


def _serve(config: Path | None, **flags: Any) -> None:
    try:
        configuration = configured(config, flags)
        # Imported by name: it brings Flask, numpy and the Kubernetes client along.
        import_module("extender.host").serve(configuration)
    except InvalidConfiguration as fault:
        raise click.UsageError(str(fault)) from fault


def configured(config: Path | None, flags: dict[str, Any]) -> Configuration:
    """The configuration that the file, the environment and the flags make."""
    file = from_file(config) if config else {}
    return resolve(file, from_environment(os.environ), from_flags(flags))


serve = click.Command(
    "serve",
    callback=_serve,
    params=list(_options()),
    help="Serve a kube-scheduler as its extender.",
    context_settings={"max_content_width": 110},
)
