"""Two replicas, each next to its own scheduler: whatever happens to one, every gang starts once and whole."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.harness import port_forwards
from tests.e2e.harness.access import ADMIN, SUBMITTER, User
from tests.e2e.harness.fault_proxy import Call
from tests.e2e.harness.faults import before_request, pass_on
from tests.e2e.harness.replica import Replica
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler import QUICK_LEASE
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.waiting import wait_for

Pair = tuple[Replica, Replica]
Harm = Callable[[Replica], None]
SIZE = 4


@pytest.fixture
def lease() -> Json:
    return QUICK_LEASE


@pytest.fixture
def pair(stage: Stage, muster_user: User, view: bool, lease: Json) -> Pair:
    """Start two replicas, of which the first leads."""
    first = Replica(stage, muster_user, "first", view=view, lease=lease)
    wait_for(first.leads, what="the first leads")
    return first, Replica(stage, muster_user, "second", standby=True, view=view, lease=lease)


@pytest.mark.gang_deadline(60)
@pytest.mark.parametrize(
    "harm", [Replica.kill, lambda replica: replica.wire.refuse()], ids=["killed", "cut-off"]
)
def test_the_leading_pair_is_lost_while_gangs_start(stage: Stage, pair: Pair, harm: Harm) -> None:
    first, second = pair
    gangs = _load(stage)
    _between_two_bindings(stage, first, lambda: harm(first))
    _run_through(stage, gangs)
    assert second.leads()
    assert _bound_more_than_once(pair) == {}
    assert len(stage.bound([pod for pods in gangs.values() for pod in pods])) == len(gangs) * SIZE


@pytest.mark.gang_deadline(60)
def test_a_replica_that_was_cut_off_comes_back_as_a_follower(stage: Stage, pair: Pair) -> None:
    """Drop its pending writes: the new leader has made them, once."""
    first, second = pair
    stage.nodes(4, cpu="4")
    first.wire.refuse()
    gang = stage.gang("a", SIZE, gated=True)
    stage.wait_phase(gang, "Running")
    assert second.leads()
    written = first.writes()
    first.wire.restore()
    wait_for(lambda: not first.leads() and first.muster.ready(), what="the first is back")
    after = stage.gang("b", SIZE, gated=True)
    stage.wait_phase(after, "Running")
    first.muster.wait_decision(stage.namespace, "b", verdict="Running")
    assert first.writes() == written


def test_the_leader_in_the_cluster_of_the_kubeconfig_is_asked(stage: Stage, pair: Pair) -> None:
    """Ask it by port-forward, and the other after a change of leaders."""
    port_forwards.start_node(stage)
    pods = [port_forwards.pod_of_muster(each.host, stage.namespace, each.muster) for each in pair]
    stage.api.create_many(PODS, pods)
    stage.wait_phase([each.host for each in pair])
    first, second = pair
    admin = Shell(stage.cluster, ADMIN, stage.namespace)
    assert _answering(admin) == first.muster.ports["debug"]
    first.wire.refuse()
    wait_for(second.leads, what="the second leads")
    wait_for(lambda: not first.leads(), what="the first has noticed")
    assert _answering(admin) == second.muster.ports["debug"]
    assert json.loads(admin.output("report", "--since", "1h", "-o", "json"))["rows"] == []
    assert "not allowed: pods" in Shell(stage.cluster, SUBMITTER, stage.namespace).refuses("dump", "-")


def _answering(admin: Shell) -> int:
    """Return the debug port of the Muster that makes the dump."""
    dump = json.loads(admin.output("dump", "-"))
    return int(dump["configuration"]["debugListen"].rpartition(":")[2])


# A connection that the killed server cuts off before its handshake: ssl leaves it to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.gaps_allowed
@pytest.mark.gang_deadline(60)
def test_the_api_server_is_restarted_while_gangs_start(stage: Stage, pair: Pair) -> None:
    first, second = pair
    gangs = _load(stage)
    _between_two_bindings(stage, first, stage.cluster.apiserver.kill)
    wait_for(lambda: not stage.cluster.apiserver.alive(), what="API server killed")
    stage.cluster.apiserver.start()
    stage.cluster.wait_ready()
    _run_through(stage, gangs)
    assert _bound_more_than_once(pair) == {}
    wait_for(lambda: [first.leads(), second.leads()].count(True) == 1, what="one leads")


@pytest.mark.gang_deadline(60)
def test_a_scheduler_is_restarted_alone(stage: Stage, pair: Pair) -> None:
    """Its Muster continues to decide; the Muster next to the scheduler that has the Lease next leads."""
    first, second = pair
    gangs = _load(stage)
    _between_two_bindings(stage, first, first.scheduler.kill)
    wait_for(lambda: not first.scheduler.process.alive(), what="scheduler killed")
    first.scheduler.start(wait=False)
    _run_through(stage, gangs)
    assert _bound_more_than_once(pair) == {}
    wait_for(lambda: [first.leads(), second.leads()].count(True) == 1, what="one leads")


@pytest.mark.parametrize("lease", [{}], ids=["as installed"])  # the quick one ends before Muster stops
def test_while_a_lease_lapses_only_one_writes(stage: Stage, pair: Pair) -> None:
    """The first scheduler hangs: its Muster stops writing before another scheduler may take over."""
    first, second = pair
    stage.nodes(4, cpu="4")
    first.scheduler.process.freeze()
    both: list[bool] = []

    def taken_over() -> bool:
        taken = second.leads()  # asked first: a later leader leads next to the second
        reserved = first.leads()
        both.append(taken and reserved)
        return taken and not reserved

    wait_for(taken_over, what="the second leads")
    assert not any(both)
    written = first.writes()
    gang = stage.gang("a", SIZE, gated=True)
    stage.wait_phase(gang, "Running")
    first.muster.wait_decision(stage.namespace, "a", verdict="Running")
    assert first.writes() == written
    first.scheduler.process.thaw()
    assert first.scheduler.process.exit_code() != 0


def test_a_follower_is_ready_and_says_that_it_does_not_lead(pair: Pair) -> None:
    first, second = pair
    wait_for(second.muster.ready, what="the second ready")
    assert "leads" in _leadership(first)
    wait_for(lambda: "follows first" in _leadership(second), what="it knows the Lease")
    assert second.muster.debug("/debug/leadership")["holder"].startswith("first_")


def test_a_replica_stops_in_time_although_the_api_server_is_unreachable(pair: Pair) -> None:
    for replica in pair:
        replica.wire.refuse()
        assert replica.muster.stop() == 0


def _leadership(replica: Replica) -> str:
    lines = replica.muster.readyz().splitlines()
    return next(line for line in lines if "leadership" in line)


def _load(stage: Stage) -> dict[str, list[str]]:
    """Create eight gangs with capacity for four at a time: four run."""
    stage.nodes(4, cpu="4")
    gangs = {f"g{number}": stage.gang(f"g{number}", SIZE, gated=True) for number in range(8)}
    wait_for(lambda: len(stage.running(gangs)) == 4, what="four of eight gangs running")
    return gangs


def _between_two_bindings(stage: Stage, replica: Replica, harm: Callable[[], object]) -> None:
    """Start the next gang, and do the harm when half of it is bound."""
    harmed = before_request(harm)
    replica.proxy.inject(pass_on(times=SIZE // 2), harmed)
    stage.finish([f"g0-{number}" for number in range(SIZE)])
    wait_for(harmed.hit.is_set, what="harm done between two bindings")


def _run_through(stage: Stage, gangs: dict[str, list[str]]) -> None:
    """Run each gang to its end, so that another one can start."""
    left = {name: pods for name, pods in gangs.items() if name != "g0"}
    while left:
        for name in wait_for(lambda: stage.running(left), timeout=120, what=f"of {sorted(left)} one runs"):
            stage.finish(left.pop(name))


def _bound_more_than_once(pair: Pair) -> dict[str, int]:
    calls: list[Call] = [call for replica in pair for call in replica.proxy.writes()]
    bound = Counter(call.path for call in calls if call.path.endswith("/binding") and call.status == 201)
    return {path: times for path, times in bound.items() if times > 1}
