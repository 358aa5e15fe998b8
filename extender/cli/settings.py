"""`muster serve`, and the sources of its settings: flags, then environment variables, then a file.

All faults are reported together, each with the name under which its value was given.
"""

import gc
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from extender.api.configuration import (
    API_VERSION,
    JOB_KINDS,
    KIND,
    SETTINGS,
    Configuration,
    InvalidConfiguration,
    Setting,
    contradictions,
)
from extender.api.units import name_hint
from extender.api.workloads.further_kinds import further_kinds

CONFIG_VARIABLE = "MUSTER_CONFIG"
_REQUIRED_FIELDS = {"apiVersion": API_VERSION, "kind": KIND}


class GivenSetting(NamedTuple):
    """Given value of a setting, with its source for messages."""

    where: str
    value: Any


Source = Mapping[str, GivenSetting]  # by field of Configuration


def from_file(path: Path) -> Source:
    """Return the settings in a file.

    Raises:
        InvalidConfiguration: The file cannot be read, or has unknown keys.
    """
    import yaml  # imported only for a file, because the import takes 30 ms

    try:
        # BaseLoader keeps every scalar as text. Other loaders turn `off` into False and 1e3 into 1000.0.
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise InvalidConfiguration(f"{path}: cannot be read: {fault}") from fault
    if not isinstance(document, dict):
        raise InvalidConfiguration(f"{path}: must hold keys and values")
    heads = [(key, required, document.pop(key, "nothing")) for key, required in _REQUIRED_FIELDS.items()]
    keys = {setting.key: setting.field for setting in SETTINGS} | {JOB_KINDS: "job_kinds"}
    faults = [
        *(
            f"{path}: {key}: invalid value {value!r}: must be {required}"
            for key, required, value in heads
            if value != required
        ),
        *(f"{path}: {key}: unknown field: {name_hint(key, [*keys])}" for key in document if key not in keys),
    ]
    if faults:
        raise InvalidConfiguration("\n".join(faults))
    return {keys[key]: GivenSetting(f"{path}: {key}", value) for key, value in document.items()}


def resolve(*sources: Source) -> Configuration:
    """Return the configuration from several sources. A later source takes precedence.

    Raises:
        InvalidConfiguration: Settings are invalid.
    """
    settings = {field: setting for source in sources for field, setting in source.items()}
    values: dict[str, Any] = {}
    faults: list[str] = []
    for setting in SETTINGS:
        given = settings.get(setting.field)
        if given and given.value != setting.file_form(setting.default):  # defaults need no check
            try:
                values[setting.field] = _read(setting, given.value)
            except ValueError:
                prefix = "one or more different values, each " if setting.repeatable else ""
                rule = f"{prefix}{setting.kind.allowed_values}"
                faults.append(f"{given.where}: invalid value {given.value!r}: must be {rule}")
    if kinds := settings.get("job_kinds"):
        values["job_kinds"], kind_faults = further_kinds(kinds.value, kinds.where)
        faults += kind_faults
    configuration = Configuration(**values)
    if faults := faults or list(contradictions(configuration)):
        raise InvalidConfiguration("\n".join(faults))
    return configuration


def _read(setting: Setting, value: Any) -> Any:
    """Return the parsed value of a setting.

    Raises:
        ValueError: The value is invalid.
    """
    if not setting.repeatable:
        if not isinstance(value, str):
            raise ValueError(value)
        return setting.kind.parse(value)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError(value)
    values = tuple(map(setting.kind.parse, value))
    if not values or len(set(values)) < len(values):
        raise ValueError(value)
    return values


def shown_default(setting: Setting) -> str:
    """Return the default of a setting for help texts."""
    if setting.repeatable:
        return ", ".join(setting.file_form(setting.default)) or "none"
    return setting.unset or str(setting.file_form(setting.default)) or "none"


def _serve(config: Path | None, **flags: Any) -> None:
    from extender.web.sockets import open_ports

    try:
        configuration = read_configuration(config, flags)
        ports = open_ports(configuration)
        # Imported only now, because it imports Flask, numpy and the Kubernetes client.
        load_module("extender.host.host").serve(configuration, ports)
    except InvalidConfiguration as fault:
        raise click.UsageError(str(fault)) from fault


def load_module(module: str) -> ModuleType:
    """Import a module without garbage collection.

    Imports make no garbage. Collections would take an eighth of the import time, and as much again later.
    """
    gc.disable()
    result = import_module(module)
    gc.freeze()
    gc.enable()
    return result


def read_configuration(config: Path | None, flags: dict[str, Any]) -> Configuration:
    """Return the configuration from a file, environment variables and flags."""
    variable_source, from_flags = {}, {}
    for setting in SETTINGS:
        # Other variables are ignored: for a Service named muster, Kubernetes sets MUSTER_PORT in pods.
        if text := os.environ.get(setting.variable):
            value = text.split(",") if setting.repeatable else text
            variable_source[setting.field] = GivenSetting(setting.variable, value)
        if flag := flags.get(setting.field):  # None or empty if the flag is absent
            from_flags[setting.field] = GivenSetting(setting.flag, list(flag) if setting.repeatable else flag)
    return resolve(from_file(config) if config else {}, variable_source, from_flags)


serve = click.Command(
    "serve",
    callback=_serve,
    # Options have no defaults here, because the values of all sources are validated together.
    params=[
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            envvar=CONFIG_VARIABLE,
            metavar="FILE",
            help=f"A configuration file (docs/reference/configuration.md). [${CONFIG_VARIABLE}]",
        ),
        *(
            click.Option(
                [setting.flag, setting.field],
                multiple=setting.repeatable,
                metavar="VALUE",
                help=f"{setting.help} [default: {shown_default(setting)}; ${setting.variable}]",
            )
            for setting in SETTINGS
        ),
    ],
    help="Serve a kube-scheduler as its extender.",
    context_settings={"max_content_width": 110},
)
