"""Events about objects. One that is repeated counts up."""

import zlib
from contextlib import suppress
from datetime import UTC, datetime

from extender.sim.apiserver.errors import StatusError
from extender.sim.apiserver.kinds import EVENTS, Json
from extender.sim.apiserver.service import Service


def record(
    service: Service, about: Json, type_: str, reason: str, action: str, note: str, speaker: str
) -> None:
    meta, note = about["metadata"], note[:1024]
    digest = zlib.crc32(f"{meta['uid']} {reason} {note}".encode())
    name, namespace = f"{meta['name']}.{digest:08x}", meta["namespace"]
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def once_more(event: Json) -> Json:
        count = (event.get("series") or {"count": 1})["count"] + 1  # the first one is not counted apart
        return {**event, "series": {"count": count, "lastObservedTime": moment}}

    with suppress(StatusError):
        if service.store.get(EVENTS, namespace, name):
            service.amend(EVENTS, namespace, name, once_more)
            return
        named = {"name": meta["name"], "namespace": namespace, "uid": meta["uid"]}
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": about["kind"], "apiVersion": about["apiVersion"], **named},
            "type": type_,
            "reason": reason,
            "action": action,
            "message": note,
            "eventTime": moment,
            "reportingComponent": speaker,
            "reportingInstance": f"{speaker}-embedded",
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
        }
        service.create(EVENTS, namespace, event)
