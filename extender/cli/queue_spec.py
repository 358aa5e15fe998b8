"""`muster queue create` and `update`: the flags that say what a queue is, and the spec that they make. Only
what a value alone shows is judged here; the rest is for the API server and Muster's admission.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from extender.api.keys import BUDGETS, PREEMPTABLE_WORD, ROOT_QUEUE
from extender.api.objects.base import merged
from extender.api.setting_kinds import Kind, kept
from extender.api.units import BadQuantity, as_seconds, at_least, misnamed
from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.completion import complete_queue
from extender.cli.output import (
    CLIENT,
    SERVER,
    Json,
    WholeNumber,
    checked,
    dry_run_flag,
    result_flag,
    show_result,
)
from extender.domain.queues.spec import MOST_OVERSELL, MOST_PATIENCE

F = TypeVar("F", bound=Callable[..., Any])

_HEAVIEST = 65_535
_INT32 = 2**31 - 1
_COUNTS = "groups=NUMBER, pods=NUMBER or both with a comma between, such as groups=2,pods=40"
_AMOUNTS = "NAME=QUANTITY with commas between, such as cpu=8,memory=16Gi"

# Read before NAME, whose callback takes it.
_VCCTL_NAME = click.option("--name", "named", metavar="NAME", is_eager=True, help="The same as NAME.")


def _named(context: click.Context, given: tuple[str, ...], required: bool = True) -> tuple[str, ...]:
    """What NAME or --name gives. It may be given in both ways, but not two different ones."""
    named = context.params.pop("named", None)
    if named and given and given != (named,):
        raise click.UsageError(f"--name: got {named!r} as well as NAME {given[0]!r}; allowed is one of them")
    found = given or (() if named is None else (named,))
    if not all(found) or (required and not found):
        raise click.UsageError("NAME: got nothing; allowed is the name of a queue")
    return found


def one_name(command: F) -> F:
    """NAME or --name, as `name`."""
    argument = click.argument(
        "name",
        required=False,
        callback=lambda context, _, name: _named(context, (name,) if name else ())[0],
        shell_complete=complete_queue,
    )
    return _VCCTL_NAME(argument(command))


def several_names(required: bool = True) -> Callable[[F], F]:
    """NAME... or --name, as `names`."""
    argument = click.argument(
        "names",
        metavar="[NAME]...",
        nargs=-1,
        callback=lambda context, _, names: _named(context, names, required),
        shell_complete=complete_queue,
    )
    return lambda command: _VCCTL_NAME(argument(command))


# ---- flags


def _pairs(read: Callable[[str], tuple[str, Any]], allowed: str) -> Callable[..., Any]:
    """`cpu=8,memory=16Gi` as a mapping; `cpu-` takes cpu away."""
    return checked(Kind(f"{allowed}; NAME- takes one away", lambda text: dict(map(read, text.split(",")))))


def _amount(text: str) -> tuple[str, str | None]:
    name, given, quantity = text.strip().partition("=")
    if not given and name.endswith("-") and len(name) > 1:
        return name[:-1], None
    if what := misnamed(name):
        raise click.BadParameter(what)
    if not name or not given or at_least(quantity) < 0:
        raise BadQuantity(text)
    return name, quantity


def _count(text: str) -> tuple[str, int | None]:
    name, given, number = text.strip().partition("=")
    if name.removesuffix("-") not in ("groups", "pods") or bool(given) == name.endswith("-"):
        raise ValueError(text)
    if not given:
        return name[:-1], None
    if not 0 <= int(number) <= _INT32:
        raise ValueError(text)
    return name, int(number)


def _factor(least: int, most: int) -> Callable[..., Any]:
    allowed = f"a number from {least} to {most}, such as 1.5"
    return checked(Kind(allowed, kept(lambda text: least * 1000 <= at_least(text, 1000) <= most * 1000)))


_DURATION = Kind("a duration such as 90s, 10m or 1h30m", kept(lambda text: as_seconds(text) >= 0))
_OF_AMOUNTS = {"metavar": "NAME=QUANTITY,...", "callback": _pairs(_amount, _AMOUNTS)}
_OF_COUNTS = {"metavar": "groups=N,pods=N", "callback": _pairs(_count, _COUNTS)}
_OF_FACTOR = {"metavar": "FACTOR", "callback": _factor(1, MOST_OVERSELL)}
_OF_PATIENCE = {"metavar": "FACTOR", "callback": _factor(0, MOST_PATIENCE)}
_OF_TRUTH = {
    "type": click.Choice(["true", "false"]),
    "callback": lambda _, __, value: value and value == "true",
}
_OF_TIME = {"metavar": "DURATION", "callback": checked(_DURATION)}
_WEIGHTS, _WHOLE = {"type": WholeNumber(1, _HEAVIEST)}, {"type": WholeNumber(0, _INT32)}
_INT = {"type": WholeNumber(-_INT32 - 1, _INT32)}
_STATES = {"type": click.Choice(["Open", "Closed"])}
_ORDERS = {"type": click.Choice(["traverse", "fifo", "priority", "rotation", "mixed", "fair"])}
_PLACEMENTS = {"type": click.Choice(["Pack", "Spread"])}
_TURNS = {"type": click.Choice(["Instant", "Historical"])}
_HONOURED = (BUDGETS, PREEMPTABLE_WORD)


def _honour(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    if not {*names} <= {*_HONOURED}:
        raise ValueError(text)
    return names


_OF_HONOUR = {
    "metavar": "NAME,...",
    "callback": checked(Kind(f"none, or of {' and '.join(_HONOURED)} one or both with a comma", _honour)),
}
_VICTIMS = {"type": click.Choice(["Never", "LowerPriority"])}
_STOPS = {"type": click.Choice(["None", "Hold", "HoldAndDrain"])}


class _Flag(NamedTuple):
    written: str  # its names, the long one last
    kind: Mapping[str, Any]  # for click.option
    help: str
    place: str = ""  # in the spec, if it is not called as the flag

    @property
    def name(self) -> str:
        return self.written.rpartition("--")[2]

    @property
    def path(self) -> list[str]:
        first, *others = self.name.split("-")
        return (self.place or first + "".join(map(str.capitalize, others))).split(".")


def _preemption(name: str, kind: Mapping[str, Any], help: str, field: str = "") -> _Flag:
    """For a field of spec.preemption."""
    flag = _Flag(f"--preemption-{name}", kind, help)
    return flag._replace(place=f"preemption.{field or _Flag(f'--{name}', kind, help).path[0]}")


_FLAGS = (
    _Flag("-w --weight", _WEIGHTS, "Its part of what queues share."),
    _Flag("--capability", _OF_AMOUNTS, "The most that the queue may use."),
    _Flag("--deserved", _OF_AMOUNTS, "What it deserves before the rest is divided by weight."),
    _Flag("--guarantee", _OF_AMOUNTS, "Reserved for the queue even while it is idle.", "guarantee.resource"),
    _Flag("--borrowing-limit", _OF_AMOUNTS, "The most that it may use above what it deserves."),
    _Flag("--lending-limit", _OF_AMOUNTS, "The most of --deserved that others may use."),
    _Flag("--oversell", _OF_FACTOR, "How many times its capability may be admitted."),
    _Flag("--parent", {"metavar": "QUEUE"}, "The queue above it."),
    _Flag("--priority", _WHOLE, "Queues of higher priority are served first."),
    _Flag("-S --state", _STATES, "Whether it takes groups."),
    _Flag("--reclaimable", _OF_TRUTH, "Whether others may take back what it uses above its share."),
    _Flag("--restricted", _OF_TRUTH, 'Whether using it takes the verb "use" on it, granted by RBAC.'),
    _Flag(
        "--dequeue-strategy", _ORDERS, "Which of its groups is tried next, and whether others may pass it."
    ),
    _Flag(
        "--priority-threshold", _INT, "With the strategy mixed: from which priority on groups let none pass."
    ),
    _Flag("--ageing", _WHOLE, "The priority that its groups gain per hour of waiting."),
    _Flag(
        "--placement", _PLACEMENTS, "Whether its pods fill nodes one after the other, or spread over them."
    ),
    _Flag("--fair-share", _TURNS, "Whether what queues below it held lately counts when they take turns."),
    _Flag("--stop-policy", _STOPS, "Whether it admits nothing new, and drains."),
    _Flag("--limits", _OF_COUNTS, "The most that it runs at once."),
    _Flag("--user-limits", _OF_COUNTS, "The most that it runs at once for each user.", "limits.perUser"),
    _Flag(
        "--namespace-limits",
        _OF_COUNTS,
        "The most that it runs at once for each namespace.",
        "limits.perNamespace",
    ),
    _Flag(
        "--default-request",
        _OF_AMOUNTS,
        "What a member counts for before it is there, in groups without minResources.",
    ),
    _Flag("--reserve-after", _OF_TIME, "How long a group waits before room is reserved for it."),
    _Flag(
        "--start-timeout", _OF_TIME, "How long a job that waited suspended may take until all its pods run."
    ),
    _Flag("--max-run-time", _OF_TIME, "How long a job that waited suspended may run."),
    _preemption("after", _OF_TIME, "How long its groups wait before room is taken from others for them."),
    _preemption("at-most", _OF_TIME, "How long they wait at most, whatever work others lose."),
    _preemption("patience", _OF_PATIENCE, "How many times what they go without others may lose until then."),
    _preemption("min-runtime", _OF_TIME, "How long its groups run at least before others take their room."),
    _preemption("honour", _OF_HONOUR, "What keeps its pods from others that take room back."),
    _preemption("max-grace-period", _OF_TIME, "How long its pods that make room get to end at most."),
    _preemption("within-queue", _VICTIMS, "Whether they take room from groups of their queue."),
    _preemption("unmanaged", _VICTIMS, "Whether they take room from pods that are not Muster's."),
    _preemption(
        "borrow-within-cohort",
        _VICTIMS,
        "Whether they take room beyond what the queue deserves.",
        "borrowWithinCohort.policy",
    ),
    _preemption("consolidation", _OF_TRUTH, "Whether its groups move, and have others moved, to fit."),
    _preemption(
        "max-priority-threshold",
        _INT,
        "With that, from groups of this priority at most.",
        "borrowWithinCohort.maxPriorityThreshold",
    ),
)


def spec_flags(command: F) -> F:
    for flag in reversed(_FLAGS):
        command = click.option(*flag.written.split(), help=flag.help, **flag.kind)(command)
    return command


def taken(options: Json) -> Json:
    """The spec that the flags among `options` make, which are taken out of it. A null takes a field away.
    Amounts and counts join those of flags for the same field."""
    spec: Json = {}
    for flag in _FLAGS:
        if (value := options.pop(flag.name.replace("-", "_"))) is not None:
            *above, last = flag.path
            place = spec
            for step in above:
                place = place.setdefault(step, {})
            there = place.get(last)
            place[last] = {**there, **value} if isinstance(there, dict) else value
    return spec


class Timeout(NamedTuple):
    """In seconds, 0 for no limit, and as it was written."""

    seconds: float
    written: str


_TIMEOUT = Kind(
    "0 or a duration such as 30s or 5m",
    lambda text: Timeout(0.0 if text == "0" else as_seconds(text), text),
)


timeout_flag = click.option(
    "--timeout",
    metavar="DURATION",
    default="0",
    show_default=True,
    callback=checked(_TIMEOUT),
    help="How long to wait, such as 30s or 5m; 0 means without limit.",
)


@click.command("create")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def create_queue(name: str, dry_run: str, output: str | None, **rest: Any) -> None:
    """Create a queue. What no flag says is as the API server fills it in: weight 1, Open."""
    from extender.kube.resources import QUEUES

    spec = taken(rest)
    # What is not there yet cannot be taken away.
    for flag in _FLAGS:
        found: Any = spec
        for step in flag.path:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict) and None in found.values():
            raise click.UsageError(f"--{flag.name}: got NAME-; allowed in a new queue is {_AMOUNTS}")
    queue: Json = {"apiVersion": QUEUES.version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    if dry_run != CLIENT:
        with opened(Flags(**rest)) as place:
            dry = dry_run == SERVER
            queue = place.editor.create(QUEUES, "", queue, dry)
            if spec.get("state") != "Open":  # as new queues are
                place.editor.see_to_state(queue, spec.get("state"), dry)
            _see_to_parent(place, spec)
    show_result(queue, "created", output, dry_run)


@click.command("update")
@one_name
@spec_flags
@dry_run_flag
@result_flag
@access_flags
def update_queue(name: str, dry_run: str, output: str | None, **rest: Any) -> None:
    """Change what the flags name, and nothing else. `--capability cpu-` takes the limit of cpu away."""
    spec = taken(rest)
    if not spec:
        allowed = ", ".join(f"--{flag.name}" for flag in _FLAGS)
        raise click.UsageError(f"nothing to change; allowed is at least one of {allowed}")
    with opened(Flags(**rest)) as place:
        changed = updated(place, name, spec, dry_run)
    show_result(changed, "updated", output, dry_run)


def updated(place: ClusterAccess, name: str, spec: Json, dry_run: str) -> Json:
    """The queue after its spec was merged with `spec`."""
    from extender.cli.lookup import fetch
    from extender.kube.resources import QUEUES

    before = fetch(place.reader, QUEUES, "", name, Json)
    if dry_run == CLIENT:
        result: Json = merged(before, {"spec": spec})
        return result
    dry = dry_run == SERVER
    changed = place.editor.change_queue(name, spec, dry)
    _see_to_parent(place, spec)
    return changed


def _see_to_parent(place: ClusterAccess, spec: Json) -> None:
    """Warns of one that is not there. The queue is written already: what cannot be read is no error."""
    from extender.cli.lookup import fetch
    from extender.kube.errors import ApiError, NotFound
    from extender.kube.resources import QUEUES

    if spec.get("parent", ROOT_QUEUE) in ("", ROOT_QUEUE):
        return
    try:
        fetch(place.reader, QUEUES, "", spec["parent"], Json)
    except ApiError:
        return
    except click.ClickException as fault:
        if isinstance(fault.__cause__, NotFound):
            waits = "Until it is there, the groups of this queue wait (InvalidSpec)."
            click.echo(f"Warning: --parent: {fault.message}\n{waits}", err=True)
