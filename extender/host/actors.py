"""Those that act on decisions, and the order in which they look at them."""

from collections.abc import Callable

from extender.controllers.announcing import Announcer
from extender.controllers.chronicle import Chronicle
from extender.controllers.clearing import Clearer
from extender.controllers.commanding import Commander
from extender.controllers.cycle import Listener
from extender.controllers.founding import Founder
from extender.controllers.grouping import Grouper
from extender.controllers.queue_reporting import QueueReporter
from extender.controllers.recording import Recorder
from extender.controllers.releasing import Releaser
from extender.controllers.reporting import Reporter
from extender.controllers.undoing import Undoer
from extender.controllers.yielding import Yielder
from extender.domain.ledger import Ledger
from extender.kube.calls import Cluster
from extender.kube.writers import Writers

GROUP_WRITERS = 4  # of their own: PodGroups for plain pods never keep a gate waiting


class Actors:
    """All of them write through `writers`, while `leads` says so. `volcano_namespace`: where Volcano is."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writers: Writers,
        leads: Callable[[], bool],
        volcano_namespace: str,
    ) -> None:
        shared = (ledger, cluster, writers, leads)
        recorder = Recorder(cluster, writers, leads)
        self._writers = writers
        self._group_writers = Writers(GROUP_WRITERS, "group", fence=leads)
        self.all_writers = (writers, self._group_writers)
        self.reporter = Reporter(*shared)
        self.queue_reporter = QueueReporter(*shared, recorder)
        self.commander = Commander(*shared, recorder)
        self.grouper = Grouper(ledger, cluster, self._group_writers, leads)
        self.yielder = Yielder(*shared, volcano_namespace)
        self.chronicle = Chronicle()
        self.listeners: tuple[Listener, ...] = (
            Releaser(*shared).look,
            Undoer(*shared, recorder).look,
            self.reporter.look,
            self.grouper.look,
            Founder(*shared).look,
            self.queue_reporter.look,
            self.commander.look,
            Clearer(*shared).look,
            self.yielder.look,
            Announcer(ledger, recorder, leads).look,
            self.chronicle.look,
        )

    def start(self, *, yields: bool) -> None:
        """`yields`: pods of Volcano are ours, so that its scheduler has to be looked for."""
        self._writers.start()
        self._group_writers.start()
        if yields:
            self.yielder.start()

    def stop(self) -> None:
        self.yielder.stop()
        self._writers.stop()
        self._group_writers.stop()
