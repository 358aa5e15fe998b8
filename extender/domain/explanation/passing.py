"""What passes by itself: a full window, a pause."""

from datetime import UTC, datetime

from msgspec.structs import replace

from extender.domain.explanation.case import StartChange, WaitingCase
from extender.domain.lifecycle.quorum import missing
from extender.domain.snapshot.snapshot import Snapshot


def window_clears(case: WaitingCase) -> StartChange | None:
    """Members that start leave the window once they are on nodes."""

    def after(n: int) -> Snapshot:
        return replace(case.snapshot, limits=replace(case.snapshot.limits, window=window + n))

    window, size = case.snapshot.limits.window, len(missing(case.group).members)
    count = case.trial.least(size, after)
    return StartChange(f"with room for {count} more in the window") if count is not None else None


def window_grows(case: WaitingCase) -> StartChange | None:
    size = max(len(missing(case.group).members), 1)
    wider = replace(case.snapshot, limits=replace(case.snapshot.limits, window=size))
    return case.start_change(f"with a window of {size} members (--window)", wider)


def time(case: WaitingCase) -> StartChange:
    """A pause is over."""
    moment = max(case.decision.retry_at, case.snapshot.now)
    when = datetime.fromtimestamp(case.snapshot.epoch + moment, UTC)
    return case.start_change(f"about {when:%Y-%m-%dT%H:%M:%SZ}", replace(case.snapshot, now=moment))
