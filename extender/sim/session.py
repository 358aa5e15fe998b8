"""One run of the embedded cluster: objects in, its states shown, until it is over."""

import threading
import time
from collections.abc import Sequence

from extender.sim.apiserver.kinds import Json
from extender.sim.embedded import UNSETTLED, Embedded
from extender.sim.files.creation import Creation
from extender.sim.files.manifests import InvalidManifests, Manifest
from extender.sim.files.unasked import QueuesOfJobs, Unasked, plan_of_quotas, unasked
from extender.sim.scheduler.loop import EXTENDED
from extender.sim.serve_process import ServeFailed
from extender.sim.show.cluster_state import ClusterState, ShownObjects, observe
from extender.sim.show.frames import Moment, View
from extender.sim.show.sentences import TransitionLog

_PACE = 0.2  # seconds between two looks
_PATIENCE = 15.0  # seconds without any change after which no reason is expected to come any more


class Session:
    """`stays`: goes on until it is interrupted; else it is over when nothing changes any more."""

    def __init__(self, cluster: Embedded, view: View, stays: bool) -> None:
        self._cluster = cluster
        self._view = view
        self._stays = stays
        self._pause = threading.Event()
        self.log = TransitionLog()
        self.state: ClusterState | None = None
        self.unasked: list[Unasked] = []
        self._creation = Creation(cluster.service)

    def create(self, manifests: Sequence[Manifest]) -> None:
        """Notes what Muster is not asked to start. Raises InvalidManifests with what the API server says."""
        creation = self._creation
        creation.create(manifests)
        if creation.faults:
            raise InvalidManifests("\n".join(creation.faults))
        queues = QueuesOfJobs(creation.objects, plan_of_quotas(creation.objects).namespaces)
        self.unasked = [*unasked(creation.objects, queues)]

    def run(self, head: Sequence[str]) -> ClusterState:
        """Raises ServeFailed when Muster ends before we do."""
        self._view.begin(head)
        self._cluster.start()
        began = time.monotonic()
        while True:
            if not self._cluster.muster.alive():
                raise ServeFailed(self._cluster.muster.last_lines())
            self._creation.try_again()
            settled = self._is_settled()  # asked first: what is shown then is final
            second = time.monotonic() - began
            state = self.state = observe(ShownObjects.of(self._cluster.store), self._cluster.muster.look)
            new = self.log.observe(state, second)
            self._view.show(Moment(state, self.log, second, settled), new)
            if settled and not self._stays:
                return self.state
            self._pause.wait(_PACE)

    def refused(self) -> list[tuple[Json, str]]:
        """Workloads and pods of which quotas refuse some or all, each with a sentence."""
        of_workloads = ((each.workload, str(each)) for each in self._cluster.controllers.refusals())
        others = ((created.object, f"{created.where}: {why}") for created, why in self._creation.refused)
        return [*of_workloads, *others]

    @property
    def everything_started(self) -> bool:
        """Something of it was Muster's to start, and nothing waits or stays suspended."""
        state = self.state
        if state is None or not state.everything_started or any(each.suspended for each in self.unasked):
            return False
        if self.refused():
            return False
        return bool(state.gangs) or any(pod.scheduler in EXTENDED for pod in state.loose)

    def _is_settled(self) -> bool:
        """A group's status says whether it goes on. Any other pod that waits needs a reason."""
        if self.state is None or not self._cluster.settled():
            return False
        undecided = any(pod.state == "pending" or pod.why.reason in UNSETTLED for pod in self.state.loose)
        return not undecided or time.monotonic() - self._cluster.store.changed_at > _PATIENCE
