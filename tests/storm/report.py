"""Report of a campaign at its end."""

import textwrap
from collections import Counter

from tests.storm.verdict import Outcome

WIDTH = 110


def report_of(outcome: Outcome) -> str:
    """Return the report: counts, every violation with its history, and the folder of the logs."""
    time = f"{outcome.seconds:g} s ({outcome.calm:.0f} s of them calm)"
    head = f"storm {outcome.mix} of {time}, seed {outcome.seed}: {outcome.faults.total()} faults"
    lines = [head, *_counted("faults", outcome.faults), *_counted("without a victim", outcome.missed)]
    lines += _counted("gangs and pods", outcome.counts)
    lines += _counted("evicted pods, by purpose", outcome.evictions)
    lines += [f"violation at {violation}" for violation in outcome.violations] or ["no violations"]
    return "\n".join([*lines, f"journal and logs: {outcome.folder}"])


def _counted(title: str, counts: Counter[str]) -> list[str]:
    text = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return textwrap.wrap(f"{title}: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
