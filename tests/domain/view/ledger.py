"""Model of the ledger for the proxy, which reads pods by a separate watch."""

from collections.abc import Sequence

from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance, Appearances, Change
from tests.domain.view.api import Api


class Ledger(Appearances):
    def __init__(self, api: Api) -> None:
        self._api = api
        self.version = 0
        self.unbound: set[Uid] = set()  # UIDs of unbound pods of Muster's scheduler
        self.released: dict[Uid, Appearance] = {}
        self.held: set[Uid] = set()  # pods with a held bind call, and bound pods
        self.left: list[str] = []  # nodes of deleted pods
        self._changes: list[Change] = []
        self.read(api.version)

    def read(self, until: int) -> None:
        for event in self._api.events_between(self.version, until):
            assert event.facts is not None
            uid = event.facts.uid
            if event.type == "DELETED" or event.facts.node:
                self._forget(uid)
                if event.type == "DELETED":
                    self.held.discard(uid)
                else:
                    self.held.add(uid)
            elif event.facts.scheduler == "muster":
                self.unbound.add(uid)
        self.version = max(self.version, until)

    def _forget(self, uid: Uid) -> None:
        self.unbound.discard(uid)
        self.released.pop(uid, None)
        self._changes = [change for change in self._changes if change[0] != uid]

    def release(self, uid: Uid, appearance: Appearance) -> None:
        self.released[uid] = appearance
        self._changes.append((uid, appearance))

    def take_back(self, uid: Uid) -> None:
        del self.released[uid]
        self.held.discard(uid)
        self._changes.append((uid, None))

    # ---- Appearances

    def appearance_of(self, uid: Uid) -> Appearance | None:
        return self.released.get(uid)

    def is_in_flight(self, uid: Uid) -> bool:
        return uid in self.held

    def take_changes(self) -> Sequence[Change]:
        changes, self._changes = self._changes, []
        return changes

    def record_departure(self, node: str) -> None:
        self.left.append(node)

    def record_fresh_start(self) -> None: ...

    def record_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        return None
