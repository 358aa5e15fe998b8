"""`muster queue create` and `update`: the flags that say what a queue is, and the spec that they make."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.durations import as_seconds
from extender.api.objects.base import merged
from extender.api.quantities import BadQuantity, at_least
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.completion import complete_queue
from extender.cli.flags import CLIENT, SERVER, dry_run_flag, result_flag, show_result
from extender.cli.output import Json
from extender.domain.queues.spec import MOST_OVERSELL

# ---- Which queue a command is about: NAME as kubectl takes it, or --name as vcctl does.

F = TypeVar("F", bound=Callable[..., Any])


def one_name(command: F) -> F:
    """NAME or --name, as `name` and `named`."""
    command = click.argument("name", required=False, shell_complete=complete_queue)(command)
    return _vcctl_name(command)


def several_names(command: F) -> F:
    """NAME... or --name, as `names` and `named`."""
    argument = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_queue)
    return _vcctl_name(argument(command))


def _vcctl_name(command: F) -> F:
    return click.option("--name", "named", metavar="NAME", help="The same as NAME.")(command)


def the_name(name: str | None, named: str | None) -> str:
    """The one that was given. It may be given in both ways, but not two different ones."""
    (found,) = the_names((name,) if name else (), named)
    return found


def the_names(names: tuple[str, ...], named: str | None) -> tuple[str, ...]:
    if named and names and names != (named,):
        raise click.UsageError(f"--name: got {named!r} as well as NAME {names[0]!r}; allowed is one of them")
    found = names or ((named,) if named else ())
    if not all(found) or not found:
        raise click.UsageError("NAME: got nothing; allowed is the name of a queue")
    return found


# ---- The flags that say what a queue is, and the spec that they make. Names and values are those of
# `spec`.
#
# Only what can be read from a value alone is judged here, so that a mistake is reported with its flag.
# All the rest is for the API server and Muster's admission to say.

G = TypeVar("G", bound=Callable[..., Any])
Spec = dict[str, Any]

_HEAVIEST = 65_535
_INT32 = 2**31 - 1
_COUNTS = "groups=NUMBER, pods=NUMBER or both with a comma between, such as groups=2,pods=40"
_AMOUNTS = "NAME=QUANTITY with commas between, such as cpu=8,memory=16Gi"


def _amounts(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Spec | None:
    """`cpu=8,memory=16Gi` as a mapping; `cpu-` takes cpu away."""
    if value is None:
        return None
    try:
        return dict(map(_amount, value.split(",")))
    except ValueError as fault:
        raise click.BadParameter(f"got {value!r}; allowed is {_AMOUNTS}; NAME- takes one away") from fault


def _amount(text: str) -> tuple[str, str | None]:
    name, given, quantity = text.strip().partition("=")
    if not given and name.endswith("-") and len(name) > 1:
        return name[:-1], None
    if not name or not given or at_least(quantity) < 0:
        raise BadQuantity(text)
    return name, quantity


def _counts(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Spec | None:
    """`groups=2,pods=40` as a mapping; `groups-` takes that limit away."""
    if value is None:
        return None
    try:
        return dict(map(_count, value.split(",")))
    except ValueError as fault:
        raise click.BadParameter(f"got {value!r}; allowed is {_COUNTS}; NAME- takes one away") from fault


def _count(text: str) -> tuple[str, int | None]:
    name, given, number = text.strip().partition("=")
    if name.removesuffix("-") not in ("groups", "pods") or bool(given) == name.endswith("-"):
        raise ValueError(text)
    if not given:
        return name[:-1], None
    if not 0 <= int(number) <= _INT32:
        raise ValueError(text)
    return name, int(number)


def _factor(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        fits = value is None or 1000 <= at_least(value, 1000) <= MOST_OVERSELL * 1000
    except BadQuantity:
        fits = False
    if not fits:
        raise click.BadParameter(f"got {value!r}; allowed is a number from 1 to {MOST_OVERSELL}, such as 1.5")
    return value


def _truth(_context: click.Context, _parameter: click.Parameter, value: str | None) -> bool | None:
    return None if value is None else value == "true"


def _duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            as_seconds(value)
    except ValueError as fault:
        raise click.BadParameter(f"got {value!r}; allowed is a duration such as 90s, 10m or 1h30m") from fault
    return value


class _Flag(NamedTuple):
    """`path`: where it stands in the spec."""

    names: tuple[str, ...]
    path: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def parameter(self) -> str:
        return self.names[-1].removeprefix("--").replace("-", "_")


def _of_amounts(name: str, *path: str, help: str) -> _Flag:
    return _Flag((name,), path, {"metavar": "NAME=QUANTITY,...", "callback": _amounts, "help": help})


def _of_counts(name: str, *path: str, help: str) -> _Flag:
    return _Flag((name,), path, {"metavar": "groups=N,pods=N", "callback": _counts, "help": help})


def _of_truth(name: str, help: str) -> _Flag:
    kind = {"type": click.Choice(["true", "false"]), "callback": _truth, "help": help}
    return _Flag((name,), (name.removeprefix("--"),), kind)


_WEIGHT = {"type": click.IntRange(1, _HEAVIEST), "help": "Its part of what queues share."}
_OVERSELL = {
    "metavar": "FACTOR",
    "callback": _factor,
    "help": "How many times its capability may be admitted.",
}
_PRIORITY = {"type": click.IntRange(0, _INT32), "help": "Queues of higher priority are served first."}
_STATES = {"type": click.Choice(["Open", "Closed"]), "help": "Whether it takes groups."}
_ORDERS = {
    "type": click.Choice(["traverse", "fifo", "priority", "rotation", "mixed"]),
    "help": "Which of its groups is tried next, and whether others may pass it.",
}
_THRESHOLD = {
    "type": click.IntRange(-_INT32 - 1, _INT32),
    "help": "With the strategy mixed: from which priority on groups let none pass.",
}
_AGEING = {
    "type": click.IntRange(0, _INT32),
    "help": "The priority that its groups gain per hour of waiting.",
}
_STOPS = {
    "type": click.Choice(["None", "Hold", "HoldAndDrain"]),
    "help": "Whether it admits nothing new, and drains.",
}
_PATIENCE, _START_TIMEOUT, _MAX_RUN_TIME = (
    {"metavar": "DURATION", "callback": _duration, "help": text}
    for text in (
        "How long a group waits before room is reserved for it.",
        "How long a job that waited suspended may take until all its pods run.",
        "How long a job that waited suspended may run.",
    )
)

_FLAGS = (
    _Flag(("-w", "--weight"), ("weight",), _WEIGHT),
    _of_amounts("--capability", "capability", help="The most that the queue may use."),
    _of_amounts("--deserved", "deserved", help="What it deserves before the rest is divided by weight."),
    _of_amounts("--guarantee", "guarantee", "resource", help="Reserved for the queue even while it is idle."),
    _of_amounts(
        "--borrowing-limit", "borrowingLimit", help="The most that it may use above what it deserves."
    ),
    _of_amounts("--lending-limit", "lendingLimit", help="The most of --deserved that others may use."),
    _Flag(("--oversell",), ("oversell",), _OVERSELL),
    _Flag(("--parent",), ("parent",), {"metavar": "QUEUE", "help": "The queue above it."}),
    _Flag(("--priority",), ("priority",), _PRIORITY),
    _Flag(("-S", "--state"), ("state",), _STATES),
    _of_truth("--reclaimable", "Whether others may take back what it uses above its share."),
    _of_truth("--restricted", 'Whether using it takes the verb "use" on it, granted by RBAC.'),
    _Flag(("--dequeue-strategy",), ("dequeueStrategy",), _ORDERS),
    _Flag(("--priority-threshold",), ("priorityThreshold",), _THRESHOLD),
    _Flag(("--ageing",), ("ageing",), _AGEING),
    _Flag(("--stop-policy",), ("stopPolicy",), _STOPS),
    _of_counts("--limits", "limits", help="The most that it runs at once."),
    _of_counts("--user-limits", "limits", "perUser", help="The most that it runs at once for each user."),
    _of_counts(
        "--namespace-limits",
        "limits",
        "perNamespace",
        help="The most that it runs at once for each namespace.",
    ),
    _of_amounts(
        "--default-request",
        "defaultRequest",
        help="What a member counts for before it is there, in groups without minResources.",
    ),
    _Flag(("--reserve-after",), ("reserveAfter",), _PATIENCE),
    _Flag(("--start-timeout",), ("startTimeout",), _START_TIMEOUT),
    _Flag(("--max-run-time",), ("maxRunTime",), _MAX_RUN_TIME),
)
FLAG_NAMES = tuple(flag.names[-1] for flag in _FLAGS)


def spec_flags(command: G) -> G:
    for flag in reversed(_FLAGS):
        command = click.option(*flag.names, **flag.options)(command)
    return command


def taken(options: Spec) -> Spec:
    """The spec that the flags among `options` make, which are taken out of it. A null takes a field away."""
    spec: Spec = {}
    for flag in _FLAGS:
        if (value := options.pop(flag.parameter)) is not None:
            _put(spec, flag.path, value)
    return spec


def refuse_removals(spec: Spec) -> None:
    """What is not there yet cannot be taken away."""
    for flag in _FLAGS:
        amounts = _found(spec, flag.path)
        if isinstance(amounts, dict) and None in amounts.values():
            raise click.UsageError(f"{flag.names[-1]}: got NAME-; allowed in a new queue is {_AMOUNTS}")


def _put(spec: Spec, path: tuple[str, ...], value: Any) -> None:
    """Amounts and counts join those of flags for the same field."""
    for step in path[:-1]:
        spec = spec.setdefault(step, {})
    there = spec.get(path[-1])
    spec[path[-1]] = {**there, **value} if isinstance(there, dict) else value


def _found(spec: Spec, path: tuple[str, ...]) -> Any:
    found: Any = spec
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


# ---- `muster queue create` and `update`.


@click.command("create")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def create_queue(name: str | None, named: str | None, dry_run: str, output: str | None, **rest: Any) -> None:
    """Create a queue. What no flag says is as the API server fills it in: weight 1, Open."""
    name, spec = the_name(name, named), taken(rest)
    refuse_removals(spec)
    made = _created(name, spec, dry_run, Flags(**rest))
    show_result(made, "created", output, dry_run)


def _created(name: str, spec: Json, dry_run: str, flags: Flags) -> Json:
    from extender.cli.bus_commands import see_to_state
    from extender.kube.resources import QUEUES

    queue: Json = {
        "apiVersion": QUEUES.version,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
    if dry_run == CLIENT:
        return queue
    with opened(flags) as place:
        dry = dry_run == SERVER
        made = place.editor.create(QUEUES, "", queue, dry)
        see_to_state(place, made, _other_than_new(spec.get("state")), dry)
        return made


def _other_than_new(state: str | None) -> str | None:
    """A new queue is Open without a flag."""
    return None if state == "Open" else state


@click.command("update")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def update_queue(name: str | None, named: str | None, dry_run: str, output: str | None, **rest: Any) -> None:
    """Change what the flags name, and nothing else. `--capability cpu-` takes the limit of cpu away."""
    name, spec = the_name(name, named), taken(rest)
    if not spec:
        raise click.UsageError(f"nothing to change; allowed is at least one of {', '.join(FLAG_NAMES)}")
    with opened(Flags(**rest)) as place:
        changed = updated(place, name, spec, dry_run)
    show_result(changed, "updated", output, dry_run)


def updated(place: ClusterAccess, name: str, spec: Json, dry_run: str) -> Json:
    """The queue after its spec was merged with `spec`."""
    from extender.cli.bus_commands import see_to_state
    from extender.cli.lookup import fetch
    from extender.kube.resources import QUEUES

    before = fetch(place.reader, QUEUES, "", name, Json)
    if dry_run == CLIENT:
        result: Json = merged(before, {"spec": spec})
        return result
    dry = dry_run == SERVER
    changed = place.editor.patch(QUEUES, "", name, {"spec": spec}, dry)
    see_to_state(place, changed, spec.get("state"), dry)
    return changed
