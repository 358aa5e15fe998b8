"""Queues as the API server has them at this moment, for when the watch may lag behind it.

Whoever applies a queue and its groups from one file writes both within milliseconds. So before anything is
refused because of what a queue is, the queue is read once more. What passes costs nothing.
"""

from collections.abc import Callable

from extender.api.keys import ROOT_QUEUE
from extender.api.objects import Queue
from extender.domain.admission.picture import Picture
from extender.domain.ledger import Ledger
from extender.domain.queue_records import QueueRecord, queue_record
from extender.domain.queues import Queues
from extender.domain.snapshot import QueueView
from extender.kube.admission import AdmissionApi
from extender.kube.errors import ApiError, NotFound
from extender.webhooks.reviews import NotKnown

LookUp = Callable[[str], Queue | None]
_TIMEOUT = 2.0


def look_up_with(api: AdmissionApi) -> LookUp:
    """None for what is not there. Raises NotKnown."""

    def look_up(name: str) -> Queue | None:
        try:
            return api.queue(name, _TIMEOUT)
        except NotFound:
            return None
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault

    return look_up


class Latest:
    """The ledger's picture, with queues read anew."""

    def __init__(self, ledger: Ledger, look_up: LookUp) -> None:
        self._ledger = ledger
        self._look_up = look_up
        self.namespace_queue = ledger.namespace_queue
        self.group_queue = ledger.group_queue

    def queue_view(self, name: str) -> QueueView | None:
        found, known = self._look_up(name), self._ledger.queue_view(name)
        if found is None:
            return known
        queues = Queues()
        queues.put(queue_record(found))
        return queues.view(name, known.groups if known else 0, known.allocated if known else {}, {})

    def with_parents(self, picture: Picture, parent: str) -> Picture:
        """The picture, with those queues from `parent` upwards that it lacks."""
        missing: dict[str, QueueRecord] = {}
        while parent not in ("", ROOT_QUEUE, *picture.queues, *missing) and (found := self._look_up(parent)):
            missing[parent] = queue_record(found)
            parent = found.spec.parent
        return Picture({**picture.queues, **missing}, self.queue_view) if missing else picture
