"""One run of the embedded cluster: objects in, its states shown, until it is over."""

import threading
import time
from collections.abc import Sequence

from extender.sim.embedded import Embedded
from extender.sim.files.creation import Creation
from extender.sim.files.manifests import InvalidManifests, Manifest
from extender.sim.serve_process import ServeFailed
from extender.sim.show.cluster_state import ClusterState, observe
from extender.sim.show.transitions import TransitionLog
from extender.sim.show.views import View

_PACE = 0.2  # seconds between two looks


class Session:
    """`until_settled`: over when nothing changes any more; else when all pods have ended."""

    def __init__(self, cluster: Embedded, view: View, until_settled: bool) -> None:
        self._cluster = cluster
        self._view = view
        self._until_settled = until_settled
        self._pause = threading.Event()
        self.log = TransitionLog()
        self.state: ClusterState | None = None

    def create(self, manifests: Sequence[Manifest]) -> None:
        """Raises InvalidManifests with what the API server says."""
        creation = Creation(self._cluster.service)
        creation.create(manifests)
        if creation.faults:
            raise InvalidManifests("\n".join(creation.faults))

    def run(self, head: Sequence[str]) -> ClusterState:
        """Raises ServeFailed when Muster ends before we do."""
        self._view.begin(head)
        self._cluster.start()
        began = time.monotonic()
        while True:
            over = self._is_over()
            self.state = self._look(time.monotonic() - began)
            if over:
                return self.state
            self._pause.wait(_PACE)

    def _is_over(self) -> bool:
        if not self._cluster.muster.alive():
            raise ServeFailed(self._cluster.muster.last_words())
        if not self._cluster.settled():
            return False
        return self._until_settled or (self.state is not None and self.state.done)

    def _look(self, second: float) -> ClusterState:
        state = observe(self._cluster.store, self._cluster.muster.look("queues"))
        new = self.log.observe(state, second)
        self._view.show(state, self.log.transitions, new)
        return state
