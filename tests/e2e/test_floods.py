"""Thousands of connections that say nothing, or half of it, while gangs start; and pages that ask."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest
import urllib3

from tests.e2e.harness.access import User
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port, configured, wait_in_force
from tests.flood import PARTIAL_REQUESTS, flood, many_files

MANY = 1000


@contextmanager
def floods(ports: dict[str, int]) -> Iterator[None]:
    """Flood each port, one flood after the other, until the context ends."""
    ended = Event()

    def go_on(name: str) -> None:
        while not ended.is_set():
            with flood(ports[name], PARTIAL_REQUESTS[name], MANY):
                ended.wait(1)

    threads = [Thread(target=go_on, args=[name]) for name in ports]
    with many_files():
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@pytest.mark.alone
def test_gangs_start_and_reviews_are_answered_in_a_flood_at_every_port(
    stage: Stage, muster_user: User
) -> None:
    stage.nodes(4, cpu="8")
    webhooks = Port()
    with configured(stage.api, webhooks), ExitStack() as stack:
        muster = stage.start_muster(*webhooks.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        stage.start_sidecar(muster, user=muster_user)
        held = stage.gang("held", 3, min_member=4)
        wait_for(lambda: muster.decision(stage.namespace, "held"), what="the short gang is known")
        stack.enter_context(floods({**muster.ports, "webhooks": webhooks.number}))
        for number in range(5):
            stage.wait_phase(stage.gang(f"g{number}", 3), "Running")
            wait_for(muster.live, what="a probe answered")
        wait_in_force(stage.api)  # a review is answered, in Muster's words
        stage.wait_phase([*held, *stage.pods("last", 1, group="held")], "Running")
    for port in ("health", "debug"):  # those with the lowest limits
        assert muster.metric("muster_connections_dropped_total", port=port, reason="full") > 0


@pytest.mark.parametrize("port", ["verbs", "health", "debug"])
def test_a_page_in_a_browser_gets_nothing(stage: Stage, muster_user: User, port: str) -> None:
    muster = stage.start_muster(user=muster_user)
    url = f"http://127.0.0.1:{muster.ports[port]}/debug/queues"
    with urllib3.PoolManager(retries=False, timeout=30) as pool:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            assert pool.request("GET", url, headers=headers).status == 403
