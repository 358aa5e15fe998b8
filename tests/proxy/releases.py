"""Ledger's side of a scheduler proxy, controlled by tests."""

import threading
from collections.abc import Callable, Sequence

from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import Appearance, Appearances, Change
from extender.proxy.pods import PodRequests
from extender.proxy.server import Handlers, StatusPatches
from extender.proxy.upstream import Upstream


class DrivenAppearances(Appearances):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._released: dict[Uid, Appearance] = {}
        self._changes: list[Change] = []
        self._on_change: Callable[[], None] = lambda: None
        self.ours: dict[str, Uid] = {}  # UIDs of Muster's pods by "namespace/name", for status patches
        self.refusals: list[tuple[str, str]] = []
        self.fresh_starts = 0

    def handlers(self, upstream: Upstream) -> Handlers:
        self.pods = pods = PodRequests(upstream, self, frozenset({"kube-muster"}))
        self._on_change = pods.on_change
        return Handlers(pods, StatusPatches(upstream, self))

    def change(self, *changes: tuple[str, Appearance | None]) -> None:
        """Change the appearances of pods by name, as the ledger does under its lock."""
        with self._lock:
            for name, appearance in changes:
                uid = Uid(f"uid-of-{name}")
                self._changes.append((uid, appearance))
                if appearance is None:
                    self._released.pop(uid, None)
                else:
                    self._released[uid] = appearance
            self._on_change()

    def appearance_of(self, uid: Uid) -> Appearance | None:
        return self._released.get(uid)

    def is_in_flight(self, uid: Uid) -> bool:
        return False

    def take_changes(self) -> Sequence[Change]:
        with self._lock:
            changes, self._changes = self._changes, []
            return changes

    def record_departure(self, node: str) -> None: ...

    def record_fresh_start(self) -> None:
        self.fresh_starts += 1

    def record_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        uid = self.ours.get(f"{namespace}/{name}")
        if uid:
            self.refusals.append((name, unschedulable))
        return uid
