"""The proxy: the scheduler next to Muster reads its pods through it, and is shown a pod when it may start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import Call, FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.view_client import ViewClient
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view
Json = dict[str, Any]
FOREIGN_GATE = [{"name": "example.com/quota"}]
NO_SUCH_CLAIM: Json = {
    "volumes": [{"name": "lost", "persistentVolumeClaim": {"claimName": "does-not-exist"}}]
}
GANG, MAX_REQUESTS = 100, 3.15


@pytest.fixture
def muster(muster_behind_proxy: Muster) -> Muster:
    """Return Muster behind `proxy`, as is the scheduler, which reads through Muster."""
    return muster_behind_proxy


# ---- what starts


def test_a_gang_starts_whole_and_nothing_but_its_bindings_is_written_to_its_pods(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    stage.nodes(3, cpu="4")
    gang = stage.gang("a", 3, cpu="2")
    stage.wait_phase(gang)
    written = [call for call in proxy.writes() if f"/{stage.namespace}/pods" in call.path]
    assert sorted(call.path.rpartition("/pods/")[2] for call in written) == [
        f"a-{n}/binding" for n in range(3)
    ]
    assert _filter_calls(muster) == 0


def test_a_gang_costs_hardly_more_requests_than_plain_pods(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, proxy: FaultProxy
) -> None:
    """Compare the requests: a plain pod is created, bound, and reported in an event.

    A gang also has a PodGroup; its status is written more often if its members come slowly.
    """
    stage.nodes(4, cpu="32")
    gang = stage.gang("a", GANG, cpu="1")
    stage.wait_phase(gang)
    stage.wait_group("a", phase="Running", running=GANG)
    wait_for(lambda: len(_events(stage, "Scheduled")) == GANG, what="an event for each")
    asked = [call for call in list(proxy.calls) if f"/namespaces/{stage.namespace}/" in call.path]
    created = GANG + 1
    assert (created + len(asked)) / GANG <= MAX_REQUESTS, _summary(asked)
    assert _filter_calls(muster) == 0


def test_a_gang_of_500_starts_whole(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Pack it on few nodes, where only a limited number is nominated at a time."""
    stage.nodes(6, cpu="100")
    gang = stage.gang("large", 500)
    stage.wait_bound(gang, timeout=120)
    assert _filter_calls(muster) == 0
    scheduler.wait_agrees()


def test_pods_without_a_group_start_each_on_its_own(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(4, cpu="5")
    pods = stage.pods("single", 20)
    stage.wait_phase(pods)


@pytest.mark.muster_flags("--auto-groups", "off")
def test_pods_without_a_group_start_without_their_own_podgroups(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="5")
    stage.wait_phase(stage.pods("single", 3))


# ---- what waits


def test_the_scheduler_hears_nothing_of_a_gang_that_waits(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4")
    filler = stage.pods("filler", 1, cpu="3")
    stage.wait_phase(filler)
    gang = stage.gang("a", 3, cpu="2")
    stage.wait_reason("a", "NoRoom")
    assert scheduler.dump().queued == {}
    assert _pending(scheduler) == 0
    stage.finish(filler)
    stage.wait_phase(gang)
    assert _events(stage, "FailedScheduling") == []
    assert _filter_calls(muster) == 0


@pytest.mark.muster_flags("--bind-deadline", "4s", "--start-backoff", "2s")
def test_a_gang_that_is_given_up_disappears_and_the_next_one_starts(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """One member is refused by a rule that only the scheduler knows: its volume claim does not exist."""
    stage.nodes(3, cpu="2")
    stage.group("a", 3)
    lost = stage.pods("a", 1, first=2, group="a", cpu="2", **NO_SUCH_CLAIM)
    given_up = [*stage.pods("a", 2, group="a", cpu="2"), *lost]
    muster.wait_held(given_up[:2])
    following = stage.gang("b", 3, cpu="2")
    stage.wait_phase(following)
    assert stage.bound(given_up) == {}
    wait_for(lambda: scheduler.dump().queued == {}, what="the scheduler has forgotten them")
    scheduler.wait_agrees()


@pytest.mark.muster_flags("--bind-deadline", "3s", "--start-backoff", "1s", "--start-backoff-max", "2s")
def test_a_gang_that_was_given_up_starts_when_the_rule_lets_it(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """It is shown again, while the scheduler may still be busy with what came of it before."""
    stage.nodes(3, cpu="2")
    stage.group("a", 3)
    stuck = stage.pods("a", 1, first=2, group="a", cpu="2", **NO_SUCH_CLAIM)
    pods = stage.pods("a", 2, group="a", cpu="2")
    for _ in range(2):
        muster.wait_held(pods)
        muster.wait_held([])
    stage.delete_pods(stuck)
    stage.wait_phase([*pods, *stage.pods("a", 1, first=3, group="a", cpu="2")])
    scheduler.wait_agrees()


def test_the_gate_of_another_controller_stays_and_keeps_its_gang_pending(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(3, cpu="4")
    stage.group("a", 3)
    (gated,) = stage.pods("a", 1, group="a", cpu="2", schedulingGates=FOREIGN_GATE)
    gang = [gated, *stage.pods("a", 2, first=1, group="a", cpu="2")]
    stage.wait_reason("a", "NotEnoughMembers")
    assert stage.pod(gated)["spec"]["schedulingGates"] == FOREIGN_GATE
    assert stage.bound(gang) == {}
    stage.api.patch(PODS, gated, {"spec": {"schedulingGates": []}}, stage.namespace)
    stage.wait_phase(gang)


# ---- who comes from before, and who is not ours


def test_pods_that_carry_our_gate_from_before_are_released(stage: Stage, scheduler: KubeScheduler) -> None:
    """The same gang has some of each: it was created while the mode changed."""
    stage.nodes(3, cpu="4")
    stage.group("a", 4)
    gated = stage.pods("a", 2, group="a", gated=True)
    free = stage.pods("a", 2, first=2, group="a")
    single = stage.pods("single", 1, gated=True)
    stage.wait_phase([*gated, *free, *single])
    assert all(not stage.pod(name)["spec"].get("schedulingGates") for name in [*gated, *single])


def test_moving_to_the_view_and_back_loses_nothing(stage: Stage, muster_user: User) -> None:
    """A gang with gates waits while the first pair goes, one without while the second goes again."""
    stage.nodes(2, cpu="4")
    running = stage.gang("running", 2, cpu="3", gated=True)
    with _pair(stage, muster_user, view=False):
        stage.wait_phase(running)
        gated = stage.gang("gated", 2, cpu="3", gated=True)
        stage.wait_reason("gated", "NoRoom")
    with _pair(stage, muster_user, view=True) as scheduler:
        assert stage.phases(running) == {"Running"}
        stage.finish(running)
        stage.wait_phase(gated)
        free = stage.gang("free", 2, cpu="3")
        stage.wait_reason("free", "NoRoom")
        scheduler.wait_agrees()
    with _pair(stage, muster_user, view=False):
        stage.finish(gated)
        stage.wait_phase(free)


@contextmanager
def _pair(stage: Stage, user: User, *, view: bool) -> Iterator[KubeScheduler]:
    muster = stage.start_muster(user=user, view=view)
    scheduler = stage.start_sidecar(muster, user=user)
    yield scheduler
    scheduler.stop()
    muster.stop()


def test_bound_pods_and_strangers_are_seen(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Count pods that others bind in the scheduler's cache, too."""
    stage.nodes(2, cpu="4")
    bound, stranger = stage.pods("bound", 1, cpu="3"), stage.pods("stranger", 1, scheduler="another")
    stage.wait_phase(bound)
    (taken,) = stage.bound(bound).values()
    foreign = stage.pods("foreign", 1, cpu="3", scheduler="another")
    stage.api.bind(stage.namespace, foreign[0], free := "n1" if taken == "n0" else "n0")
    waiting = stage.gang("waiting", 3, cpu="4")
    stage.wait_reason("waiting", "NoRoom", "NeverFits")
    view = ViewClient(_kubeconfig(muster))
    listed = view.json("GET", PODS.path(stage.namespace))
    names = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed["items"]}
    assert names == {**stage.bound(bound), "foreign-0": free, stranger[0]: ""}
    assert stage.bound(waiting) == {}
    wait_for(lambda: len(scheduler.dump().cached) == 2, what="the scheduler has both bound pods")
    scheduler.wait_agrees()


def test_a_group_of_one_is_checked_by_muster_next_to_claims_that_are_hidden_from_the_scheduler(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Ask Muster, as only some members of a large gang on one node are shown to the scheduler at a time.

    Capacity is kept for the others. The scheduler is frozen until all of that is planned.
    """
    stage.nodes(1, prefix="large", cpu="40", labels={"pool": "large"})
    stage.nodes(1, prefix="small", cpu="1")
    scheduler.process.freeze()
    gang = stage.gang("a", 40, cpu="1", nodeSelector={"pool": "large"})
    wait_for(lambda: {"ANSWERED", "PLANNED"} <= _claims(muster).keys(), what="some are shown, some are not")
    (single,) = stage.pods("single", 1, cpu="1")
    wait_for(lambda: single in set().union(*_claims(muster).values()), what="the single pod is planned")
    scheduler.process.thaw()
    stage.wait_phase([*gang, single])
    assert stage.bound([single]) == {single: "small0"}
    assert _filter_calls(muster) > 0


# ---- who reads


def test_muster_reports_the_readers_of_the_scheduler_proxy(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    assert "[+]view ok: no client reads" in muster.readyz()
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(1, cpu="4")
    stage.wait_phase(stage.gang("a", 2, cpu="1"))
    stage.gang("b", 3, cpu="3")
    stage.wait_reason("b", "NeverFits")
    wait_for(lambda: _reader(muster).get("hidden") == 3, what="three pods hidden")
    assert _reader(muster)["shown"] == 0
    (watch,) = _reader(muster)["watches"]
    assert watch["seconds"] >= watch["secondsSinceEvent"]
    assert muster.debug("/debug/view")["pods"]["released"] == 0
    assert "[+]view ok: kube-scheduler/v" in muster.readyz()
    assert "elsewhere" not in muster.readyz()
    assert muster.metric("muster_view_pod_watches") == 1


def test_a_scheduler_that_reads_its_pods_elsewhere_is_reported(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    """It has the configuration without the proxy."""
    stage.start_scheduler("sidecar-gates.yaml", muster=muster.address, user=muster_user)
    stage.nodes(1, cpu="1")
    stage.gang("a", 2, cpu="1")
    wait_for(lambda: muster.metric("muster_view_detours_total") > 0, what="its calls are counted")
    assert "a scheduler reads pods elsewhere: " in muster.readyz()


def _reader(muster: Muster) -> Json:
    readers: list[Json] = muster.debug("/debug/view")["readers"]
    return next((reader for reader in readers if reader["watches"]), {})


# ---- who else asks


def test_no_pod_is_bound_or_deleted_through_the_scheduler_proxy(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Allow a caller with its kubeconfig no more than a scheduler that leaves binding to Muster."""
    stage.nodes(1)
    (stranger,) = stage.pods("stranger", 1, scheduler="another")
    view = ViewClient(_kubeconfig(muster))
    path = PODS.path(stage.namespace, stranger)
    target = {"metadata": {"name": stranger}, "target": {"kind": "Node", "name": "n0"}}
    for method, where, body in (
        ("POST", f"{path}/binding", target),
        ("DELETE", path, {}),
        ("POST", f"{path}/exec?command=sh", {}),
        ("POST", PODS.path(stage.namespace), objects.pod("new", namespace=stage.namespace)),
        ("GET", "/api/v1/secrets", None),
    ):
        assert view.ask(method, where, body)[0] == 403, (method, where)
    assert view.ask("GET", path, server="http://kube-apiserver.muster")[0] in (401, 403, 404)
    assert stage.bound([stranger]) == {}
    assert [each["metadata"]["name"] for each in stage.api.items(PODS, stage.namespace)] == [stranger]


def _claims(muster: Muster) -> dict[str, set[str]]:
    """Return the names of the pods that have claims, by stage."""
    found: dict[str, set[str]] = {}
    for node in muster.debug("/debug/nodes"):
        for claim in node["claims"]:
            found.setdefault(claim["stage"], set()).add(claim["pod"].rpartition("/")[2])
    return found


def _filter_calls(muster: Muster) -> float:
    return muster.metric("muster_verb_calls_total", verb="filter")


def _kubeconfig(muster: Muster) -> Path:
    assert muster.view_kubeconfig is not None
    return muster.view_kubeconfig


def _pending(scheduler: KubeScheduler) -> float:
    found = scheduler.metrics()
    return sum(value for name, value in found.items() if name.startswith("scheduler_pending_pods"))


def _events(stage: Stage, reason: str) -> list[Json]:
    return [each for each in stage.api.items(EVENTS, stage.namespace) if each["reason"] == reason]


def _summary(calls: list[Call]) -> str:
    return "\n".join(f"{call.method} {call.path} {call.status}" for call in calls)
