"""Assembly of all parts into a process that watches a cluster, decides, and answers the scheduler.

reflectors ──► Ledger ◄──► DecisionLoop (decide) ──► controllers, Barrier
                 ▲                                            ▲
                 └── verbs: filter, prioritize, preempt, bind ┘
"""

import socket
import time
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import msgspec

from extender import __version__
from extender.api.configuration import Configuration, InvalidConfiguration
from extender.api.workloads.further_kinds import with_further
from extender.api.workloads.shape import Kinds
from extender.controllers.cycle import DecisionLoop
from extender.controllers.history import History
from extender.controllers.leader_election import LeaderElection, NoElection
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.device_requests import LogicalResources
from extender.domain.model.ownership import Ownership
from extender.domain.snapshot.auto_podgroups import PlainPods
from extender.domain.snapshot.decisions import ConditionPolicy
from extender.domain.snapshot.jobs import JobRules
from extender.domain.snapshot.snapshot import Limits
from extender.host.certificate_files import MutualTls
from extender.host.controllers import STATUS_WRITER_COUNT, VOLCANO_WRITER_COUNT, Controllers
from extender.host.dashboard import Dashboard, decision_source, what_if_source
from extender.host.debug_pages import Views
from extender.host.feed import Feed
from extender.host.upkeep import FreedMemory, Gauges, collect_less_often, freeze_objects_after, share_heaps
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.decoding import prepare_structs
from extender.kube.errors import ApiError, NoConfiguration
from extender.kube.writers import Writers
from extender.ports.port import Pulse
from extender.telemetry.logs import logger, set_up
from extender.verbs.barrier import LAST_TIMEOUT, Barrier
from extender.verbs.posting import Binder, UnclearClaims
from extender.verbs.verbs import SchedulerVerbs
from extender.web.debug import View, create_debug_app
from extender.web.server import App
from extender.web.server import serve as serve_verbs
from extender.web.side_ports import Check, HealthApp, ReadyLine, SideServer, pages
from extender.web.sockets import Ports

if TYPE_CHECKING:  # modules of disabled parts are not loaded
    from extender.host.scheduler_proxy import SchedulerProxy
    from extender.host.webhooks import Webhooks

log = logger(__name__)

_READERS = 16  # connections for watches, and for single reads of pods and the Lease
_VERSION_TIMEOUT = 2.0  # seconds
_MAX_CYCLE_AGE = 30.0  # seconds without a cycle after which /livez fails


def serve(configuration: Configuration, ports: Ports) -> None:
    """Serve until a signal to stop.

    Raises:
        InvalidConfiguration: No cluster is named.
    """
    set_up(configuration.log_format, configuration.log_level)
    collect_less_often()
    share_heaps()
    connection_count = (
        configuration.binders + configuration.writers + STATUS_WRITER_COUNT + VOLCANO_WRITER_COUNT + _READERS
    )
    kubeconfig, context = configuration.kubeconfig or None, configuration.context or None
    try:
        connection = Connection.load(kubeconfig, context, connection_count)
    except NoConfiguration as fault:
        raise InvalidConfiguration(f"--kubeconfig: {fault}") from fault
    host = Host(configuration, connection, ports)
    serve_verbs(
        ports.verbs,
        app=lambda: App(host.verbs),
        on_start=host.start,
        on_stop=host.stop,
        window=configuration.window,
        pulse=host.pulse,
        secure=host.tls.context if host.tls.is_enabled else None,
    )


class Host:
    """All parts.

    They are created before the fork and started afterwards, as threads do not survive a fork.
    """

    def __init__(self, configuration: Configuration, connection: Connection, ports: Ports) -> None:
        cluster = ApiClient(connection)
        job_kinds, lease = with_further(configuration.job_kinds), configuration.lease
        self._configuration = configuration
        self._connection = connection
        self._ports = ports
        self._leadership: LeaderElection | NoElection = NoElection()
        if configuration.leader_elect != "off":
            self._leadership = LeaderElection(cluster, lease.namespace, lease.name, socket.gethostname())
        self._proxy: SchedulerProxy | None = None
        if ports.view is not None:
            from extender.host import scheduler_proxy

            self._proxy = scheduler_proxy.SchedulerProxy(configuration, connection.endpoint, ports.view)
        self.ledger = self._new_ledger(job_kinds)
        queue_of, thread_count = self.ledger.groups.queue_uid, configuration.binders
        self._binder = Binder(cluster, lambda hold: self._barrier.release(hold), queue_of, thread_count)
        self._barrier = Barrier(self.ledger, self._binder.post, configuration.bind_deadline)
        self._unclear_claims = UnclearClaims(self.ledger, cluster, configuration.bind_deadline + LAST_TIMEOUT)
        self.verbs = SchedulerVerbs(self.ledger, self._barrier, cluster)
        self._controllers = self._new_controllers(cluster, job_kinds)
        self._feed = self._new_feed(connection, job_kinds)
        self._gauges = Gauges(self._feed, self._controllers.all_writers, self.ledger)
        self._history = History(
            self.ledger,
            self._leadership.leads,
            Path(configuration.history) if configuration.history else None,
            configuration.history_retention,
        )
        first_listeners = (self._barrier.on_decisions, self._unclear_claims.read_due)
        last_listeners = (self._gauges.on_decisions, self._history.on_decisions)
        listeners = (*first_listeners, *self._controllers.listeners, *last_listeners)
        is_synced = freeze_objects_after(self._feed.is_synced)
        self._cycle = DecisionLoop(self.ledger, listeners, is_synced, leads=self._leadership.leads)
        self.tls = MutualTls(configuration.tls_folder)
        self.pulse = Pulse()
        self._freed_memory = FreedMemory()
        self._decided = decision_source(
            self.ledger,
            self._controllers.decision_log.latest,
            self._controllers.estimates,
            self._controllers.start_changes,
            self._leadership.leads,
        )
        self._trials = what_if_source(self.ledger)
        self._dashboard: Dashboard | None = None
        if ports.dashboard is not None:
            self._dashboard = Dashboard(
                configuration, connection, ports.dashboard, self._decided, self._history.report, self._trials
            )
        self._webhooks: Webhooks | None = None
        if configuration.webhook_certificates != "off":
            from extender.host import webhooks

            runs_jobs = self._controllers.runs_volcano_jobs
            self._webhooks = webhooks.Webhooks(
                configuration, connection, self.ledger, self._feed.is_synced, runs_jobs
            )
        prepare_structs()  # all modules with structs are loaded now, and no thread runs yet

    def _new_ledger(self, job_kinds: Kinds) -> Ledger:
        configuration = self._configuration
        return Ledger(
            Ownership(frozenset(configuration.scheduler_names), configuration.auto_groups == "on"),
            Limits(
                oversell=configuration.oversell,
                max_reserved_part=configuration.reservations,
                usage_half_life=configuration.usage_half_life,
                window=configuration.window,
                start_deadline=configuration.bind_deadline,
                backoff=configuration.start_backoff,
                backoff_max=configuration.start_backoff_max,
            ),
            clock=time.monotonic,
            lock=RLock(),
            on_change=lambda: self._cycle.wake_up(),
            on_shown=self._proxy.pass_changes_on if self._proxy else None,
            wall_clock=time.time,
            jobs=JobRules(
                configuration.manage_jobs,
                frozenset(configuration.unmanaged_namespaces),
                frozenset(configuration.unmanaged_kinds),
                job_kinds,
            ),
            logical=LogicalResources(configuration.logical_resources),
        )

    def _new_controllers(self, cluster: ApiClient, job_kinds: Kinds) -> Controllers:
        configuration, leads = self._configuration, self._leadership.leads
        return Controllers(
            self.ledger,
            cluster,
            Writers(configuration.writers, "write", may_write=leads),
            leads,
            configuration.volcano_namespace,
            ConditionPolicy(
                covers_ungated=self.ledger.shown_pods.is_on,  # the scheduler then writes no conditions
                shows_waiting_for_capacity=configuration.waiting_for_room == "show",
                shows_never_fits=configuration.never_fits == "show",
            ),
            job_kinds,
            max_queue_depth=configuration.max_queue_depth,
            runs_volcano_jobs=configuration.volcano_jobs == "on",
            plain_pods=PlainPods(configuration.podgroups_for_plain_pods),
        )

    def _new_feed(self, connection: Connection, job_kinds: Kinds) -> Feed:
        configuration, auto_groups = self._configuration, self._configuration.auto_groups == "on"
        return Feed(
            connection,
            self.ledger,
            self._controllers,
            auto_groups,
            job_kinds=[
                row
                for row in job_kinds.values()
                if row.manageable
                and (not row.commanded or configuration.volcano_jobs == "on")
                and configuration.manage_jobs != "off"
            ],
            quota_sources=configuration.quota_sources,
            controller_kinds=[row for row in job_kinds.values() if row.makes_groups and auto_groups],
        )

    def start(self) -> None:
        self._log_start()
        self._leadership.start()
        self._controllers.start()
        self._binder.start()
        self._unclear_claims.start()
        self._feed.start()
        self._history.start()
        self._cycle.start()
        self._freed_memory.start()
        self.tls.start()
        ready_checks = self._feed.checks() | self.tls.checks()
        live_checks: dict[str, Check] = {
            "ping": lambda: None,
            "verbs": self.pulse.fault,
            "deciding": self._stuck_cycle,
            "reading": self._feed.stuck_watch,
        }
        ready_lines: dict[str, ReadyLine] = {
            "leadership": lambda: self._leadership.status().text(),
            "volcano": self._controllers.volcano.text,
            "volcano-jobs": self._controllers.volcano_jobs_text,
            "marks": self._controllers.mark_trust.text,
            "history": self._history.text,
        }
        views = Views(
            ledger=self.ledger,
            barrier=self._barrier,
            feed=self._feed,
            decision_log=self._controllers.decision_log,
            configuration=self._configuration,
            estimates=self._controllers.estimates,
            quota_queues=self._controllers.quota_queues,
            decision_source=self._decided,
            history_records=self._history,
            trials=self._trials,
        )
        debug_views: dict[str, View] = {**views.table(), "leadership": self._show_leadership}
        if self._webhooks and self._ports.webhooks:
            self._webhooks.start(self._ports.webhooks)
            ready_checks |= self._webhooks.checks()
        if self._proxy:
            self._proxy.start(self.ledger.shown_pods)
            live_checks["view-serving"] = self._proxy.fault
            ready_lines["view"], debug_views["view"] = self._proxy.ready_line, self._proxy.debug_state
        if self._dashboard:
            self._dashboard.start()
            ready_lines["dashboard"] = self._dashboard.ready_line
        health_app = HealthApp(live_checks, ready_checks, ready_lines=ready_lines)
        SideServer("health", self._ports.health, health_app)
        SideServer("debug", self._ports.debug, pages(create_debug_app(debug_views)))

    def _log_start(self) -> None:
        """Log the versions, and the settings that differ from the defaults."""
        try:
            answer = self._connection.request("GET", "/version", timeout=_VERSION_TIMEOUT)
            kubernetes = str(msgspec.json.decode(answer, type=dict[str, Any]).get("gitVersion"))
        except (ApiError, msgspec.MsgspecError) as fault:
            kubernetes = f"unknown: {fault}"
        configuration, default = self._configuration, Configuration()
        values = {name: getattr(configuration, name) for name in configuration.__struct_fields__}
        settings = {name: str(value) for name, value in values.items() if value != getattr(default, name)}
        log.info("Muster starts", version=__version__, kubernetes=kubernetes, settings=settings)

    def stop(self) -> None:
        """Answer held calls, and then stop all parts. Called once, when a signal to stop arrives."""
        self._barrier.stop()
        if self._proxy:
            self._proxy.stop()
        self.tls.stop()
        if self._dashboard:
            self._dashboard.stop()
        if self._webhooks:
            self._webhooks.stop()
        self._leadership.stop()
        self._freed_memory.stop()
        self._cycle.stop()
        self._history.stop()
        self._controllers.stop()
        self._feed.stop()

    def _show_leadership(self) -> dict[str, object]:
        status = msgspec.to_builtins(self._leadership.status())
        return {**status, "volcano": self._controllers.volcano.text()}

    def _stuck_cycle(self) -> str | None:
        """Return the fault of the scheduling cycle for /livez; None if there is no fault."""
        seconds = time.monotonic() - self._cycle.last_run_at
        return f"no cycle for {seconds:.0f} s" if seconds > _MAX_CYCLE_AGE else None
