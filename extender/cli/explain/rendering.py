"""An answer as text for people: what is the matter, then the numbers, what is ahead, and what would help."""

import sys
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
from extender.cli.kinds import Target
from extender.cli.output import NOTHING, age, amount, amounts, folded, number, percent, width
from extender.domain.model.resources import PODS
from extender.terminal.text import bar, columns, shows_unicode

# ---- An answer as text for people: what is the matter, then the numbers, what is ahead, and what would
# help.

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
    moving = {name for name, quantity in figures if number(name, quantity)}
    return sorted((moving - {PODS}) | queue.capability.keys())


def _figures(queue: QueueFigures, name: str) -> tuple[str, ...]:
    of = (queue.allocated.get(name, 0), queue.deserved.get(name), queue.capability.get(name))
    return (name, *(amount(name, quantity) for quantity in of))


def _others(heading: str, others: Sequence[Blocker]) -> Iterator[str]:
    shown = [f"{_name(other)} {other.does}{_holding(other)}" for other in others[:_MOST]]
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
    yield from (folded(item, _INDENT, hanging=_INDENT) for item in items)


# ---- Shares as bars, where there is a terminal to draw them on; in a pipe, numbers in columns say the
# same.

_LONGEST = 24
_FIGURES = 44  # columns that the figures next to a bar may take


def bars(queue: QueueFigures) -> list[str]:
    """A line for each resource: `cpu  ████████░░░░  4 of 6, at most 8`. None without a terminal."""
    if not sys.stdout.isatty():
        return []
    names = resources_of(queue)
    widest = max(map(len, names), default=0)
    length = max(8, min(_LONGEST, width() - widest - _FIGURES))
    return [
        f"{name:<{widest}}  {_bar(queue, name, length)}  {', '.join(_bar_figures(queue, name))}"
        for name in names
    ]


def _bar(queue: QueueFigures, name: str, length: int) -> str:
    """What is used beyond what is deserved is lent: the bar is full then, and says so by its colour."""
    used, deserved = number(name, queue.allocated.get(name)), number(name, queue.deserved.get(name))
    part = used / deserved if deserved else float(bool(used))
    full, empty = bar(part, length, shows_unicode(sys.stdout))
    return click.style(full, fg="yellow" if part > 1 else "green") + empty


def _bar_figures(queue: QueueFigures, name: str) -> Iterator[str]:
    yield f"{amount(name, queue.allocated.get(name, 0))} of {amount(name, queue.deserved.get(name))}"
    if name in queue.capability:
        yield f"at most {amount(name, queue.capability[name])}"


# ---- Several answers as text: a line for each, and how to ask for one of them.


def rendered_list(target: Target, found: Sequence[Explanation]) -> str:
    namespace = next((answer.namespace for answer in found if answer.namespace), "")
    what = f"{target.kind}/{target.name} leads to" if target.kind else f"{target.name} may mean"
    return joined(
        f"In namespace {namespace}, {what}:",
        "\n".join(columns(("WHAT", "VERDICT", "REASON"), map(_row, found))),
        f"About one of them, for example: muster why {_target_of(found[0])} -n {namespace}",
    )


def _row(answer: Explanation) -> tuple[str, ...]:
    return (_target_of(answer), answer.verdict, answer.reason or NOTHING)


def _target_of(answer: Explanation) -> str:
    """What to ask for it alone: its group, where it has one."""
    if answer.group and answer.kind != "Pod":
        return f"podgroup/{answer.group}"
    return f"{answer.kind.lower()}/{answer.name}"
