"""An answer as text for people: what is the matter, then the numbers, what is ahead, and what would help."""

from collections.abc import Iterable, Iterator, Sequence

import click

from extender.cli.explain.explanation import (
    ENDING,
    FOREIGN,
    OVER,
    PLACED,
    RUNNING,
    STARTING,
    UNSEEN,
    WAITING,
    Blocker,
    Explanation,
    OfferedCommand,
    QueueFigures,
    Uncounted,
)
from extender.cli.formatting import NOTHING, age, amount, amounts, number, percent
from extender.cli.output import folded, width
from extender.domain.model.resources import PODS
from extender.terminal.columns import columns

_MOST = 6  # others that are named; of more, only how many
_INDENT = "  "
_HEADINGS = {"Queue": "Queues above their share:"}
_LASTING = (WAITING, RUNNING, PLACED)  # verdicts of which it is known since when they hold
_COLOURS = {
    **dict.fromkeys((STARTING, RUNNING, PLACED, "Open"), "green"),
    **dict.fromkeys((OVER, ENDING, FOREIGN), "cyan"),
    **dict.fromkeys((UNSEEN, "Closed"), "red"),
}


def rendered(answer: Explanation) -> str:
    return joined(*paragraphs(answer))


def joined(*parts: str) -> str:
    """Paragraphs as one text, those with nothing to say left out."""
    return "\n\n".join(filter(None, parts))


def paragraphs(answer: Explanation) -> list[str]:
    """The first says what it is about, the second how it stands."""
    parts: Sequence[Iterable[str]] = (
        [folded(_heading_of(answer))],
        _verdict(answer),
        _members(answer),
        _queue(answer),
        _list("Pods that do not count:", map(_uncounted, answer.uncounted)),
        _others("Groups that wait in it:", answer.waiting),
        _others(_HEADINGS.get(answer.kind, "Ahead of it:"), answer.holders),
        _help(answer),
        [folded(note) for note in dict.fromkeys(answer.notes)],
    )
    return ["\n".join(lines) for part in parts if (lines := list(part))]


def _heading_of(answer: Explanation) -> str:
    where = f" in namespace {answer.namespace}" if answer.namespace else ""
    group = f", of podgroup/{answer.group}" if answer.group else ""
    return f"{answer.kind.lower()}/{answer.name}{where}{group}"


def _verdict(answer: Explanation) -> Iterator[str]:
    verdict = click.style(answer.verdict, fg=_COLOURS.get(answer.verdict, "yellow"), bold=True)
    since = f" for {age(answer.since)}" if answer.since and answer.verdict in _LASTING else ""
    yield f"{verdict}{since}" + (f": {answer.reason}" if answer.reason else "")
    yield folded(answer.sentence, _INDENT)
    if answer.detail:
        yield folded(answer.detail, _INDENT)


def _members(answer: Explanation) -> Iterator[str]:
    if (has := answer.members) is None:
        return
    counts = {"on nodes": has.placed, "gated": has.gated, "succeeded": has.succeeded, "failed": has.failed}
    rest = [f"{count} {what}" for what, count in counts.items() if count or what == "on nodes"]
    yield folded(f"Members: {has.needed} needed, {has.there} there, {', '.join(rest)}")


def _queue(answer: Explanation) -> Iterator[str]:
    if (queue := answer.queue) is None:
        return
    uses = f", uses {percent(queue.share)} of what it deserves" if queue.share is not None else ""
    if answer.kind != "Queue":
        yield folded(f"Queue {queue.name}: {queue.state}{uses}")
    groups = f"{queue.pending} Pending, {queue.inqueue} Inqueue, {queue.running} Running"
    yield folded(f"Weight {queue.weight}; of its groups {groups}", _INDENT)
    yield from (f"{_INDENT}{line}" for line in resource_rows(queue))


def resource_rows(queue: QueueFigures) -> list[str]:
    rows = [_figures(queue, name) for name in resources_of(queue)]
    return columns(("RESOURCE", "USES", "DESERVES", "AT MOST"), rows) if rows else []


def resources_of(queue: QueueFigures) -> list[str]:
    """Those of which there is something to say."""
    figures = [*queue.allocated.items(), *queue.deserved.items()]
    moving = {name for name, each in figures if number(name, each)}
    return sorted((moving - {PODS}) | queue.capability.keys())


def _figures(queue: QueueFigures, name: str) -> tuple[str, ...]:
    of = (queue.allocated.get(name, 0), queue.deserved.get(name), queue.capability.get(name))
    return (name, *(amount(name, each) for each in of))


def _others(heading: str, others: Sequence[Blocker]) -> Iterator[str]:
    shown = [f"{_name(each)} {each.does}{_holding(each)}" for each in others[:_MOST]]
    if more := len(others) - len(shown):
        shown.append(f"and {more} more")
    return _list(heading, shown)


def _name(other: Blocker) -> str:
    return "/".join(filter(None, (other.kind.lower(), other.namespace, other.name)))


def _holding(other: Blocker) -> str:
    held = amounts(other.holds)
    return "" if held == NOTHING else f": {held}"


def _uncounted(pods: Uncounted) -> str:
    first, *rest = pods.pods
    more = f" and {len(rest)} more" if rest else ""
    return f"pod/{first}{more}: {pods.cause}"


def _help(answer: Explanation) -> Iterator[str]:
    if not answer.remedies and not answer.commands:
        return
    yield from _list("What helps:", answer.remedies) if answer.remedies else [_heading("What helps:")]
    for command in answer.commands:
        yield from _command(command)


def _command(command: OfferedCommand) -> Iterator[str]:
    """A command stays in one line, so that it can be copied."""
    lead = f"To {command.purpose}:"
    if not command.allowed:
        lead = f"To {command.purpose}, ask an administrator, for you may not {command.right}:"
    if len(line := f"{_INDENT}{lead} {command.line}") <= width():
        yield line
    else:
        yield folded(lead, _INDENT, hanging=_INDENT)
        yield f"{_INDENT * 2}{command.line}"


def _heading(text: str) -> str:
    return click.style(text, dim=True)


def _list(heading: str, items: Iterable[str]) -> Iterator[str]:
    items = list(items)
    if items:
        yield _heading(heading)
    yield from (folded(each, _INDENT, hanging=_INDENT) for each in items)
