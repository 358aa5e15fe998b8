"""Those that act on decisions, and the order in which they look at them."""

from collections.abc import Callable

from extender.controllers.actor import Means
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
from extender.domain.cache.ledger import Ledger
from extender.kube.calls import Cluster
from extender.kube.writers import Writers

PATIENT_WRITERS = 4  # of their own: neither statuses nor PodGroups for plain pods ever keep a gate waiting


class Actors:
    """Those that move pods write through `writers`, the others through patient ones; all while `leads` says
    so. `volcano_namespace`: where Volcano is."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writers: Writers,
        leads: Callable[[], bool],
        volcano_namespace: str,
    ) -> None:
        patient_writers = Writers(PATIENT_WRITERS, "patient", fence=leads)
        self.all_writers = (writers, patient_writers)
        urgent = Means(ledger, cluster, writers, leads)
        patient = urgent._replace(writers=patient_writers)
        recorder = Recorder(cluster, patient_writers, leads)
        self.reporter = Reporter(patient)
        self.queue_reporter = QueueReporter(patient, recorder)
        self.commander = Commander(patient, recorder)
        self.grouper = Grouper(patient)
        self.yielder = Yielder(urgent, volcano_namespace)
        self.chronicle = Chronicle()
        self.listeners: tuple[Listener, ...] = (
            Releaser(urgent).look,
            Undoer(urgent, recorder).look,
            self.reporter.look,
            self.grouper.look,
            Founder(patient).look,
            self.queue_reporter.look,
            self.commander.look,
            Clearer(patient).look,
            self.yielder.look,
            Announcer(ledger, recorder, leads).look,
            self.chronicle.look,
        )

    def start(self) -> None:
        for each in self.all_writers:
            each.start()
        self.yielder.start()

    def stop(self) -> None:
        self.yielder.stop()
        for each in self.all_writers:
            each.stop()
