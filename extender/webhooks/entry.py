"""Whether a queue takes something, and from whom."""

from collections.abc import Callable
from typing import Protocol

from extender.domain.admission.access import Subject, not_granted, not_known
from extender.domain.admission.faults import Fault
from extender.domain.admission.submission import Cluster, Destination
from extender.domain.cache.ledger import Ledger
from extender.webhooks.latest import Latest
from extender.webhooks.reviews import NotKnown

Entry = Callable[[Destination, Cluster], list[Fault]]  # whether a queue takes something


class Access(Protocol):
    def may_use(self, who: Subject, queue: str, timeout: float) -> bool:
        """Raises NotKnown."""


class EntryRules:
    """For one review: what is read of the API server is read once."""

    def __init__(self, ledger: Ledger, latest: Latest, access: Access) -> None:
        self._ledger = ledger
        self.latest = latest
        self._access = access

    def judge(self, to: Destination, entry: Entry, *anybody: Subject) -> list[Fault]:
        """That one of them may use the queue is enough; of nobody, nobody is asked."""
        if entry(to, self._ledger) and (faults := entry(to, self.latest)):
            return faults
        return self.judge_use(to, *anybody) if anybody else []

    def judge_use(self, to: Destination, *anybody: Subject) -> list[Fault]:
        """Whether one of them may use the queue, where it is restricted."""
        if not self.is_restricted(to):
            return []
        try:
            may = any(self._access.may_use(each, to.queue, self.latest.left()) for each in anybody)
        except NotKnown as fault:
            return [not_known(to, str(fault))]
        return [] if may else [not_granted(to, anybody)]

    def is_restricted(self, to: Destination) -> bool:
        view = self._ledger.queue_view(to.queue) or self.latest.queue_view(to.queue)
        return view is not None and view.record.restricted
