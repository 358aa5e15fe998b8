"""Invalid requests to the running server, and its end while it holds calls."""

import json
from typing import Any

import pytest
import urllib3

from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
ABSENT_UID = "00000000-0000-0000-0000-000000000000"


def test_filter_does_not_believe_a_pod_that_no_watch_has_shown(stage: Stage, muster: Muster) -> None:
    """Pass on an unknown pod of another scheduler; let one of ours wait."""
    stage.nodes(2, cpu="4")
    for scheduler, expected in (("default-scheduler", ["n0", "n1"]), ("muster", [])):
        pod = objects.pod("unheard-of", namespace=stage.namespace, scheduler=scheduler, group="nothing")
        pod["metadata"]["uid"] = ABSENT_UID
        answer = _ask(muster, "filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n0", "n1"]})
        assert (answer["NodeNames"], answer["Error"]) == (expected, "")


def test_bind_refuses_invalid_calls_with_a_sentence(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1, cpu="4")
    (bound,) = stage.pods("bound", 1)
    stage.wait_phase([bound])
    (waiting,) = stage.pods("waiting", 1, cpu="8")
    uid = stage.pod(waiting)["metadata"]["uid"]
    wait_for(lambda: _knows(muster, stage, waiting), what="the pod is known")
    assert "unknown" in _bind(muster, stage, waiting, uid, "no-such-node")
    assert "replaced" in _bind(muster, stage, waiting, ABSENT_UID, "n0")
    assert "gone" in _bind(muster, stage, "no-such-pod", ABSENT_UID, "n0")
    assert "already bound" in _bind(muster, stage, bound, stage.pod(bound)["metadata"]["uid"], "n0")
    assert "NeverFits" in _bind(muster, stage, waiting, uid, "n0")
    assert stage.bound([waiting]) == {}


def test_bind_refuses_pods_of_others_and_nodes_that_do_not_suit(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """Refuse a node past the nodeSelector for a pod that could run nowhere else, too."""
    stage.nodes(1, cpu="4")
    (foreign,) = stage.pods("foreign", 1, scheduler="default-scheduler", nodeSelector={"only": "there"})
    (ours,) = stage.pods("ours", 1, nodeSelector={"kubernetes.io/hostname": "n1"})
    stage.api.create(PODS, objects.pod("system", namespace="kube-system", scheduler="default-scheduler"))
    stage.started.callback(stage.api.delete, PODS, "system", "kube-system", 0)
    system = stage.api.get(PODS, "system", "kube-system")["metadata"]["uid"]
    wait_for(lambda: _knows(muster, stage, ours), what="the pods are known")
    stage.nodes(1, prefix="other", cpu="4")
    for refused in (
        _bind(muster, stage, foreign, _uid(stage, foreign), "n0"),
        _bind(muster, stage, "system", system, "n0", "kube-system"),
    ):
        assert "not managed by Muster" in refused
    assert "labels or taints" in _bind(muster, stage, ours, _uid(stage, ours), "n0")
    assert "nodeName" not in stage.api.get(PODS, "system", "kube-system")["spec"]
    assert stage.bound([foreign, ours]) == {}


def test_thousands_of_invented_pods_hold_no_capacity(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4")
    for number in range(3000):
        pod = objects.pod(f"invented-{number}", namespace=stage.namespace, cpu="4")
        pod["metadata"]["uid"] = f"{number:08}{ABSENT_UID[8:]}"
        _ask(muster, "filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n0", "n1"]})
    stage.wait_phase(stage.gang("a", 8, gated=True), "Running")
    assert len(muster.debug("/debug/podgroups")) == 1


@pytest.mark.muster_flags("--bind-deadline", "4s")
def test_an_answer_that_no_bind_call_follows_is_void(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The scheduler dies between its filter and its bind of a replacement."""
    stage.nodes(1, cpu="4")
    gang = stage.gang("a", 2, gated=True)
    stage.wait_phase(gang)
    stage.wait_group("a", phase="Running")
    scheduler.kill()
    stage.delete_pods(["a-1"])
    (replaced,) = stage.pods("a", 1, first=2, group="a", gated=True)
    wait_for(lambda: _claim(muster, replaced) == "PLANNED", what="the replacement planned")
    asked = {"Pod": stage.pod(replaced), "Nodes": None, "NodeNames": ["n0"]}
    assert _ask(muster, "filter", asked)["NodeNames"] == ["n0"]
    assert _claim(muster, replaced) == "ANSWERED"
    wait_for(lambda: _claim(muster, replaced) != "ANSWERED", what="the answer void")
    scheduler.start()
    stage.wait_phase(["a-0", replaced])


def test_bad_requests_are_answered_with_their_fault(stage: Stage, muster: Muster) -> None:
    assert _post(muster, "filter", b'{"Pod": {"metadata": 1}}').status == 400
    assert _post(muster, "filter", b"{").status == 400
    assert _post(muster, "juggle", b"{}").status == 404
    assert _post(muster, "filter", b"{}", method="GET").status == 405
    assert _post(muster, "filter", b" " * (16 * 1024 * 1024 + 1)).status == 413
    assert muster.ready()


def test_a_stop_answers_all_that_is_held(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> None:
    """Answer each held call: two of three wait at the barrier for one that cannot come.

    The gang starts when Muster is back and the third one can come.
    """
    stage.nodes(2, cpu="4")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    held = stage.gang("a", 2, min_member=3, gated=True)
    stuck = stage.pods("stuck", 1, group="a", gated=True, volumes=[volume])
    wait_for(lambda: muster.metric("muster_held_binds") == 2, what="two are held")
    assert muster.stop() == 0
    wait_for(lambda: _stop_is_reported(scheduler, held), what="both are reported to the scheduler")
    assert stage.bound([*held, *stuck]) == {}
    stage.delete_pods(stuck)
    muster.start()
    replaced = stage.pods("able", 1, group="a", gated=True)
    stage.wait_phase([*held, *replaced])


def _stop_is_reported(scheduler: KubeScheduler, names: list[str]) -> bool:
    lines = [line for line in scheduler.process.tail(1000).splitlines() if "Muster is stopping" in line]
    return all(any(f"/{name}" in line for line in lines) for name in names)


def _bind(muster: Muster, stage: Stage, name: str, uid: str, node: str, namespace: str = "") -> str:
    """Return the message of the error; its status is 200, as the scheduler reads no other."""
    where = namespace or stage.namespace
    asked = {"PodName": name, "PodNamespace": where, "PodUID": uid, "Node": node}
    return str(_ask(muster, "bind", asked)["Error"])


def _uid(stage: Stage, pod: str) -> str:
    uid: str = stage.pod(pod)["metadata"]["uid"]
    return uid


def _claim(muster: Muster, pod: str) -> str | None:
    """Return the stage of the pod's claim."""
    claims = [claim for node in muster.debug("/debug/nodes") for claim in node["claims"]]
    return next((claim["stage"] for claim in claims if claim["pod"].endswith(f"/{pod}")), None)


def _ask(muster: Muster, verb: str, body: Json) -> Json:
    answer = _post(muster, verb, json.dumps(body).encode())
    assert answer.status == 200, answer.data
    found: Json = json.loads(answer.data)
    return found


def _post(muster: Muster, verb: str, body: bytes, method: str = "POST") -> urllib3.BaseHTTPResponse:
    with urllib3.PoolManager(retries=False, timeout=30) as pool:
        return pool.request(method, f"http://{muster.address}/v1/{verb}", body=body)


def _knows(muster: Muster, stage: Stage, name: str) -> bool:
    known: list[Json] = muster.debug("/debug/podgroups")
    group = f"{stage.namespace}/{stage.own_group(name)}"
    return any(each["podGroup"] == group and each["verdict"] for each in known)
