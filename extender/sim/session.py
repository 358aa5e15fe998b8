"""One run of the embedded cluster before an audience: objects in, pictures out, until it is over."""

import threading
import time
from collections.abc import Sequence

from extender.sim.apiserver.refusals import Refusal
from extender.sim.child import ChildFailed
from extender.sim.embedded import Embedded
from extender.sim.files.manifests import InvalidManifests, Manifest
from extender.sim.show.history import History
from extender.sim.show.picture import Picture, take
from extender.sim.show.views import View

_PACE = 0.2  # seconds between two looks


class Session:
    """`until_settled`: over when nothing changes any more; else when all pods have ended."""

    def __init__(self, cluster: Embedded, view: View, until_settled: bool) -> None:
        self._cluster = cluster
        self._view = view
        self._until_settled = until_settled
        self._pause = threading.Event()
        self.history = History()
        self.picture: Picture | None = None

    def create(self, manifests: Sequence[Manifest]) -> None:
        """Raises InvalidManifests with what the API server says."""
        faults = []
        for manifest in manifests:
            try:
                self._cluster.create([(manifest.kind, manifest.object)])
            except Refusal as refusal:
                faults.append(f"{manifest.where}: {refusal.message}")
        if faults:
            raise InvalidManifests("\n".join(faults))

    def run(self, head: Sequence[str]) -> Picture:
        """Raises ChildFailed when Muster ends before we do."""
        self._view.begin(head)
        self._cluster.start()
        began = time.monotonic()
        while True:
            over = self._is_over()
            self.picture = self._look(time.monotonic() - began)
            if over:
                return self.picture
            self._pause.wait(_PACE)

    def _is_over(self) -> bool:
        if not self._cluster.muster.alive():
            raise ChildFailed(self._cluster.muster.last_words())
        if not self._cluster.settled():
            return False
        return self._until_settled or (self.picture is not None and self.picture.done)

    def _look(self, second: float) -> Picture:
        picture = take(self._cluster.store, self._cluster.muster.look("queues"))
        new = self.history.look(picture, second)
        self._view.show(picture, self.history.turns, new)
        return picture
