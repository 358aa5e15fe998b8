"""`muster why --what-if`: what would be decided if what is supposed held, worked out here on what the API
server has. Nothing is written."""

from collections.abc import Iterator, Sequence

import click
import msgspec

from extender.api.texts import and_more, listed
from extender.cli.access import ClusterAccess, Flags, opened
from extender.cli.kinds import Target
from extender.cli.live import LiveCluster
from extender.cli.output import echo, folded, show_document
from extender.cli.why.explanation import Explanation
from extender.cli.why.rendering import joined
from extender.cli.why.subjects import answers
from extender.domain.explain.what_if import (
    STARTS,
    BadTerm,
    ChangedGroup,
    Outlook,
    WhatIf,
    suppositions,
    what_if,
)
from extender.domain.model.reasons import Verdict, sentence
from extender.domain.model.records import GroupKey
from extender.kube.errors import Forbidden

_INDENT = "  "
_GOES_ON = {
    Verdict.STARTING: "would be starting, as it is now",
    Verdict.RUNNING: "would go on running",
    Verdict.ENDED: "has ended",
}


def show_what_if(flags: Flags, target: Target, texts: Sequence[str], output: str) -> None:
    try:
        terms = suppositions(texts)
        with opened(flags) as place:
            asked = answers(place, target)
            live = live_cluster(place, "--what-if")
            snapshot = live.ledger.snapshot()
            about = _group_of(live, target, asked)
            if about not in snapshot.groups:
                raise click.ClickException(f"Muster knows no group {about}")
            found = what_if(snapshot, terms, about)
    except BadTerm as fault:
        raise click.UsageError(f"--what-if: {fault}") from fault
    if output == "text":
        echo(joined(*_paragraphs(found), "\n".join(folded(note) for note in live.notes)))
    else:
        show_document({**msgspec.to_builtins(found), "notes": live.notes}, output)


def live_cluster(place: ClusterAccess, what: str) -> LiveCluster:
    """Ends the command where what all decisions depend on may not be read."""
    try:
        return LiveCluster(place)
    except Forbidden as fault:
        needed = "the right to list nodes, namespaces, priorityclasses, queues, podgroups and pods everywhere"
        raise click.ClickException(f"not allowed: {fault.message}\n{what} takes {needed}.") from fault


def _group_of(live: LiveCluster, target: Target, found: Sequence[Explanation]) -> GroupKey:
    keys = list(dict.fromkeys(key for answer in found if (key := _key_of(live, answer))))
    if len(keys) == 1:
        return keys[0]
    named = f"{target.kind}/{target.name}" if target.kind else target.name
    what = f"means several groups: {listed(keys)}" if keys else "is no group, and in none"
    raise click.UsageError(f"--what-if: {named} {what}; allowed is one group, or a pod or workload of it")


def _key_of(live: LiveCluster, answer: Explanation) -> GroupKey:
    """Empty for what is no group, and in none."""
    if answer.kind == "PodGroup" or answer.group:
        return GroupKey(f"{answer.namespace}/{answer.group or answer.name}")
    pod = live.ledger.pods.find(answer.namespace, answer.name) if answer.kind == "Pod" else None
    return pod.group if pod else GroupKey("")


def _paragraphs(found: WhatIf) -> Iterator[str]:
    if found.group is not None:
        yield folded(f"If {' and '.join(found.terms)}, {found.group.called} {_future(found.group)}")
        yield "\n".join(_said(found.group.after))
    others = [
        folded(f"{it.called} {_future(it)}", _INDENT, hanging=_INDENT) for it in found.others
    ] + and_more(found.more_others)
    yield (
        "\n".join([click.style("Of others:", dim=True), *others]) if others else "Of others, nothing changes."
    )


def _future(group: ChangedGroup) -> str:
    """`would start now; without that, it waits: NoRoom.`"""
    before, after = group.before, group.after
    if group.change == STARTS:
        return f"would start now. Without that, it waits: {before.reason}."
    if after.verdict is not Verdict.WAITING:
        lost = f", and give up the room of {after.evicted} of its pods" if after.evicted else ""
        return f"{_GOES_ON[after.verdict]}{lost}."
    if before.verdict is not Verdict.WAITING:
        return f"would not start now, as it does without that: {after.reason}."
    where = (
        f", at position {after.position} instead of {before.position}"
        if before.position and after.position and before.position != after.position
        else ""
    )
    instead = f" instead of {before.reason}" if after.reason != before.reason else ""
    return f"would still wait{where}: {after.reason}{instead}."


def _said(outlook: Outlook) -> Iterator[str]:
    """Of a group that would wait, what that means, and the numbers."""
    if outlook.verdict is Verdict.WAITING:
        yield folded(sentence(outlook.reason), _INDENT)
        yield folded(outlook.message, _INDENT)
