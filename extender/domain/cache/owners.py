"""The controllers of pods that name no group, as far as they say anything about their pods' group."""

from extender.domain.model.pod_owners import OwnerRecord
from extender.domain.model.records import GroupKey


class Owners:
    def __init__(self) -> None:
        self._of: dict[GroupKey, OwnerRecord] = {}
        self._suspended: set[str] = set()  # the UIDs of suspended controllers

    def get(self, key: GroupKey) -> OwnerRecord | None:
        return self._of.get(key)

    def suspends(self, uid: str) -> bool:
        return uid in self._suspended

    def put(self, key: GroupKey, record: OwnerRecord) -> bool:
        """True if anything that matters changed. A record is kept only once it differs from the defaults."""
        if record == (self._of.get(key) or OwnerRecord(record.uid)):
            return False
        self._of[key] = record
        self._note_suspension(record)
        return True

    def drop(self, key: GroupKey) -> bool:
        """True if there was a record of it."""
        record = self._of.pop(key, None)
        if record is not None:
            self._suspended.discard(record.uid)
        return record is not None

    def _note_suspension(self, record: OwnerRecord) -> None:
        if record.suspended:
            self._suspended.add(record.uid)
        else:
            self._suspended.discard(record.uid)
