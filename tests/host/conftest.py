"""Fixtures: the parts of a host, with a test's API server."""

from collections.abc import Iterator
from pathlib import Path
from threading import Condition, RLock
from typing import Any

import pytest

from extender.api.objects.cluster import QuotaKind
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.snapshot.decisions import ConditionPolicy
from extender.host.controllers import Controllers
from extender.host.feed import Feed
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.kube.writers import Writers
from tests.domain.builders import SCHEDULER
from tests.host.server import PATIENCE, ApiServer
from tests.kube.conftest import write_kubeconfig


class FeedBench:
    """Feed with its ledger and controllers, and the API server that it reads."""

    def __init__(self, api: ApiServer, connection: Connection) -> None:
        self.now = 0.0
        self.api = api
        self.changed = Condition()
        self.ledger = Ledger(Ownership(frozenset({SCHEDULER})), lock=RLock(), on_change=self._notice)
        self.connection = connection
        controllers = Controllers(
            self.ledger,
            ApiClient(connection),
            Writers(1, "test"),
            lambda: True,
            "volcano-system",
            ConditionPolicy(),
            {},
            max_queue_depth=5,
        )
        self.writers = controllers.all_writers
        self.objects, self.bus_commands = controllers.objects, controllers.bus_commands
        self.quotas, self.quota_queues = controllers.quotas, controllers.quota_queues
        self.quota_is_read = lambda kind: controllers.quota_is_read(kind)
        self.feed = Feed(
            connection, self.ledger, controllers, auto_groups=True, job_kinds=[], quota_sources=[*QuotaKind]
        )

    def _notice(self) -> None:
        with self.changed:
            self.changed.notify_all()

    @property
    def writes(self) -> int:
        """Return the number of submitted writes, none of which is executed."""
        return sum(writer.pending_count for writer in self.writers)

    def wait_for(self, condition: Any) -> None:
        """Wait for a condition that changes with the ledger.

        `condition` is called under the ledger's lock.
        """
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def bench(api: ApiServer, tmp_path: Path) -> Iterator[FeedBench]:
    connection = Connection.load(str(write_kubeconfig(tmp_path, api.url)))
    new_station = FeedBench(api, connection)
    yield new_station
    new_station.feed.stop()
    connection.close()
