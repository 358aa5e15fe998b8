"""`muster why`: what a pod, a group or a queue waits for, in a sentence, with the numbers behind it.

It reads objects of the API server and nothing else, with the rights of its user; so it works from
anywhere, and also while Muster is down: then it tells what was written last.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from extender.cli.access import ClusterAccess, Flags, access_flags, opened
from extender.cli.completion_names import complete_target
from extender.cli.output import echo, output_flag, show_document

if TYPE_CHECKING:
    from extender.cli.explain.explanation import Explanation

_KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("podgroup", "podgroups", "pg"), "podgroup"),
    **dict.fromkeys(("queue", "queues", "q"), "queue"),
}
_ALLOWED = "POD, podgroup/NAME or queue/NAME"
_API_GROUP = ".scheduling.volcano.sh"


class Target(NamedTuple):
    kind: str
    name: str


def _target(_context: click.Context, _parameter: click.Parameter, value: str) -> Target:
    """POD, or KIND/NAME as `kubectl get -o name` writes it."""
    kind, slash, name = value.partition("/")
    if not slash:
        kind, name = "pod", value
    known = _KINDS.get(kind.lower().removesuffix(_API_GROUP))
    if not known or not name or "/" in name:
        raise click.BadParameter(f"got {value!r}; allowed is {_ALLOWED}")
    return Target(known, name)


@click.command()
@click.argument(
    "target", callback=_target, metavar="POD|podgroup/NAME|queue/NAME", shell_complete=complete_target
)
@output_flag(("text", "json", "yaml"), "text")
@access_flags
def why(target: Target, output: str, **flags: Any) -> None:
    """Say why a pod, a group or a queue waits, and what would help.

    It needs the permissions of a submitter: to read pods and podgroups of the namespace, and, for shares
    and limits, queues.
    """
    with opened(Flags(**flags)) as place:
        answer = explanation_of(place, target)
    if output == "text":
        from extender.cli.explain.rendering import told

        echo(told(answer))
    else:
        import msgspec

        show_document(msgspec.to_builtins(answer), output)


def explanation_of(place: ClusterAccess, target: Target) -> "Explanation":
    from extender.api.objects import Pod
    from extender.cli.explain.evidence import Evidence
    from extender.cli.explain.groups import explain_group
    from extender.cli.explain.pods import explain_pod
    from extender.cli.explain.queues import explain_queue
    from extender.cli.lookup import fetch
    from extender.cli.observed import ObservedGroup, ObservedQueue
    from extender.kube.resources import POD_GROUPS, PODS, QUEUES

    evidence = Evidence(place.reader, place.namespace)
    match target.kind:
        case "pod":
            return explain_pod(evidence, fetch(place.reader, PODS, place.namespace, target.name, Pod))
        case "podgroup":
            group = fetch(place.reader, POD_GROUPS, place.namespace, target.name, ObservedGroup)
            return explain_group(evidence, group)
    return explain_queue(evidence, fetch(place.reader, QUEUES, "", target.name, ObservedQueue))
