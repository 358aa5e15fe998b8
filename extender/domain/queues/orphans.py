"""Which groups each queue took in, so that they can be found when it is gone.

A queue that still has groups is protected. Where somebody deleted it all the same, its groups go with it.
They are known by its UID, noted on them. A group that merely came before its queue bears none, and waits.
"""

from collections import defaultdict
from collections.abc import Set

import msgspec

from extender.domain.model.records import GroupKey, GroupRecord


class Orphan(msgspec.Struct, frozen=True):
    """A PodGroup that a queue had taken in which is no more."""

    namespace: str
    name: str
    uid: str
    queue: str
    queue_uid: str


class Wards:
    def __init__(self) -> None:
        self._of: defaultdict[str, dict[GroupKey, GroupRecord]] = defaultdict(dict)  # by the queue's UID

    def note(self, before: GroupRecord | None, now: GroupRecord | None) -> None:
        """A group has changed, come (`before` is None) or gone (`now` is None)."""
        if before is not None and before.queue_uid:
            self._of[before.queue_uid].pop(before.key, None)
            if not self._of[before.queue_uid]:
                del self._of[before.queue_uid]
        if now is not None and now.queue_uid:
            self._of[now.queue_uid][now.key] = now

    def left_by(self, existing: Set[str]) -> list[GroupRecord]:
        """The groups of all queues whose UID is not among these."""
        gone = sorted(self._of.keys() - existing)
        return [record for uid in gone for record in self._of[uid].values()]


def orphan(group: GroupRecord) -> Orphan:
    return Orphan(group.namespace, group.name, group.uid, group.queue, group.queue_uid)
