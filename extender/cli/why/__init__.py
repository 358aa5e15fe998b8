"""`muster why`: the reason of a wait, the numbers behind it, and remedies.

The command reads objects of the API server with its user's rights (`evidence`), makes a record of the answer
(`answers`, `diagnosis`, `commands`), and prints the record (`rendering`). While Muster is down, it shows the
last state.
"""

from typing import Any

import click

from extender.cli.access import Flags, access_flags, open_access
from extender.cli.completion import complete_target, complete_what_if_term
from extender.cli.kinds import Target, config_option, parse_target
from extender.cli.output import echo, output_flag, show_document


@click.command()
@click.argument("target", callback=parse_target, metavar="NAME|KIND/NAME", shell_complete=complete_target)
@click.option(
    "--what-if",
    "terms",
    multiple=True,
    metavar="TERM",
    shell_complete=complete_what_if_term,
    help="Show the decisions after a change, such as nodes=+2, queue.weight=research:4,"
    " minMember=3 or delete=podgroup/x; may be given several times. Nothing is written.",
)
@output_flag(("text", "json", "yaml"), "text")
@access_flags
def why(target: Target, terms: tuple[str, ...], output: str, **flags: Any) -> None:
    """Explain why an object waits, and how to help.

    NAME may be a pod, a group, a queue or a workload. KIND is pod, podgroup, queue, or a kind of workload:
    job, cronjob, deployment, statefulset, jobset, pytorchjob, rayjob and others, as kubectl names them. For
    a workload, the answer is about the groups of its pods.

    The command needs the rights of a submitter: to read pods and podgroups of the namespace, and queues
    for shares and limits. --what-if reads the pods, groups and nodes of the whole cluster.
    """
    if terms:
        from extender.cli.suppositions import show_what_if

        return show_what_if(Flags(**flags), target, terms, output)
    with open_access(Flags(**flags)) as access:
        from extender.cli.why.answers import answers

        explanations = answers(access, target)
        from extender.cli.why.rendering import document, join_texts, paragraphs, rendered_list

    if output == "text":
        is_single = len(explanations) == 1
        echo(join_texts(*paragraphs(explanations[0])) if is_single else rendered_list(target, explanations))
    else:
        single, *others = map(document, explanations)
        show_document({"kind": "List", "items": [single, *others]} if others else single, output)


why.params.append(config_option())
