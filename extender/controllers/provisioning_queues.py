"""Which queues have nodes asked for by ProvisioningRequests, rather than by the conditions of their pods."""

from collections.abc import Callable, Iterator

from extender.api.objects.queues import Provisioning
from extender.controllers.object_store import ObjectStore, QueueCopy
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.records import GroupKey


class ProvisioningQueues:
    """Safe to use from any thread. `served`: whether the cluster has that kind, and Muster may watch it."""

    def __init__(self, queues: ObjectStore[str, QueueCopy], served: Callable[[], bool]) -> None:
        self._queues = queues
        self.served = served

    def of(self, queue: str) -> Provisioning | None:
        """What a queue says of its requests; None: it has none."""
        return self.written(queue) if self.served() else None

    def written(self, queue: str) -> Provisioning | None:
        copy = self._queues.get(queue)
        found = copy.queue.spec.provisioning if copy else None
        return found if found and found.class_name else None

    def turns(self) -> "ProvisioningTurns":
        return ProvisioningTurns(self, self._queues)


class ProvisioningTurns:
    """Which groups have to be looked at because their queue asks in another way now. Each consumer has
    one."""

    def __init__(self, asking: ProvisioningQueues, queues: ObjectStore[str, QueueCopy]) -> None:
        self._asking = asking
        self._touched: set[str] = set()  # queues that the watch has shown since
        self._seen: dict[str, Provisioning] = {}
        self._served = False
        queues.listen(self._touched.add)

    def groups(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Each change once."""
        turned = {name for name in self._take_touched() if self._differs(name)}
        if self._served is not (now := self._asking.served()):
            self._served = now
            turned |= self._seen.keys()
        if turned:
            yield from (key for key, each in decisions.groups.items() if each.queue in turned)

    def _take_touched(self) -> Iterator[str]:
        while self._touched:
            yield self._touched.pop()

    def _differs(self, queue: str) -> bool:
        before, now = self._seen.pop(queue, None), self._asking.written(queue)
        if now is not None:
            self._seen[queue] = now
        return before != now
