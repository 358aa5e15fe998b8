"""Muster with a dashboard in one process: `python -m tests.bench.watched GROUPS CHANGES API`.

The process runs scheduling cycles, answers filter calls, and serves pages to users that an API server
authenticates. The cluster has 5,000 nodes, 1,000 queues and GROUPS groups that wait or start. CHANGES times
per second, a gang is created and a scheduling cycle runs. Every 10 ms, the process answers a filter call with
all nodes while it holds the lock of the ledger. API is the port of an API server on loopback.

The process prints its address, and then a Reading for each input line.
"""

import sys
import threading
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from extender.api.setting_kinds import Address
from extender.dashboard.app import create_dashboard_app, limit_costs
from extender.dashboard.overviews import DecisionSource
from extender.dashboard.rendering import OpenPages
from extender.dashboard.token_login import TokenLogin
from extender.domain.model.reasons import Verdict
from extender.domain.scheduling.decide import decide
from extender.kube.access import AccessApi
from extender.kube.connection import Connection
from extender.telemetry.logs import set_up
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import listen
from tests.domain import builders
from tests.domain.world import World, gang
from tests.kube.conftest import write_kubeconfig

NODES, QUEUES = 5000, 1000
_CALL_INTERVAL = 0.01  # seconds between two filter calls
_SWITCH_INTERVAL = 0.0005  # seconds between thread switches, as in extender/web/server.py


class Reading(msgspec.Struct):
    """Values of the meters.

    `cpu` is the CPU seconds of all threads of the dashboard since the start. `answers` and `cycles` are the
    milliseconds of the filter calls and of the scheduling cycles since the last reading.
    """

    cpu: float
    answers: list[float]
    cycles: list[float]


class MusterWithDashboard:
    """Parts of Muster that serve a dashboard, with a simulated cluster of waiting groups."""

    def __init__(self, groups: int, changes: int, api_port: int) -> None:
        self._world = World(*(builders.node(f"n{number:04}", cpu="32") for number in range(NODES)))
        self._world.add(*(builders.queue(f"queue-{number}") for number in range(QUEUES)))
        for number in range(groups):
            self._world.add(gang(f"job-{number:05}", 8, cpu="8", queue=f"queue-{number % QUEUES}"))
        self._decisions = self._world.settle().decisions
        self._lock = threading.Lock()
        self._reading = Reading(0.0, [], [])
        self._changes = changes
        source = DecisionSource(lambda: self._decisions, list)
        with TemporaryDirectory() as folder:
            connection = Connection.load(
                str(write_kubeconfig(Path(folder), f"http://127.0.0.1:{api_port}")),
            )
        token_login, open_pages = TokenLogin(AccessApi(connection), connection.endpoint), OpenPages(source)
        app = create_dashboard_app(source, token_login.identify, token_login.login, open_pages=open_pages)
        limit_costs(app)
        listener = listen("--listen", Address("127.0.0.1", 0))
        answer = open_pages.news_for
        self.address = SideServer("dashboard", listener, pages(app), immediate_answer=answer).address

    def start(self) -> None:
        """Start the threads that answer filter calls and run scheduling cycles."""
        for thread_target in (self._answer_filter_calls, self._decide_after_changes):
            threading.Thread(target=thread_target, daemon=True).start()

    def take_reading(self) -> Reading:
        """Return the values since the last reading, and begin a new reading."""
        reading, self._reading = self._reading, Reading(0.0, [], [])
        threads = (thread for thread in threading.enumerate() if thread.name.startswith("dashboard"))
        files = (Path(f"/proc/self/task/{thread.native_id}/schedstat") for thread in threads)
        reading.cpu = sum(int(file.read_text().split()[0]) for file in files) / 1e9
        return reading

    def _answer_filter_calls(self) -> None:
        """Answer a filter call with all nodes again and again."""
        starting_groups = (
            key for key, decision in self._decisions.groups.items() if decision.verdict is Verdict.STARTING
        )
        pod, node_names = f"{next(starting_groups).partition('/')[2]}-0", list(self._world.nodes)
        while True:
            time.sleep(_CALL_INTERVAL)
            started_at = time.perf_counter()
            with self._lock:
                self._world.answer(pod, node_names)
            self._reading.answers.append((time.perf_counter() - started_at) * 1000)

    def _decide_after_changes(self) -> None:
        """Create gangs and decide, at the rate of changes. Without changes, do nothing."""
        if self._changes:
            for number in count():
                time.sleep(1 / self._changes)
                started_at = time.perf_counter()
                with self._lock:
                    self._world.add(gang(f"new-{number}", 2, cpu="8", queue=f"queue-{number % QUEUES}"))
                    snapshot = self._world.ledger.snapshot()
                self._decisions = decide(snapshot, self._decisions)
                self._reading.cycles.append((time.perf_counter() - started_at) * 1000)


def main() -> None:
    set_up("text", "error")
    sys.setswitchinterval(_SWITCH_INTERVAL)
    muster = MusterWithDashboard(*(int(text) for text in sys.argv[1:]))
    muster.start()
    sys.stdout.write(f"http://{muster.address}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(msgspec.json.encode(muster.take_reading()).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
