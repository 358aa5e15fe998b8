"""Whether a queue takes new work, and who may submit it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from extender.domain.admission.access import Subject, not_granted, not_known
from extender.domain.admission.faults import Fault
from extender.domain.admission.submission import Cluster, Destination
from extender.domain.cache.ledger import Ledger
from extender.webhooks.latest import Latest
from extender.webhooks.reviews import NotKnown

D = TypeVar("D", Destination, Destination | None)
Entry = Callable[[Destination, Cluster], list[Fault]]  # faults unless a queue takes new work


class Access(Protocol):
    def may_use(self, subject: Subject, queue: str, timeout: float) -> bool:
        """Raises NotKnown."""


class EntryRules:
    """For one review: each queue is read from the API server at most once."""

    def __init__(self, ledger: Ledger, latest: Latest, access: Access) -> None:
        self._ledger = ledger
        self.latest = latest
        self._access = access

    def destination(self, find: Callable[[Cluster], D]) -> D:
        """What `find` finds in the ledger, or in what the API server has now where a LocalQueue is not
        known: it may lead to a restricted queue."""
        to = find(self._ledger)
        return find(self.latest) if to is not None and to.leads_nowhere else to

    def judge(self, to: Destination, entry: Entry, *subjects: Subject) -> list[Fault]:
        """It is enough that one of `subjects` may use the queue; without subjects the right is not
        checked."""
        if entry(to, self._ledger) and (faults := entry(to, self.latest)):
            return faults
        return self.judge_use(to, *subjects) if subjects else []

    def judge_use(self, to: Destination, *subjects: Subject) -> list[Fault]:
        """Faults if the queue is restricted and none of `subjects` may use it."""
        if not self.is_restricted(to):
            return []
        try:
            may = any(self._access.may_use(each, to.queue, self.latest.left()) for each in subjects)
        except NotKnown as fault:
            return [not_known(to, str(fault))]
        return [] if may else [not_granted(to, subjects)]

    def is_restricted(self, to: Destination) -> bool:
        if to.leads_nowhere:
            return False
        view = self._ledger.queue_view(to.queue) or self.latest.queue_view(to.queue)
        return view is not None and view.record.restricted
