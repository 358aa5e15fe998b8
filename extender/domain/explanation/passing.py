"""What passes by itself: a full window, a pause."""

from msgspec.structs import replace

from extender.domain.explanation.case import Case, Change
from extender.domain.lifecycle.quorum import missing
from extender.domain.snapshot.snapshot import Snapshot


def window_clears(case: Case) -> Change | None:
    return _windowed(case, "once {} members that start now are on nodes")


def window_grows(case: Case) -> Change | None:
    size = max(len(missing(case.group).members), 1)
    limits = replace(case.snapshot.limits, window=size)
    return case.told(f"with a window of {size} members (--window)", replace(case.snapshot, limits=limits))


def _windowed(case: Case, text: str) -> Change | None:
    window, size = case.snapshot.limits.window, len(missing(case.group).members)

    def after(n: int) -> Snapshot:
        return replace(case.snapshot, limits=replace(case.snapshot.limits, window=window + n))

    count = case.trial.least(size, after)
    return Change(text.format(count)) if count is not None else None


def time(case: Case) -> Change:
    decision = case.decisions.groups[case.group.key]
    seconds = max(decision.retry_at - case.snapshot.now, 0.0)
    later = replace(case.snapshot, now=max(decision.retry_at, case.snapshot.now))
    return case.told(f"when it is tried again, {seconds:.0f} s from now", later)
