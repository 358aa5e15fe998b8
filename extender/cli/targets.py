"""What a person asks about: NAME, or KIND/NAME as `kubectl get -o name` writes it."""

from typing import NamedTuple

import click

POD, POD_GROUP, QUEUE = "pod", "podgroup", "queue"
_API_GROUP = ".scheduling.volcano.sh"
_OWN = {
    **dict.fromkeys(("pod", "pods", "po"), POD),
    **dict.fromkeys(("podgroup", "podgroups", "pg"), POD_GROUP),
    **dict.fromkeys(("queue", "queues", "q"), QUEUE),
}


class Target(NamedTuple):
    """`kind`: pod, podgroup, queue, or a name of a kind of workload; empty where only a name was given."""

    kind: str
    name: str


def parsed(_context: click.Context, _parameter: click.Parameter, value: str) -> Target:
    kind, slash, name = value.partition("/")
    if not slash:
        return Target("", _named(value, value))
    return Target(_known(kind.lower(), value), _named(name, value))


def own_kind(name: str) -> str:
    """Which of pod, podgroup and queue it is; empty for another kind."""
    return _OWN.get(name.removesuffix(_API_GROUP), "")


def _named(name: str, value: str) -> str:
    if not name or "/" in name:
        raise click.BadParameter(f"got {value!r}; allowed is NAME or KIND/NAME, such as podgroup/train")
    return name


def _known(kind: str, value: str) -> str:
    from extender.cli.owner_kinds import FURTHER, owner_kind, owner_kinds

    own = own_kind(kind)
    if own or owner_kind(kind):
        return own or kind
    others = ", ".join(dict.fromkeys(each.name.lower() for each in owner_kinds()))
    allowed = f"pod, podgroup, queue, {others}{FURTHER}"
    raise click.BadParameter(f"got {value!r}; allowed before the / is {allowed}")
