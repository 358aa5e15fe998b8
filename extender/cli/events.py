"""What happened to an object: its conditions and its events, as rows."""

from collections.abc import Iterable

from extender.api.objects.base import Condition, Wire
from extender.cli.formatting import NOTHING, age
from extender.kube.errors import Forbidden, NotFound
from extender.kube.reader import Reader
from extender.kube.resources import EVENTS
from extender.terminal.columns import columns

_LATEST = 12


class EventSeries(Wire, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class ObservedEvent(Wire, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> str:
        """When it was seen last."""
        return (
            (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time or ""
        )

    @property
    def times(self) -> int:
        return max(1, self.count, self.series.count if self.series else 0)


def conditions(found: Iterable[Condition] | None) -> list[str]:
    rows = [
        (
            each.type,
            each.status,
            each.reason or NOTHING,
            age(each.last_transition_time),
            each.message or NOTHING,
        )
        for each in found or ()
    ]
    return columns(("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows) if rows else []


def events(reader: Reader, kind: str, namespace: str, name: str) -> list[str]:
    """The latest, the oldest of them first. Those of a queue, which has no namespace, are in `default`."""
    where = f"involvedObject.kind={kind},involvedObject.name={name}"
    try:
        found = reader.list(EVENTS, namespace or "default", ObservedEvent, fields=where)
    except (Forbidden, NotFound):
        return ["not shown: you may not list events"]
    latest = sorted(found, key=lambda each: each.at)[-_LATEST:]
    return columns(("TYPE", "REASON", "AGE", "MESSAGE"), map(_row, latest)) if latest else []


def _row(event: ObservedEvent) -> tuple[str, ...]:
    times = f" ({event.times} times)" if event.times > 1 else ""
    return (event.type, event.reason, age(event.at or None) + times, event.message)
