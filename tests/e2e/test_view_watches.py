"""Two watches of pods behind the proxy, the scheduler's and Muster's own.

Either may expire, be late or stand still, so that one is ahead of the other. No node is given twice and no
gang stands in part.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import Fault
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.pod_watches import (
    MUSTER_AGENT,
    SCHEDULER_AGENT,
    begins_too_early,
    is_late,
    is_refused_as_too_old,
    pod_watch,
    stands_still,
)
from tests.e2e.harness.resources import POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view
LATE = 2.0  # seconds
BOTH = pytest.mark.parametrize("whose", [SCHEDULER_AGENT, MUSTER_AGENT], ids=["the-schedulers", "musters"])
TooOld = Callable[[str, Callable[[], object]], Fault]


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    """Start a Muster; the scheduler's watch goes through `proxy` as well, by way of Muster."""
    return muster_behind_proxy


# ---- a version is too old


@BOTH
@pytest.mark.parametrize("too_old", [begins_too_early, is_refused_as_too_old], ids=["an-event", "a-status"])
def test_changes_before_a_watch_expired_are_known_afterwards(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy, whose: str, too_old: TooOld
) -> None:
    """A gang has ended and another has come while there was no watch; then all pods are listed again."""
    stage.nodes(3, cpu="2")
    before = stage.gang("before", 3, cpu="2")
    stage.wait_phase(before)
    changed = threading.Event()
    expired = too_old(whose, changed.wait)
    proxy.inject(expired)
    assert proxy.cut(pod_watch(whose)) == 1
    wait_for(expired.hit.is_set, what="it asks for a new watch")
    stage.delete_pods(before)
    after = stage.gang("after", 3, cpu="2")
    changed.set()
    stage.wait_phase(after)
    scheduler.wait_agrees()


# ---- one stands still


class Watch:
    """The watch of one of the two: it passes until `stop`."""

    def __init__(self, proxy: FaultProxy, whose: str) -> None:
        self._passing = threading.Event()
        self._passing.set()
        self._fault = stands_still(whose, self._passing)
        proxy.inject(self._fault)

    def stop(self) -> None:
        assert self._fault.hit.is_set(), "no such watch has begun"
        self._passing.clear()

    def go_on(self) -> None:
        self._passing.set()


@pytest.fixture
def the_schedulers(proxy: FaultProxy) -> Iterator[Watch]:
    """Yield the scheduler's watch; requested before the fixture `scheduler`."""
    watch = Watch(proxy, SCHEDULER_AGENT)
    yield watch
    watch.go_on()


@pytest.fixture
def musters(proxy: FaultProxy) -> Iterator[Watch]:
    """Yield Muster's watch; requested before the fixture `muster`."""
    watch = Watch(proxy, MUSTER_AGENT)
    yield watch
    watch.go_on()


def test_a_gang_is_shown_when_the_schedulers_watch_has_its_pods(
    stage: Stage, muster: Muster, the_schedulers: Watch, scheduler: KubeScheduler
) -> None:
    """Muster lets it start long before."""
    gang = _answered_unseen(stage, muster, the_schedulers)
    assert scheduler.dump().queued == {}
    the_schedulers.go_on()
    stage.wait_phase(gang)
    scheduler.wait_agrees()


def test_a_gang_given_up_before_the_schedulers_watch_had_its_pods_is_never_shown(
    stage: Stage, muster: Muster, the_schedulers: Watch, scheduler: KubeScheduler
) -> None:
    gang = _answered_unseen(stage, muster, the_schedulers)
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    wait_for(lambda: not muster.claim_stages(), what="they may start no more")
    the_schedulers.go_on()
    wait_for(lambda: _unbound(muster) == (0, 3), what="all three seen, and hidden")
    scheduler.wait_agrees()
    assert scheduler.dump().queued == {}
    stage.group("a", 3)
    stage.wait_phase(gang)
    scheduler.wait_agrees()


@pytest.mark.muster_flags("--start-backoff", "1s")
def test_capacity_is_not_taken_twice_when_the_schedulers_watch_lags(
    stage: Stage, muster: Muster, the_schedulers: Watch, scheduler: KubeScheduler
) -> None:
    """The gang may start, and another pod takes its capacity before the scheduler knows either."""
    gang = _answered_unseen(stage, muster, the_schedulers)
    foreign = _bound_by_another(stage, "n0")
    wait_for(lambda: "BOUND" in muster.claim_stages(), what="Muster knows of it")
    the_schedulers.go_on()
    stage.wait_reason("a", "NoRoom")
    wait_for(lambda: scheduler.dump().queued == {}, what="the scheduler has forgotten them")
    assert stage.bound(gang) == {}
    stage.delete_pods(foreign)
    stage.wait_phase(gang)
    scheduler.wait_agrees()


def test_a_gang_that_only_the_schedulers_watch_knows_is_hidden(
    stage: Stage, musters: Watch, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="2")
    stage.wait_phase(stage.gang("before", 2, cpu="0"))
    musters.stop()
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: _unbound(muster) == (0, 3), what="all three seen, and hidden")
    assert scheduler.dump().queued == {}
    musters.go_on()
    stage.wait_phase(gang)
    scheduler.wait_agrees()


@pytest.mark.muster_flags("--start-backoff", "1s")
def test_capacity_that_only_the_scheduler_knows_to_be_taken_is_not_taken_twice(
    stage: Stage, musters: Watch, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Muster plans with a node that is full, and hears of it by the scheduler, which refuses a member."""
    stage.nodes(3, cpu="2")
    stage.group("a", 4)
    gang = stage.pods("a", 3, group="a", cpu="2")
    muster.wait_decision(stage.namespace, "a", reason="NotEnoughMembers")
    page = f"/debug/podgroups/{stage.namespace}/a"
    wait_for(lambda: muster.debug(page)["waiting"] == 3, what="Muster knows all three")
    musters.stop()
    foreign = _bound_by_another(stage, "n0")
    wait_for(lambda: len(scheduler.dump().cached) == 1, what="the scheduler knows of it")
    stage.api.patch(POD_GROUPS, "a", {"spec": {"minMember": 3}}, stage.namespace)
    wait_for(lambda: "HELD" in muster.claim_stages(), what="it starts")
    musters.go_on()
    stage.wait_reason("a", "NoRoom")
    wait_for(lambda: scheduler.dump().queued == {}, what="the scheduler has forgotten them")
    assert stage.bound(gang) == {}
    stage.delete_pods(foreign)
    stage.wait_phase(gang)
    scheduler.wait_agrees()


# ---- one is slow


@BOTH
def test_gangs_come_and_go_while_one_watch_is_late(
    stage: Stage, proxy: FaultProxy, muster_user: User, whose: str
) -> None:
    """Start each gang only where another has ended.

    Where Muster's own watch is in time, a foreign scheduler takes some of that again and again; the other
    way round they would race for it, as any two schedulers do.
    """
    late = is_late(whose, LATE)
    proxy.inject(late)
    muster = stage.start_muster(user=muster_user, server=proxy.server, view=True)
    scheduler = stage.start_sidecar(muster, user=muster_user)
    stage.nodes(4, cpu="4")
    gangs = {f"g{number}": stage.gang(f"g{number}", 4, cpu="2") for number in range(4)}
    for number in itertools.count():
        foreign = stage.pods("foreign", 1, first=number, cpu="1", scheduler="another")
        if whose == SCHEDULER_AGENT:
            stage.api.bind(stage.namespace, foreign[0], f"n{number % 4}")
        for name in wait_for(lambda: stage.running(gangs), 120, f"of {sorted(gangs)} one runs"):
            stage.finish(gangs.pop(name))
        stage.delete_pods(foreign)
        if not gangs:
            break
    scheduler.wait_agrees()
    assert late.hit.is_set()


def _answered_unseen(stage: Stage, muster: Muster, the_schedulers: Watch) -> list[str]:
    """Create a gang that may start, of which the scheduler's watch has heard nothing."""
    stage.nodes(3, cpu="2")
    the_schedulers.stop()
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: muster.claim_stages() == {"ANSWERED"}, what="all three may start")
    return gang


def _bound_by_another(stage: Stage, node: str) -> list[str]:
    foreign = stage.pods("foreign", 1, cpu="2", scheduler="another")
    stage.api.bind(stage.namespace, foreign[0], node)
    return foreign


def _unbound(muster: Muster) -> tuple[int, int]:
    """Return how many of our unbound pods the proxy shows to the scheduler, and how many it hides."""
    readers: list[dict[str, Any]] = muster.debug("/debug/view")["readers"]
    found = next((reader for reader in readers if reader["watches"]), {})
    return found.get("shown", 0), found.get("hidden", 0)
