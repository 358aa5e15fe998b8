"""Reservation in the status of a queue, and the capacity that it reclaimed from others."""

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueueReclaimed, QueueReservation, QueueStatus
from extender.controllers.queue_status import status_changes
from extender.domain.model.records import GroupKey, Uid
from extender.domain.queues.records import Reclaimed, ReclaimKey, queue_record
from extender.domain.snapshot.decisions import QueueDecision
from extender.domain.snapshot.group_info import Reservation


def changes(reservation: Reservation | None, before: QueueReservation | None) -> object:
    decision = QueueDecision("q", "Open", 1, "", {}, {}, {}, {}, 0.0, reservation=reservation)
    queue = Queue(Meta("q"), status=QueueStatus(reservation=before))
    return status_changes(queue, decision).get("reservation", "unchanged")


RESERVATION = Reservation(0.0, {Uid("a"): "n1", Uid("b"): "n0", Uid("c"): "n1"}, {"cpu": 3000})


def test_reserved_nodes_and_amounts_are_written_and_former_amounts_removed() -> None:
    assert changes(RESERVATION, None) == {"nodes": ["n0", "n1"], "resource": {"cpu": "3"}}
    before = QueueReservation(["n0"], {"cpu": "3", "memory": "1Gi"})
    assert changes(RESERVATION, before) == {"nodes": ["n0", "n1"], "resource": {"cpu": "3", "memory": None}}


def test_a_reservation_is_written_once_and_removed_when_it_ends() -> None:
    written = QueueReservation(["n0", "n1"], {"cpu": "3"})
    assert changes(None, written) is None
    assert changes(RESERVATION, written) == "unchanged"
    assert changes(None, None) == "unchanged"


def test_reclaimed_amounts_are_written_and_read_by_the_next_process() -> None:
    reclaims = {ReclaimKey("rich", "team"): Reclaimed(GroupKey("team/x"), "2026-01-01T00:00:00Z", 2)}
    decision = QueueDecision("q", "Open", 1, "", {}, {}, {}, {}, 0.0, reclaimed=reclaims)
    about = {"queue": "rich", "group": "team/x", "at": "2026-01-01T00:00:00Z", "inVain": 2}
    assert status_changes(Queue(Meta("q")), decision)["reclaimed"] == [about]
    written = QueueReclaimed("rich", "team/x", "2026-01-01T00:00:00Z", 2)
    queue = Queue(Meta("q"), status=QueueStatus(reclaimed=[written]))
    assert queue_record(queue).reclaimed == reclaims
    assert "reclaimed" not in status_changes(queue, decision)
    later = QueueDecision("q", "Open", 1, "", {}, {}, {}, {}, 0.0)
    assert status_changes(queue, later)["reclaimed"] is None
