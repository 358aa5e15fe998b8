"""Forms of an answer: the document of -o json, and text for people.

The text has the verdict first, then the numbers, the groups ahead, and the remedies.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec
from msgspec.structs import replace

from extender.api.summaries import VERSION
from extender.api.units import and_more, listed
from extender.cli.kinds import Target
from extender.cli.output import NOTHING, Json, age, amount, amounts, numeric, outlook, percent, width, wrap
from extender.cli.why.explanation import (
    ENDING,
    FOREIGN,
    PLACED,
    Blocker,
    Explanation,
    QueueFigures,
    Statement,
)
from extender.domain.model.ownership import is_named_by_uid
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import PODS
from extender.terminal.text import bar, columns, shows_unicode

_MAX_BLOCKERS = 6  # maximum of listed blockers; the others are counted
_INDENT = "  "
_MAX_BAR_LENGTH = 24  # maximum characters of a bar
_FIGURES_WIDTH = 44  # columns for the figures next to a bar
_HEADINGS = {"Queue": "Queues above their share:"}
_LASTING_VERDICTS = (Verdict.WAITING, Verdict.RUNNING, PLACED)  # verdicts with a known start time
_COLOURS = {
    **dict.fromkeys((Verdict.STARTING, Verdict.RUNNING, PLACED, "Open"), "green"),
    **dict.fromkeys((Verdict.ENDED, ENDING, FOREIGN), "cyan"),
    **dict.fromkeys((Verdict.UNKNOWN, "Closed"), "red"),
}


def document(answer: Explanation) -> Json:
    """Return an answer as -o json prints it, with the texts of its statements."""
    remedies = [Statement("Numbers", message=remedy) for remedy in remedies_of(answer)]
    fields: Json = msgspec.to_builtins(replace(answer, remedies=remedies), enc_hook=lambda each: each.shown())
    for stray_fields, stray in zip(fields.get("uncounted", ()), answer.uncounted, strict=True):
        stray_fields["remedy"] = stray.cause.remedy
    return {"form": VERSION, **fields, "sentence": _sentence(answer)}


def _sentence(answer: Explanation) -> str:
    return " ".join(statement.text for statement in answer.sentence)


def remedies_of(answer: Explanation) -> list[str]:
    return [statement.remedy for statement in answer.remedies if statement.remedy]


def join_texts(*parts: str) -> str:
    """Return paragraphs as one text, without empty paragraphs."""
    return "\n\n".join(filter(None, parts))


def paragraphs(answer: Explanation) -> list[str]:
    """Return the paragraphs of an answer.

    The first paragraph names the object; the second has the verdict.
    """
    where = f" in namespace {answer.namespace}" if answer.namespace else ""
    is_named_by_user = answer.group and not is_named_by_uid(answer.group)
    group = f", of podgroup/{answer.group}" if is_named_by_user else ""
    stray_lines = (f"pod/{listed(stray.pods, 1)}: {stray.cause.text}" for stray in answer.uncounted)
    parts: Sequence[Iterable[str]] = (
        [wrap(f"{answer.display_name}{where}{group}")],
        _verdict(answer),
        _members(answer),
        _queue(answer),
        _list("Pods that do not count:", stray_lines),
        _blockers("Groups that wait in it:", answer.waiting),
        _blockers(_HEADINGS.get(answer.kind, "Ahead of it:"), answer.holders),
        _remedies(answer),
        [wrap(text) for text in dict.fromkeys(note.text for note in answer.notes)],
    )
    return ["\n".join(lines) for part in parts if (lines := list(part))]


def _verdict(answer: Explanation) -> Iterator[str]:
    verdict = click.style(answer.verdict, fg=_COLOURS.get(answer.verdict, "yellow"), bold=True)
    since = f" for {age(answer.since)}" if answer.since and answer.verdict in _LASTING_VERDICTS else ""
    yield f"{verdict}{since}" + (f": {answer.reason}" if answer.reason else "")
    yield wrap(_sentence(answer), _INDENT)
    if answer.detail:
        yield wrap(answer.detail.text, _INDENT)
    if estimate_text := outlook(answer.estimate):
        yield wrap(estimate_text, _INDENT)


def _members(answer: Explanation) -> Iterator[str]:
    if (members := answer.members) is None:
        return
    counts = {"on nodes": members.placed, "gated": members.gated}
    counts |= {"succeeded": members.succeeded, "failed": members.failed}
    count_texts = [f"{count} {state}" for state, count in counts.items() if count or state == "on nodes"]
    yield wrap(f"Members: {members.needed} needed, {members.there} there, {', '.join(count_texts)}")


def _queue(answer: Explanation) -> Iterator[str]:
    if (queue := answer.queue) is None:
        return
    uses = f", uses {percent(queue.share)} of what it deserves" if queue.share is not None else ""
    if answer.kind != "Queue":
        yield wrap(f"Queue {queue.name}: {queue.state}{uses}")
    groups = f"{queue.pending} Pending, {queue.inqueue} Inqueue, {queue.running} Running"
    yield wrap(f"Weight {queue.weight}; of its groups {groups}", _INDENT)
    yield from (f"{_INDENT}{line}" for line in resource_rows(queue))


def resource_rows(queue: QueueFigures) -> list[str]:
    rows = []
    for name in _resources_of(queue):
        quantities_ = (queue.allocated.get(name, 0), queue.deserved.get(name), queue.capability.get(name))
        rows.append((name, *(amount(name, quantity) for quantity in quantities_)))
    return columns(("RESOURCE", "USES", "DESERVES", "AT MOST"), rows) if rows else []


def _resources_of(queue: QueueFigures) -> list[str]:
    """Return the resources that the queue uses, deserves or limits."""
    figures = [*queue.allocated.items(), *queue.deserved.items()]
    used_names = {name for name, quantity in figures if numeric(name, quantity)}
    return sorted((used_names - {PODS}) | queue.capability.keys())


def _blockers(heading: str, blockers: Sequence[Blocker]) -> Iterator[str]:
    texts = []
    for other in blockers[:_MAX_BLOCKERS]:
        held = amounts(other.holder.holds)
        texts.append(f"{other.holder.display_name} {other.text}" + ("" if held == NOTHING else f": {held}"))
    return _list(heading, texts + and_more(len(blockers) - len(texts)))


def _remedies(answer: Explanation) -> Iterator[str]:
    """Yield remedies and commands. A command stays on one line, so that it can be copied."""
    remedies = remedies_of(answer)
    if remedies or answer.commands:
        yield click.style("What helps:", dim=True)
    yield from (wrap(remedy, _INDENT, hanging=_INDENT) for remedy in remedies)
    for offer in (offered.shown() for offered in answer.commands):
        lead = f"To {offer.purpose}:"
        if not offer.allowed:
            lead = f"To {offer.purpose}, ask an administrator, for you may not {offer.right}:"
        if len(line := f"{_INDENT}{lead} {offer.line}") <= width():
            yield line
        else:
            yield wrap(lead, _INDENT, hanging=_INDENT)
            yield f"{_INDENT * 2}{offer.line}"


def _list(heading: str, items: Iterable[str]) -> Iterator[str]:
    items = list(items)
    if items:
        yield click.style(heading, dim=True)
    yield from (wrap(item, _INDENT, hanging=_INDENT) for item in items)


def bars(queue: QueueFigures) -> list[str]:
    """Return a line for each resource on a terminal: `cpu ████████░░░░ 4 of 6, at most 8`.

    The bar of a queue that borrows is full, and of another colour.
    """
    if not sys.stdout.isatty():
        return []
    names = _resources_of(queue)
    max_width = max(map(len, names), default=0)
    length = max(8, min(_MAX_BAR_LENGTH, width() - max_width - _FIGURES_WIDTH))
    lines = []
    for name in names:
        held_text, due = queue.allocated.get(name), queue.deserved.get(name)
        used_amount, deserved = numeric(name, held_text), numeric(name, due)
        share = used_amount / deserved if deserved else float(bool(used_amount))
        full_part, empty_part = bar(share, length, shows_unicode(sys.stdout))
        coloured_bar = click.style(full_part, fg="yellow" if share > 1 else "green") + empty_part
        figures = f"{amount(name, queue.allocated.get(name, 0))} of {amount(name, due)}"
        if name in queue.capability:
            figures += f", at most {amount(name, queue.capability[name])}"
        lines.append(f"{name:<{max_width}}  {coloured_bar}  {figures}")
    return lines


def rendered_list(target: Target, explanations: Sequence[Explanation]) -> str:
    namespace = next((answer.namespace for answer in explanations if answer.namespace), "")
    subject = f"{target.kind}/{target.name} leads to" if target.kind else f"{target.name} may mean"
    rows = [(_target_of(answer), answer.verdict, answer.reason or NOTHING) for answer in explanations]
    return join_texts(
        f"In namespace {namespace}, {subject}:",
        "\n".join(columns(("WHAT", "VERDICT", "REASON"), rows)),
        f"About one of them, for example: muster why {_target_of(explanations[0])} -n {namespace}",
    )


def _target_of(answer: Explanation) -> str:
    """Return a target that has only this answer: its group, if it has one."""
    if answer.group and answer.kind != "Pod":
        return f"podgroup/{answer.group}"
    return answer.display_name
