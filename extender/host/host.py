"""Everything put together: one process that watches a cluster, decides, and answers the scheduler.

reflectors ──► Ledger ◄──► Cycle (decide) ──► Releaser, Reporter, Undoer, Barrier
                 ▲                                                        ▲
                 └───────── verbs: filter, prioritize, preempt, bind ─────┘
"""

import socket
import time
from threading import RLock

import msgspec

from extender.api.configuration import Configuration, InvalidConfiguration
from extender.controllers.announcing import Announcer
from extender.controllers.chronicle import Chronicle
from extender.controllers.clearing import Clearer
from extender.controllers.commanding import Commander
from extender.controllers.cycle import Cycle
from extender.controllers.founding import Founder
from extender.controllers.grouping import Grouper
from extender.controllers.leadership import ALONE, Leadership, Standing
from extender.controllers.queue_reporting import QueueReporter
from extender.controllers.recording import Recorder
from extender.controllers.releasing import Releaser
from extender.controllers.reporting import Reporter
from extender.controllers.undoing import Undoer
from extender.controllers.yielding import VOLCANO, Yielder
from extender.domain.decisions import Decisions
from extender.domain.ledger import Ledger
from extender.domain.records import Ownership
from extender.domain.snapshot import Limits
from extender.host.feed import Feed
from extender.host.gauges import Gauges
from extender.host.views import Views
from extender.host.webhooks import Webhooks
from extender.kube.calls import Cluster
from extender.kube.connection import Connection
from extender.kube.errors import NoConfiguration
from extender.kube.writers import Writers
from extender.telemetry import metrics
from extender.telemetry.logs import logger, set_up
from extender.verbs.barrier import Barrier
from extender.verbs.newcomers import Newcomers
from extender.verbs.posting import Binder
from extender.verbs.verbs import SchedulerVerbs
from extender.web.app import create_app
from extender.web.debug import create_debug_app
from extender.web.health import Check, Note, create_health_app
from extender.web.listen import listen
from extender.web.server import serve as serve_verbs
from extender.web.side import SideServer

log = logger(__name__)

_READERS = 16  # watches, and single reads of pods and the Lease
_GROUP_WRITERS = 4  # of their own: PodGroups for plain pods never keep a gate waiting
_STUCK = 30.0  # seconds without a cycle after which the process is not alive


def serve(configuration: Configuration) -> None:
    """Serve until told to stop. Raises InvalidConfiguration for a port in use."""
    set_up(configuration.log_format, configuration.log_level)
    listeners = [
        listen("--listen", configuration.listen),
        listen("--health-listen", configuration.health_listen),
        listen("--debug-listen", configuration.debug_listen),
    ]
    if configuration.webhook_certificates != "off":
        listeners.append(listen("--webhook-listen", configuration.webhook_listen))
    host = Host(configuration, _connect(configuration))
    serve_verbs(
        listeners[0],
        app=lambda: create_app(host.verbs),
        on_start=lambda: host.start(*listeners[1:]),
        on_stop=host.stop,
        window=configuration.window,
    )


def _connect(configuration: Configuration) -> Connection:
    """Raises InvalidConfiguration where no cluster is named."""
    connections = configuration.binders + configuration.writers + _GROUP_WRITERS + _READERS
    try:
        return Connection.load(configuration.kubeconfig or None, configuration.context or None, connections)
    except NoConfiguration as fault:
        raise InvalidConfiguration(f"--kubeconfig: {fault}") from fault


class Host:
    """Made before the fork, started after it: threads do not survive one."""

    def __init__(self, configuration: Configuration, connection: Connection) -> None:
        lease, auto_groups = configuration.lease, configuration.auto_groups == "on"
        cluster = Cluster(connection)
        self._configuration = configuration
        self._leadership = Leadership(cluster, lease.namespace, lease.name, socket.gethostname())
        self._writers = Writers(configuration.writers, "write", fence=self.leads)
        self.ledger = Ledger(
            Ownership(frozenset(configuration.scheduler_names), auto_groups),
            _limits(configuration),
            clock=time.monotonic,
            lock=RLock(),
            on_change=lambda: self._cycle.poke(),
        )
        self._binder = Binder(cluster, lambda hold: self._barrier.release(hold), configuration.binders)
        self._barrier = Barrier(self.ledger, self._binder.post, configuration.bind_deadline)
        self._newcomers = Newcomers(self.ledger, time.monotonic)
        self.verbs = SchedulerVerbs(self.ledger, self._barrier, self._newcomers, cluster)
        self.recorder = Recorder(cluster, self._writers, self.leads)
        reporter = Reporter(self.ledger, cluster, self._writers, self.leads)
        queue_reporter = QueueReporter(self.ledger, cluster, self._writers, self.leads, self.recorder)
        commander = Commander(self.ledger, cluster, self._writers, self.leads, self.recorder)
        self._yielder = Yielder(self.ledger, cluster, self._writers, self.leads)
        self._group_writers = Writers(_GROUP_WRITERS, "group", fence=self.leads)
        grouper = Grouper(self.ledger, cluster, self._group_writers, self.leads)
        self._feed = Feed(
            connection,
            self.ledger,
            self._newcomers,
            reporter,
            queue_reporter,
            commander,
            grouper if auto_groups else None,
        )
        chronicle = Chronicle()
        self._views = Views(self.ledger, self._barrier, self._feed, chronicle, configuration)
        self._webhooks = Webhooks(configuration, connection, self.ledger, self._feed.synced)
        self._gauges = Gauges(self._feed, self._writers, self.ledger)
        self._cycle = Cycle(
            self.ledger,
            (
                self._barrier.obey,
                Releaser(self.ledger, cluster, self._writers, self.leads).look,
                Undoer(self.ledger, cluster, self._writers, self.leads, self.recorder).look,
                reporter.look,
                grouper.look,
                Founder(self.ledger, cluster, self._writers, self.leads).look,
                queue_reporter.look,
                commander.look,
                Clearer(self.ledger, cluster, self._writers, self.leads).look,
                self._yielder.look,
                Announcer(self.ledger, self.recorder, self.leads).look,
                chronicle.look,
                self._keep_house,
            ),
            ready=self._feed.synced,
        )

    def leads(self) -> bool:
        return self._configuration.leader_elect == "off" or self._leadership.leads()

    def _notes(self) -> dict[str, Note]:
        return {"leadership": lambda: self.standing().words(), "volcano": self._yielder.words}

    def _show_leadership(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self.standing()), "volcano": self._yielder.words()}

    def standing(self) -> Standing:
        return ALONE if self._configuration.leader_elect == "off" else self._leadership.standing()

    def start(
        self, health: socket.socket, debug: socket.socket, webhooks: socket.socket | None = None
    ) -> None:
        """Begin to watch and decide."""
        self._writers.start()
        self._group_writers.start()
        self._binder.start()
        if self._configuration.leader_elect == "follow":
            self._leadership.start()
        else:
            metrics.leader.set(1)
        if VOLCANO in self._configuration.scheduler_names:
            self._yielder.start()
        self._feed.start()
        self._cycle.start()
        if webhooks:
            self._webhooks.start(webhooks)
        ready = self._feed.checks() | (self._webhooks.checks() if webhooks else {})
        debug_views = {**self._views.table(), "leadership": self._show_leadership}
        SideServer("health", health, create_health_app(self._live(), ready, notes=self._notes()))
        SideServer("debug", debug, create_debug_app(debug_views))

    def stop(self) -> None:
        """Answer what is held, then stop. Called once, as soon as the end is near."""
        self._barrier.stop()
        self._webhooks.stop()
        self._leadership.stop()
        self._yielder.stop()
        self._cycle.stop()
        self._writers.stop()
        self._group_writers.stop()
        self._feed.stop()

    def _keep_house(self, _: Decisions) -> None:
        self._newcomers.forget_ghosts()
        self._gauges.show()

    def _live(self) -> dict[str, Check]:
        return {"ping": lambda: None, "deciding": self._is_deciding}

    def _is_deciding(self) -> str | None:
        silent = time.monotonic() - self._cycle.last_run
        return f"no cycle for {silent:.0f} s" if silent > _STUCK else None


def _limits(configuration: Configuration) -> Limits:
    return Limits(
        window=configuration.window,
        start_deadline=configuration.bind_deadline,
        backoff=configuration.start_backoff,
        backoff_max=configuration.start_backoff_max,
    )
