"""`muster queue create` and `muster queue update`: the flags of a queue, and the spec made from the flags.

Only faults of single values are found here. The API server and Muster's admission find other faults.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.base import merged
from extender.api.setting_kinds import Kind, text_reader
from extender.api.units import BadQuantity, as_seconds, intended_name, rounded_up
from extender.cli.access import ClusterAccess, Flags, access_flags, open_access
from extender.cli.completion import complete_queue
from extender.cli.output import (
    CLIENT,
    SERVER,
    Json,
    WholeNumber,
    dry_run_flag,
    parser_of,
    result_flag,
    show_result,
)
from extender.shipped import CRDS, read

F = TypeVar("F", bound=Callable[..., Any])

_MAX_INT32 = 2**31 - 1
_COUNTS_RULE = "groups=NUMBER, pods=NUMBER or both with a comma between, such as groups=2,pods=40"
_AMOUNTS = "NAME=QUANTITY with commas between, such as cpu=8,memory=16Gi"

# --name is read before NAME, because the callback of NAME removes --name from the parameters.
_add_name_flag = click.option("--name", "named", metavar="NAME", is_eager=True, help="The same as NAME.")


def _names_of(context: click.Context, arguments: tuple[str, ...], required: bool = True) -> tuple[str, ...]:
    """Return the names given as NAME or --name. Both may be given if they are equal."""
    flag_name = context.params.pop("named", None)
    if flag_name and arguments and arguments != (flag_name,):
        raise click.UsageError(f"set only one of NAME, {arguments[0]!r}, and --name, {flag_name!r}")
    names = arguments or (() if flag_name is None else (flag_name,))
    if not all(names) or (required and not names):
        raise click.UsageError("NAME: required value: the name of a queue")
    return names


def one_name(command: F) -> F:
    """Add the argument NAME and the flag --name to a command, both as the parameter `name`."""
    argument = click.argument(
        "name",
        required=False,
        callback=lambda context, _, name: _names_of(context, (name,) if name else ())[0],
        shell_complete=complete_queue,
    )
    return _add_name_flag(argument(command))


def several_names(is_required: bool = True) -> Callable[[F], F]:
    """Add the argument NAME... and the flag --name to a command, both as the parameter `names`."""
    argument = click.argument(
        "names",
        metavar="[NAME]...",
        nargs=-1,
        callback=lambda context, _, names: _names_of(context, names, is_required),
        shell_complete=complete_queue,
    )
    return lambda command: _add_name_flag(argument(command))


# ---- flags


def _mapping_parser(read: Callable[[str], tuple[str, Any]], rule: str) -> Callable[..., Any]:
    """Return the callback that parses a text such as `cpu=8,memory=16Gi`. A name with `-` maps to None."""
    return parser_of(Kind(f"{rule}; NAME- removes one", lambda text: dict(map(read, text.split(",")))))


def _read_amount(text: str) -> tuple[str, str | None]:
    name, equals, quantity = text.strip().partition("=")
    if not equals and name.endswith("-") and len(name) > 1:
        return name[:-1], None
    if correction := intended_name(name):
        raise click.BadParameter(correction)
    if not name or not equals or rounded_up(quantity) < 0:
        raise BadQuantity(text)
    return name, quantity


def _read_count(text: str) -> tuple[str, int | None]:
    name, equals, number = text.strip().partition("=")
    is_removal = name.endswith("-")
    if name.removesuffix("-") not in ("groups", "pods") or is_removal == bool(equals):
        raise ValueError(text)
    if is_removal:
        return name[:-1], None
    if not 0 <= int(number) <= _MAX_INT32:
        raise ValueError(text)
    return name, int(number)


def _factor_parser(minimum: int, maximum: int) -> Callable[..., Any]:
    rule = f"a number from {minimum} to {maximum}, such as 1.5"
    read = text_reader(lambda text: minimum * 1000 <= rounded_up(text, 1000) <= maximum * 1000)
    return parser_of(Kind(rule, read))


_DURATION = Kind("a duration such as 90s, 10m or 1h30m", text_reader(lambda text: as_seconds(text) >= 0))


def _list_kind(allowed_names: Sequence[str]) -> Kind:
    """Return the kind of a list of names with commas in between."""

    def read(text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        if not {*names} <= {*allowed_names}:
            raise ValueError(text)
        return names

    return Kind(f"none, or one or more of {', '.join(allowed_names)}, with commas between", read)


def _option_arguments(schema: Json) -> Json:
    """Return the arguments of click.option for a field, from the field's schema in the CRD."""
    match schema:
        case {"enum": allowed_values}:
            return {"type": click.Choice([value for value in allowed_values if value])}
        case {"type": "boolean"}:
            choice = click.Choice(["true", "false"])
            return {"type": choice, "callback": lambda _, __, value: value == "true" if value else None}
        case {"type": "integer"}:
            minimum, maximum = schema.get("minimum", -_MAX_INT32 - 1), schema.get("maximum", _MAX_INT32)
            return {"type": WholeNumber(minimum, maximum)}
        case {"type": "array", "items": {"enum": allowed_values}}:
            return {"metavar": "NAME,...", "callback": parser_of(_list_kind(allowed_values))}
        case {"additionalProperties": _}:
            return {"metavar": "NAME=QUANTITY,...", "callback": _mapping_parser(_read_amount, _AMOUNTS)}
        case {"properties": {"groups": _, "pods": _}}:
            return {"metavar": "groups=N,pods=N", "callback": _mapping_parser(_read_count, _COUNTS_RULE)}
        case {"minimum": minimum, "maximum": maximum}:
            return {"metavar": "FACTOR", "callback": _factor_parser(minimum, maximum)}
        case {"pattern": pattern} if "ms|s|m|h" in pattern:
            return {"metavar": "DURATION", "callback": parser_of(_DURATION)}
    return {"metavar": "QUEUE"}


class _Flag(NamedTuple):
    names: str  # names of the flag; the long name comes last
    help: str
    field: str = ""  # path in the spec, if the name of the flag differs

    @property
    def name(self) -> str:
        return self.names.rpartition("--")[2]

    @property
    def path(self) -> list[str]:
        first, *other_words = self.name.split("-")
        return (self.field or first + "".join(map(str.capitalize, other_words))).split(".")

    def option(self, spec: Json) -> click.Option:
        """Return click's option for the flag. `spec` is the schema of spec in the CRD."""
        schema = spec
        for step in self.path:
            schema = schema["properties"][step]
        return click.Option(self.names.split(), help=self.help, **_option_arguments(schema))


def _preemption_flag(name: str, help: str, field: str = "") -> _Flag:
    """Return the flag of a field of spec.preemption."""
    flag = _Flag(f"--preemption-{name}", help)
    return flag._replace(field=f"preemption.{field or _Flag(f'--{name}', help).path[0]}")


_FLAGS = (
    _Flag("-w --weight", "The weight of the queue among its siblings."),
    _Flag("--capability", "The maximum usage of the queue."),
    _Flag("--deserved", "The deserved amount, before the rest is divided by weight."),
    _Flag("--guarantee", "The amount reserved for the queue, even while it is idle.", "guarantee.resource"),
    _Flag("--borrowing-limit", "The maximum usage above the deserved share."),
    _Flag("--lending-limit", "The maximum part of --deserved that other queues may use."),
    _Flag("--oversell", "The factor on the capability at admission."),
    _Flag("--parent", "The parent queue."),
    _Flag("--priority", "The priority of the queue: queues of higher priority go first."),
    _Flag("-S --state", "Whether the queue accepts groups."),
    _Flag("--reclaimable", "Whether other queues may reclaim its usage above its share."),
    _Flag("--restricted", 'Whether users need the verb "use" on the queue, granted by RBAC.'),
    _Flag("--dequeue-strategy", "The order of its groups, and whether groups may pass each other."),
    _Flag(
        "--priority-threshold", "With the strategy mixed: the lowest priority of groups that no group passes."
    ),
    _Flag("--ageing", "The priority that groups gain per hour of waiting."),
    _Flag("--placement", "Whether pods are packed on few nodes, or spread over all."),
    _Flag("--fair-share", "Whether past usage counts for the order of its child queues."),
    _Flag("--stop-policy", "Whether the queue is held: admits no groups, or also evicts running ones."),
    _Flag("--limits", "The maximum of running groups and pods."),
    _Flag("--user-limits", "The maximum of running groups and pods of each user.", "limits.perUser"),
    _Flag(
        "--namespace-limits",
        "The maximum of running groups and pods of each namespace.",
        "limits.perNamespace",
    ),
    _Flag("--default-request", "The request of missing members, for groups without minResources."),
    _Flag("--reserve-after", "The wait of a group before nodes are reserved for it."),
    _Flag("--start-timeout", "The time limit of a suspended job from its admission until all its pods run."),
    _Flag("--max-run-time", "The run time limit of jobs that wait suspended."),
    _preemption_flag("after", "The wait of a group before other groups are evicted for it."),
    _preemption_flag("at-most", "The maximum wait before an eviction, whatever work is lost by it."),
    _preemption_flag("patience", "The factor on the need of a group: the product must exceed the lost work."),
    _preemption_flag("min-runtime", "The minimum run time of its groups before they may be evicted."),
    _preemption_flag("honour", "The protections that reclaim from the queue respects."),
    _preemption_flag("max-grace-period", "The maximum grace period of its evicted pods."),
    _preemption_flag("within-queue", "Whether its groups preempt groups of the same queue."),
    _preemption_flag("unmanaged", "Whether its groups preempt pods that Muster does not manage."),
    _preemption_flag(
        "borrow-within-cohort",
        "Whether its groups preempt others above the deserved share.",
        "borrowWithinCohort.policy",
    ),
    _preemption_flag("consolidation", "Whether its groups are moved for others, and others for them."),
    _preemption_flag(
        "max-priority-threshold",
        "The highest priority of groups that borrow-within-cohort preempts.",
        "borrowWithinCohort.maxPriorityThreshold",
    ),
)


class SpecCommand(click.Command):
    """Command with the flags of a queue's spec. Their types are read from the CRD when they are needed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own_parameters, help_option = super().get_params(ctx)
        spec = _spec_schema()
        options = [flag.option(spec) for flag in _FLAGS]
        return [*own_parameters[:_NAME_PARAMETERS], *options, *own_parameters[_NAME_PARAMETERS:], help_option]


_NAME_PARAMETERS = 2  # NAME and --name come before the flags of the spec


@cache
def _spec_schema() -> Json:
    (crd,) = read(CRDS[:1])  # the CRD of queues
    (version,) = crd["spec"]["versions"]
    schema: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def pop_spec(options: Json) -> Json:
    """Remove the flags of a spec from `options`; return the spec, in which None removes a field of a queue.

    Flags for parts of one field, such as --limits and --user-limits, are merged.
    """
    spec: Json = {}
    for flag in _FLAGS:
        if (value := options.pop(flag.name.replace("-", "_"))) is not None:
            *parents, last_field = flag.path
            parent = spec
            for step in parents:
                parent = parent.setdefault(step, {})
            former_value = parent.get(last_field)
            parent[last_field] = {**former_value, **value} if isinstance(former_value, dict) else value
    return spec


class Timeout(NamedTuple):
    """Timeout in seconds (0 means no limit), and its text."""

    seconds: float
    text: str


_TIMEOUT = Kind(
    "0 or a duration such as 30s or 5m", lambda text: Timeout(0.0 if text == "0" else as_seconds(text), text)
)


timeout_flag = click.option(
    "--timeout",
    metavar="DURATION",
    default="0",
    show_default=True,
    callback=parser_of(_TIMEOUT),
    help="How long to wait, such as 30s or 5m; 0 means without limit.",
)


@click.command("create", cls=SpecCommand)
@one_name
@dry_run_flag
@result_flag
@access_flags
def create_queue(name: str, dry_run: str, output: str | None, **options: Any) -> None:
    """Create a queue.

    Fields without a flag have the API server's defaults: weight 1, Open.
    """
    from extender.kube.resources import QUEUES

    spec = pop_spec(options)
    # A new queue has no amounts to remove.
    for flag in _FLAGS:
        value: Any = spec
        for step in flag.path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, dict) and None in value.values():
            raise click.UsageError(f"--{flag.name}: invalid value NAME-: must be {_AMOUNTS} in a new queue")
    queue: Json = {"apiVersion": QUEUES.version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    if dry_run != CLIENT:
        with open_access(Flags(**options)) as access:
            is_dry_run = dry_run == SERVER
            queue = access.editor.create(QUEUES, "", queue, is_dry_run)
            if spec.get("state") != "Open":  # the default of new queues
                access.editor.ensure_state(queue, spec.get("state"), is_dry_run)
            _warn_of_missing_parent(access, spec)
    show_result(queue, "created", output, dry_run)


@click.command("update", cls=SpecCommand)
@one_name
@dry_run_flag
@result_flag
@access_flags
def update_queue(name: str, dry_run: str, output: str | None, **options: Any) -> None:
    """Change the given fields of a queue.

    `--capability cpu-` removes the limit of cpu.
    """
    spec = pop_spec(options)
    if not spec:
        flags = ", ".join(f"--{flag.name}" for flag in _FLAGS)
        raise click.UsageError(f"nothing to change: give at least one of {flags}")
    with open_access(Flags(**options)) as access:
        changed_queue = update_spec(access, name, spec, dry_run)
    show_result(changed_queue, "updated", output, dry_run)


def update_spec(access: ClusterAccess, name: str, spec: Json, dry_run: str) -> Json:
    """Merge `spec` into the queue's spec, and return the changed queue. A dry run writes nothing."""
    from extender.cli.lookup import fetch
    from extender.kube.resources import QUEUES

    old_queue = fetch(access.reader, QUEUES, "", name, Json)
    if dry_run == CLIENT:
        result: Json = merged(old_queue, {"spec": spec})
        return result
    changed_queue = access.editor.change_queue(name, spec, dry_run=dry_run == SERVER)
    _warn_of_missing_parent(access, spec)
    return changed_queue


def _warn_of_missing_parent(access: ClusterAccess, spec: Json) -> None:
    """Warn if the parent queue does not exist.

    The queue has been written already, so a parent that may not be read is no error.
    """
    from extender.cli.lookup import fetch
    from extender.kube.errors import ApiError, NotFound
    from extender.kube.resources import QUEUES

    if spec.get("parent", ROOT_QUEUE) in ("", ROOT_QUEUE):
        return
    try:
        fetch(access.reader, QUEUES, "", spec["parent"], Json)
    except ApiError:
        return
    except click.ClickException as fault:
        if isinstance(fault.__cause__, NotFound):
            effect = "Until the parent exists, the groups of this queue wait (InvalidSpec)."
            click.echo(f"Warning: --parent: {fault.message}\n{effect}", err=True)
