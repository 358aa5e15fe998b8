"""Several answers as text: a line for each, and how to ask for one of them."""

from collections.abc import Sequence

from extender.cli.explain.explanation import Explanation
from extender.cli.explain.rendering import joined
from extender.cli.formatting import NOTHING
from extender.cli.targets import Target
from extender.terminal.columns import columns


def rendered_list(target: Target, found: Sequence[Explanation]) -> str:
    namespace = next((each.namespace for each in found if each.namespace), "")
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
