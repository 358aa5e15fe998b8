"""Failures and cuts between scheduler, view and API server.

Gangs run fully or not at all, and the scheduler's cache is correct.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import ALL_REQUESTS, before_request, hold_request, lose_request, pass_on
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.replica import Replica
from tests.e2e.harness.resources import LEASES
from tests.e2e.harness.scheduler import QUICK_LEASE, KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import LastCall
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view
CUTTING_SECONDS = 30.0  # seconds: the one place where time has to pass
A_FEW_EVENTS = 6000  # bytes


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    return muster_behind_proxy


@pytest.fixture
def verbs(stage: Stage, muster: Muster) -> FaultProxy:
    return stage.start_verbs_proxy(muster)


@pytest.fixture
def scheduler(stage: Stage, muster: Muster, verbs: FaultProxy, muster_user: User) -> KubeScheduler:
    return stage.start_sidecar(muster, muster=verbs.address, user=muster_user)


# ---- Muster dies


def test_muster_killed_while_a_gang_is_hidden_but_for_its_last_member(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Its successor does not know what was shown, and hides what may not start yet."""
    stage.nodes(3, cpu="2")
    stage.group("a", 3)
    first = stage.pods("a", 2, group="a", cpu="2")
    stage.wait_reason("a", "NotEnoughMembers")
    muster.restart(hard=True)
    last = stage.pods("a", 1, first=2, group="a", cpu="2")
    stage.wait_phase([*first, *last])
    scheduler.wait_agrees()


def test_muster_killed_while_members_are_shown(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The scheduler is frozen meanwhile: it has received the members, and has evaluated none of them."""
    stage.nodes(3, cpu="2")
    scheduler.process.freeze()
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: muster.claim_stages() == {"ANSWERED"}, what="all three shown")
    muster.kill()
    scheduler.process.thaw()
    muster.start()
    stage.wait_phase(gang)
    scheduler.wait_agrees()


def test_muster_killed_while_members_are_held(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, verbs: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = LastCall(stage, muster, verbs, cpu="2")
    muster.kill()
    gang.release()
    muster.start()
    stage.wait_phase(gang.pods)
    scheduler.wait_agrees()


def test_muster_killed_between_two_bindings(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    dead = threading.Event()
    proxy.inject(pass_on(), lose_request(dead, times=2))
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: len(stage.bound(gang)) == 1 and not proxy.pending_faults(), what="one of three bound")
    muster.kill()
    muster.start()
    dead.set()
    stage.wait_phase(gang)
    scheduler.wait_agrees()


def test_muster_killed_with_gangs_that_wait_and_gangs_that_run(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Keep all bound pods, and show no waiting pod."""
    stage.nodes(3, cpu="2")
    runs = stage.gang("runs", 3, cpu="2")
    stage.wait_phase(runs)
    waits = stage.gang("waits", 3, cpu="2")
    stage.wait_reason("waits", "NoRoom")
    muster.restart(hard=True)
    muster.wait_decision(stage.namespace, "waits", reason="NoRoom")
    scheduler.wait_agrees()
    assert scheduler.dump().queued == {}
    stage.finish(runs)
    stage.wait_phase(waits)


# ---- the scheduler dies


def test_the_scheduler_restarted_while_members_are_held(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, verbs: FaultProxy, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = LastCall(stage, muster, verbs, cpu="2")
    scheduler.kill()
    gang.release()
    scheduler.start()
    stage.wait_phase(gang.pods)
    assert all(len({*nodes}) == 1 for nodes in proxy.bindings().values()), "each to one node"
    scheduler.wait_agrees()


def test_a_gang_given_up_is_not_shown_before_its_old_calls_have_ended(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, verbs: FaultProxy, proxy: FaultProxy
) -> None:
    """Restart a gang after one of its members goes while the call for it is in flight.

    The gang has to give up; at once another member comes. No binding is refused, and each pod is bound
    once.
    """
    stage.nodes(3, cpu="2")
    gang = LastCall(stage, muster, verbs, cpu="2")
    stage.delete_pods([gang.last])
    (last,) = stage.pods("a", 1, first=3, group="a", cpu="2")
    wait_for(lambda: not muster.held(), what="the gang is given up")
    gang.release()
    stage.wait_phase([*gang.held, last])
    assert all(len(nodes) == 1 for nodes in proxy.bindings().values())
    assert [call for call in proxy.writes() if call.path.endswith("/binding") and call.status != 201] == []
    scheduler.wait_agrees()


# ---- the API server dies


@pytest.mark.gaps_allowed
def test_the_api_server_restarted_while_members_are_held(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, verbs: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = LastCall(stage, muster, verbs, cpu="2")
    stage.cluster.restart_apiserver()
    gang.release()
    stage.wait_phase(gang.pods)
    stage.wait_phase(stage.gang("after", 2, cpu="0"))
    scheduler.wait_agrees()


@pytest.mark.gaps_allowed
@pytest.mark.muster_flags("--binders", "1")
def test_the_api_server_killed_between_two_bindings(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    apiserver = stage.cluster.apiserver
    dies = before_request(apiserver.kill)
    proxy.inject(pass_on(), dies)
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: dies.hit.is_set() and not apiserver.alive(), what="API server killed")
    apiserver.start()
    stage.cluster.wait_ready()
    stage.wait_phase(gang)
    scheduler.wait_agrees()


# ---- wires are cut


def test_pods_released_while_the_scheduler_has_no_watch_are_shown_afterwards(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    """Keep running pods known: versions do not go back, or the scheduler would end."""
    wire, scheduler = _on_a_wire(stage, muster, muster_user)
    stage.nodes(3, cpu="4")
    before = stage.gang("a", 3, cpu="2")
    stage.wait_phase(before)
    wire.refuse()
    late = stage.gang("b", 3, cpu="2")
    wait_for(lambda: "ANSWERED" in muster.claim_stages(), what="the second gang may start")
    wire.restore()
    stage.wait_phase(late)
    scheduler.wait_agrees()


def test_a_start_given_up_while_the_scheduler_has_no_watch_is_hidden_again(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    wire, scheduler = _on_a_wire(stage, muster, muster_user)
    stage.nodes(3, cpu="2")
    scheduler.process.freeze()
    gang = stage.gang("a", 3, cpu="2")
    wait_for(lambda: muster.claim_stages() == {"ANSWERED"}, what="all three shown")
    wire.refuse()
    foreign = stage.pods("foreign", 1, cpu="2", scheduler="another")
    stage.api.bind(stage.namespace, foreign[0], "n0")
    wait_for(lambda: "BOUND" in muster.claim_stages(), what="Muster sees that its capacity is taken")
    scheduler.process.thaw()  # it may have received all three before the cut, and binds them at once
    wire.restore()
    stage.wait_reason("a", "NoRoom")
    wait_for(lambda: scheduler.dump().queued == {}, what="the scheduler has forgotten them")
    assert stage.bound(gang) == {}
    stage.delete_pods(foreign)
    stage.wait_phase(gang)


@pytest.mark.timeout(400)
def test_the_watch_is_cut_at_any_byte_while_gangs_come_and_go(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    """Each second every connection between the scheduler and the proxy ends some bytes later."""
    wire, scheduler = _on_a_wire(stage, muster, muster_user)
    stage.nodes(4, cpu="4")
    process, rng = scheduler.process.pid, random.Random(7)
    gangs, numbers, end = dict[str, list[str]](), itertools.count(), time.monotonic() + CUTTING_SECONDS
    while time.monotonic() < end:
        while len(gangs) < 6:
            name = f"g{next(numbers)}"
            gangs[name] = stage.gang(name, 4, cpu="1")
        for name in stage.running(gangs)[:2]:
            stage.finish(gangs.pop(name))
        wire.cut_after(rng.randrange(A_FEW_EVENTS))
        time.sleep(1)
    print(f"\n{len(gangs)} of {next(numbers)} gangs are left")  # noqa: T201
    wait_for(lambda: len(stage.running(gangs)) == 4, what="four of six gangs run")
    scheduler.wait_agrees()
    assert scheduler.process.alive()
    assert scheduler.process.pid == process
    while gangs:
        for name in wait_for(lambda: stage.running(gangs), what=f"of {sorted(gangs)} one runs"):
            stage.finish(gangs.pop(name))


# ---- two replicas


@pytest.fixture
def lease() -> dict[str, str]:
    return QUICK_LEASE


@pytest.fixture
def pair(stage: Stage, muster_user: User, lease: dict[str, str]) -> tuple[Replica, Replica]:
    """Start two replicas, of which the first leads."""
    first = Replica(stage, muster_user, "first", view=True, lease=lease)
    wait_for(first.leads, what="the first leads")
    return first, Replica(stage, muster_user, "second", standby=True, view=True, lease=lease)


@pytest.mark.gang_deadline(60)
@pytest.mark.parametrize(
    "harm",
    [Replica.kill, lambda replica: replica.wire.refuse(), lambda replica: replica.scheduler.kill()],
    ids=["killed", "cut-off", "scheduler-killed"],
)
def test_the_other_replica_takes_over_while_a_gang_is_in_pieces(
    stage: Stage, pair: tuple[Replica, Replica], harm: Callable[[Replica], object]
) -> None:
    """The standby's scheduler was shown nothing of what waits, and is shown it when its Muster leads."""
    first, second = pair
    stage.nodes(4, cpu="4")
    harmed = before_request(lambda: harm(first))
    first.proxy.inject(pass_on(times=2), harmed)
    gangs = {f"g{number}": stage.gang(f"g{number}", 4) for number in range(6)}
    wait_for(harmed.hit.is_set, what="harm done between two bindings")
    while gangs:
        for name in wait_for(lambda: stage.running(gangs), 120, f"of {sorted(gangs)} one runs"):
            stage.finish(gangs.pop(name))
    assert second.leads()
    second.scheduler.wait_agrees()


@pytest.mark.parametrize("lease", [{}], ids=["as-installed"])
def test_a_short_restart_of_muster_costs_no_leadership(stage: Stage, pair: tuple[Replica, Replica]) -> None:
    """The Lease is renewed through the proxy, and waits a few seconds for it."""
    first, second = pair
    stage.nodes(1, cpu="4")
    before = _lease(stage)
    first.muster.restart(hard=True)
    wait_for(first.leads, what="the first leads")
    stage.wait_phase(stage.gang("a", 4))
    assert not second.leads()
    assert _lease(stage) == before


def test_events_that_the_api_server_does_not_take_cost_no_lease(stage: Stage, muster_user: User) -> None:
    """A webhook for Events hangs, say. More of them come than the proxy has connections for."""
    alone = Replica(stage, muster_user, "alone", view=True)
    wait_for(alone.leads, what="it leads")
    before = _lease(stage)
    released = threading.Event()
    hanging = hold_request(released, "POST", "/events$", times=ALL_REQUESTS)
    alone.proxy.inject(hanging)
    try:
        stage.nodes(2, cpu="100")
        stage.wait_bound(stage.pods("single", 150))
        assert hanging.hit.is_set()
        renewed = _renewals(alone)
        wait_for(lambda: _renewals(alone) > renewed + 10, what="the Lease is renewed again and again")
        stage.wait_phase(stage.gang("a", 3))
    finally:
        released.set()
    assert alone.scheduler.process.alive()
    assert _lease(stage) == before


def _renewals(replica: Replica) -> int:
    return sum("/leases/muster-scheduler" in call.path for call in replica.proxy.writes())


def _lease(stage: Stage) -> tuple[str, int]:
    spec = stage.api.get(LEASES, "muster-scheduler", "kube-system")["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions", 0)


def _on_a_wire(stage: Stage, muster: Muster, user: User) -> tuple[TcpProxy, KubeScheduler]:
    """Start a scheduler that reaches the proxy over a wire that can be cut."""
    wire = stage.start_wire(f"127.0.0.1:{muster.view_port}")
    return wire, stage.start_sidecar(muster, kubeconfig=muster.view_kubeconfig_through(wire.port), user=user)
