"""The columns of events, which are like no other kind's."""

from extender.api.durations import age
from extender.sim.apiserver.columns import TableColumn, at, meta
from extender.sim.apiserver.kinds import Json


def _since(event: Json, *fields: str) -> str:
    """How long ago: by the first of these times that the event has."""
    found = next((event[field] for field in fields if event.get(field)), None)
    return age(found) if found else "<unknown>"


def _last_seen(event: Json) -> str:
    if series := event.get("series"):
        return _since(series, "lastObservedTime")
    return _since(event, "lastTimestamp", "firstTimestamp", "eventTime")


def _count(event: Json) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _object(event: Json) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _source(event: Json) -> str:
    source = event.get("source") or {}
    named = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return ", ".join(filter(None, (named, host)))


OF_EVENTS = (
    TableColumn("Last Seen", _last_seen),
    TableColumn("Type", at("type")),
    TableColumn("Reason", at("reason")),
    TableColumn("Object", _object),
    TableColumn("Subobject", at("involvedObject", "fieldPath"), wide=True),
    TableColumn("Source", _source, wide=True),
    TableColumn("Message", lambda event: str(event.get("message") or "").strip()),
    TableColumn("First Seen", lambda event: _since(event, "firstTimestamp", "eventTime"), wide=True),
    TableColumn("Count", _count, wide=True),
    TableColumn("Name", meta("name"), wide=True),
)
