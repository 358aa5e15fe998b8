"""What the scheduler writes about pods: their condition, their nomination, and Events.

A condition is written when it is new, so that a pod that is refused with the same words again wakes nobody.
An Event that is repeated counts up.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from extender.sim.apiserver.conditions import condition, set_condition
from extender.sim.apiserver.kinds import EVENTS, PODS, Json
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.status_errors import StatusError
from extender.sim.scheduler.nodes import PREEMPTED

_LONGEST_NOTE = 1024


class StatusRecorder:
    def __init__(self, service: Service) -> None:
        self._service = service

    def failed(self, pod: Json, reason: str, message: str, nominated: str | None = "") -> None:
        """No node was found; the nomination is set anew, taken back (empty), or left (None)."""
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", message)

        def change(status: Json) -> None:
            if nominated is not None:
                status.pop("nominatedNodeName", None)
            if nominated:
                status["nominatedNodeName"] = nominated
            set_condition(status, condition("PodScheduled", "False", reason, message))

        self._change_status(pod["metadata"], change)

    def scheduled(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        note = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._event(pod, "Normal", "Scheduled", "Binding", note)

    def evict(self, victim: Json, preemptor: Json, node: str) -> None:
        """Say why on the pod, then delete it; its kubelet ends it."""
        meta, scheduler = victim["metadata"], preemptor["spec"]["schedulerName"]
        why = f"{scheduler}: preempting to accommodate a higher priority pod"
        target = condition("DisruptionTarget", "True", PREEMPTED, why)
        self._change_status(meta, lambda status: set_condition(status, target))
        with suppress(StatusError):
            self._service.delete(
                PODS, meta["namespace"], meta["name"], {"preconditions": {"uid": meta["uid"]}}
            )
        note = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
        self._event(victim, "Normal", "Preempted", "Preempting", note, scheduler)

    def forget_nomination(self, pod: Json) -> None:
        self._change_status(pod["metadata"], lambda status: status.pop("nominatedNodeName", None))

    def _change_status(self, meta: Json, how: Callable[[Json], object]) -> None:
        def change(found: Json) -> Json:
            status = {**found["status"]}
            how(status)
            return {**found, "metadata": {"uid": meta["uid"]}, "status": status}

        with suppress(StatusError):
            self._service.amend(PODS, meta["namespace"], meta["name"], change, "status")

    # ---- events

    def _event(self, pod: Json, kind: str, reason: str, action: str, note: str, speaker: str = "") -> None:
        meta, note = pod["metadata"], note[:_LONGEST_NOTE]
        digest = zlib.crc32(f"{meta['uid']} {reason} {note}".encode())
        name = f"{meta['name']}.{digest:08x}"
        with suppress(StatusError):
            if self._service.store.get(EVENTS, meta["namespace"], name):
                self._service.amend(EVENTS, meta["namespace"], name, _once_more)
                return
            about = {"kind": "Pod", "apiVersion": "v1", "namespace": meta["namespace"], "name": meta["name"]}
            speaker = speaker or pod["spec"]["schedulerName"]
            event = {
                "metadata": {"name": name, "namespace": meta["namespace"]},
                "involvedObject": {**about, "uid": meta["uid"]},
                "type": kind,
                "reason": reason,
                "action": action,
                "message": note,
                "eventTime": _moment(),
                "reportingComponent": speaker,
                "reportingInstance": f"{speaker}-embedded",
                "source": {},
                "firstTimestamp": None,
                "lastTimestamp": None,
            }
            self._service.create(EVENTS, meta["namespace"], event)


def _once_more(event: Json) -> Json:
    """The first one is not counted apart."""
    count = (event.get("series") or {"count": 1})["count"] + 1
    return {**event, "series": {"count": count, "lastObservedTime": _moment()}}


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
