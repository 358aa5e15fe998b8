"""Restarts in the middle of a start: the gang runs fully in the end, or not at all."""

import itertools
import threading

import pytest

from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import (
    ALL_REQUESTS,
    answer,
    before_request,
    hold_request,
    lose_request,
    pass_on,
)
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, NODES, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.standstill import HangingBinding, Standstill
from tests.e2e.harness.waiting import wait_for


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    return muster_behind_proxy


@pytest.mark.gates
def test_a_stopping_muster_answers_the_calls_that_it_holds(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    assert muster.stop() == 0
    wait_for(lambda: _informed(stage, "Muster is stopping") == {*gang.held}, what="the held calls answered")
    gang.release()
    assert stage.bound(gang.pods) == {}
    muster.start()
    stage.wait_phase(gang.pods, "Running")


def test_a_stopping_muster_waits_for_a_hanging_binding(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """It ends all the same, and what it left is completed by its successor."""
    stage.nodes(3, cpu="2")
    gang = HangingBinding(stage, proxy, lose_request)
    assert muster.stop() == 0
    gang.release()
    muster.start()
    stage.wait_phase(gang.pods, "Running")


def test_muster_killed_at_the_barrier(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    muster.kill()
    gang.release()
    muster.start()
    stage.wait_phase(gang.pods, "Running")


def test_muster_killed_between_two_bindings_completes_the_gang_first(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Complete it before any other gang, even one ahead of it in order."""
    stage.nodes(3, cpu="2")
    stage.group("0-older", 2)
    gang, dead = _killed_between_two_bindings(stage, muster, proxy)
    older = stage.pods("0-older", 2, group="0-older", cpu="2", gated=True)
    muster.start()
    dead.set()
    stage.wait_phase(gang, "Running")
    assert muster.wait_decision(stage.namespace, "0-older", verdict="Waiting")
    assert stage.bound(older) == {}
    stage.delete_pods(gang)
    stage.wait_phase(older, "Running")


@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "1s")
def test_muster_killed_between_two_bindings_undoes_a_gang_that_cannot_be_completed(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang, dead = _killed_between_two_bindings(stage, muster, proxy)
    (bound,) = stage.bound(gang)
    missing, waiting = sorted({*gang} - {bound})
    stage.delete_pods([missing])
    muster.start()
    dead.set()
    stage.wait_phase([bound], "Gone")
    assert stage.bound(gang) == {}
    others = stage.pods("a", 2, first=3, group="a", cpu="2", gated=True)
    stage.wait_phase([waiting, *others], "Running")


def test_no_member_is_bound_after_a_restart_between_two_bindings_if_the_podgroup_is_gone(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Let bound pods run until there is a PodGroup: the group's minimum is in no object any more."""
    stage.nodes(3, cpu="2")
    gang, dead = _killed_between_two_bindings(stage, muster, proxy)
    stage.api.delete(POD_GROUPS, "a", stage.namespace)
    muster.start()
    dead.set()
    muster.wait_decision(stage.namespace, "a", reason="GroupNotFound")
    after = stage.gang("b", 1, cpu="2", gated=True)
    stage.wait_phase(after, "Running")
    assert len(stage.bound(gang)) == 1
    assert muster.held() == {}
    stage.group("a", 3)
    stage.finish(after)
    stage.wait_phase(gang, "Running")


def test_a_scheduler_killed_at_the_barrier(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Its held calls are hung up: nothing is bound for them, and no start counts on them."""
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    assert muster.claim_stages() >= {"HELD"}
    scheduler.kill()
    muster.wait_held([])
    wait_for(lambda: muster.claim_stages() == {"PLANNED"}, what="all claims given back, and planned again")
    gang.release()
    scheduler.start()
    stage.wait_phase(gang.pods, "Running")
    assert all(len(nodes) == 1 for nodes in proxy.bindings().values())


@pytest.mark.muster_flags("--binders", "1")
def test_a_scheduler_killed_between_two_bindings(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Count bindings sent before the scheduler died.

    The callers of the rest are gone, and nothing is sent for them.
    """
    stage.nodes(3, cpu="2")
    released = threading.Event()
    first = hold_request(released)
    proxy.inject(first)
    gang = stage.gang("a", 3, cpu="2", gated=True)
    wait_for(first.hit.is_set, what="first binding sent")
    scheduler.kill()
    released.set()
    wait_for(lambda: stage.bound(gang), what="the first binding done")
    wait_for(lambda: not muster.claim_stages() & {"HELD", "POSTED"}, what="the claims of the rest given back")
    assert len(proxy.bindings()) == 1
    scheduler.start()
    stage.wait_phase(gang, "Running")
    assert all(len(nodes) == 1 for nodes in proxy.bindings().values())


@pytest.mark.gates
def test_a_pending_binding_stays_the_only_one(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """The scheduler's successor would take another node for the pod; it gets none before that is settled."""
    stage.nodes(4, cpu="2")
    gang = HangingBinding(stage, proxy)
    hanging, node = gang.hanging, muster.held()[gang.hanging]
    scheduler.kill()
    stage.api.patch(NODES, node, {"spec": {"unschedulable": True}})
    scheduler.start()
    wait_for(lambda: stage.bound([hanging]) or _refused(stage, hanging), what="tried by the successor")
    gang.release()
    assert stage.wait_bound(gang.pods)[hanging] == node
    wait_for(lambda: hanging in proxy.bindings(), what="the binding answered")
    assert proxy.bindings()[hanging] == [node]


@pytest.mark.gates
@pytest.mark.muster_flags("--bind-deadline", "2s")
def test_a_binding_without_news_releases_its_capacity(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """The write may have succeeded: its capacity stays reserved until the pod can be read again."""
    stage.nodes(1, cpu="2")
    released = threading.Event()
    hangs, unreadable = (
        lose_request(released, times=ALL_REQUESTS),
        answer(500, "GET", r"/pods/a-0$", times=ALL_REQUESTS),
    )
    proxy.inject(hangs, unreadable)
    gang = stage.gang("a", 1, cpu="2", gated=True)
    wait_for(unreadable.hit.is_set, what="the pod read in vain")
    scheduler.kill()
    muster.wait_held([])
    assert muster.claim_stages() == {"POSTED"}
    hangs.times = unreadable.times = 0
    released.set()
    wait_for(lambda: muster.claim_stages() == {"PLANNED"}, what="the claim given back, and planned again")
    scheduler.start()
    stage.wait_phase(gang, "Running")


@pytest.mark.gaps_allowed
def test_an_api_server_restarted_at_the_barrier(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="2")
    gang = Standstill(stage, muster, proxy, cpu="2")
    stage.cluster.restart_apiserver()
    gang.release()
    stage.wait_phase(gang.pods, "Running")
    stage.wait_phase(stage.pods("after", 1, group=None, gated=True, cpu="0"), "Running")


@pytest.mark.gaps_allowed
@pytest.mark.muster_flags("--binders", "1")
def test_an_api_server_killed_between_two_bindings(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """The bindings that still miss are posted until they succeed; the held calls outlast it."""
    stage.nodes(3, cpu="2")
    apiserver = stage.cluster.apiserver
    dies = before_request(apiserver.kill)
    proxy.inject(pass_on(), dies)
    gang = stage.gang("a", 3, cpu="2", gated=True)
    wait_for(lambda: dies.hit.is_set() and not apiserver.alive(), what="API server killed")
    apiserver.start()
    stage.cluster.wait_ready()
    stage.wait_phase(gang, "Running")
    assert all(len(set(nodes)) == 1 for nodes in proxy.bindings().values())


@pytest.mark.muster_flags("--bind-deadline", "10s", "--start-backoff", "1s")
def test_gangs_run_while_each_process_is_killed_again_and_again(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Twelve gangs with capacity for four at a time; when one has finished, a component is killed."""
    stage.nodes(4, cpu="4")
    gangs = {f"g{number}": stage.gang(f"g{number}", 4, cpu="1", gated=True) for number in range(12)}
    victims = itertools.cycle((muster.process, scheduler.process))

    def one_runs() -> str | None:
        return next((name for name, pods in gangs.items() if stage.phases(pods) == {"Running"}), None)

    while gangs:
        name = wait_for(one_runs, what=f"one of {sorted(gangs)} running")
        assert name is not None
        stage.finish(gangs.pop(name))
        next(victims).restart(hard=True)


def _killed_between_two_bindings(
    stage: Stage, muster: Muster, proxy: FaultProxy
) -> tuple[list[str], threading.Event]:
    """Kill Muster when one member is bound and the requests of the other bindings are lost."""
    dead = threading.Event()
    proxy.inject(pass_on(), lose_request(dead, times=2))
    gang = stage.gang("a", 3, cpu="2", gated=True)
    wait_for(lambda: len(stage.bound(gang)) == 1 and not proxy.pending_faults(), what="one of three bound")
    muster.kill()
    return gang, dead


def _refused(stage: Stage, name: str) -> bool:
    conditions = stage.pod(name)["status"].get("conditions", [])
    return any("muster: " in condition.get("message", "") for condition in conditions)


def _informed(stage: Stage, message: str) -> set[str]:
    """Return the pods about which the scheduler wrote this message in an event."""
    events = stage.api.items(EVENTS, stage.namespace)
    return {event["involvedObject"]["name"] for event in events if message in event.get("message", "")}
