"""Moves from Volcano to Muster and back, next to a real Volcano, by docs/how-to/move-from-volcano.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, objects, volcano_installed
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.administrator import Administrator, commands
from tests.e2e.harness.audit import Audit, counted
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.pair import Pair
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import PODS, QUEUES, VOLCANO_JOBS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano import Vcctl
from tests.e2e.harness.volcano_installed import Volcano
from tests.e2e.harness.waiting import wait_for

pytestmark = [
    pytest.mark.volcano,
    pytest.mark.gaps_allowed,  # a kind that changes breaks its watches off
    pytest.mark.skipif(KUBERNETES in WITHOUT_POLICIES, reason="tried where policies could put the gates on"),
]

Json = dict[str, Any]
PAGE = installs.ROOT / "docs" / "how-to" / "move-from-volcano.md"
SHARED = ("queues", "queues/status", "podgroups")
QUIET = 6.0  # seconds: Volcano's scheduler and Muster look again each second
JOB = ["job-work-0", "job-work-1"]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    folder = tmp_path / "audit"
    folder.mkdir()
    return Audit(folder)


@pytest.fixture
def cluster(muster_user: User, audit: Audit) -> Iterator[ControlPlane]:
    """Yield a control plane for each of these tests: a Volcano changes all of it."""
    users = [muster_user, *volcano_installed.users()]
    with ControlPlane(kubernetes=KUBERNETES, users=users, apiserver_flags=audit.flags) as started:
        started.start_controller_manager()
        yield started


@pytest.fixture
def volcano(stage: Stage) -> Iterator[Volcano]:
    with Volcano(stage.cluster) as installed:
        yield installed


@pytest.fixture
def vcctl(stage: Stage) -> Vcctl:
    return Vcctl(stage.cluster, ADMIN)


@pytest.fixture
def administrator(stage: Stage, tmp_path: Path) -> Administrator:
    return Administrator(stage.cluster, tmp_path, PAGE)


class Workloads:
    """Running and waiting workloads before the move: gangs, a plain pod and Jobs of Volcano."""

    def __init__(self, stage: Stage, vcctl: Vcctl) -> None:
        self.stage = stage
        stage.nodes(4, cpu="2")
        for name in ("a", "b"):
            vcctl("queue", "create", f"--name={name}")
        self.gang = stage.gang("runs", 3, queue="a", scheduler="volcano")
        self.plain = stage.pods("plain", 1, queue="a", scheduler="volcano")
        stage.api.create(VOLCANO_JOBS, job("job", stage.namespace, 2, queue="b"))
        self.running = [*self.gang, *self.plain, *JOB]
        stage.wait_phase(self.running)
        self.waiting = stage.gang("waits", 4, queue="a", scheduler="volcano")
        stage.api.create(VOLCANO_JOBS, job("later", stage.namespace, 4, queue="b"))
        self.later = [f"later-work-{number}" for number in range(4)]
        self._before = self._now()

    def untouched(self) -> bool:
        """Return whether nothing that ran was moved, recreated or ended."""
        return self._now() == self._before

    def _now(self) -> set[tuple[str, ...]]:
        pods = self.stage.api.items(PODS, self.stage.namespace)
        return {_fingerprint(pod) for pod in pods if pod["metadata"]["name"] in self.running}


def _fingerprint(pod: Json) -> tuple[str, ...]:
    meta = pod["metadata"]
    return (meta["name"], meta["uid"], pod["spec"].get("nodeName", ""), pod["status"]["phase"])


def job(name: str, namespace: str, size: int, *, queue: str) -> Json:
    """Return a Job of Volcano's, written out as its webhook would complete it."""
    capacity = {"requests": {"cpu": "1", "memory": "64Mi"}}
    pod = {
        "containers": [{"name": "main", "image": objects.PAUSE_IMAGE, "resources": capacity}],
        "restartPolicy": "Never",
    }
    spec = {
        "schedulerName": "volcano",
        "queue": queue,
        "minAvailable": size,
        "maxRetry": 3,
        "tasks": [{"name": "work", "replicas": size, "template": {"spec": pod}}],
    }
    head = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**head, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("gates", [False, True], ids=["view", "gates"])
def test_moving_there_and_back(
    stage: Stage,
    volcano: Volcano,
    vcctl: Vcctl,
    administrator: Administrator,
    audit: Audit,
    muster_user: User,
    gates: bool,
) -> None:
    workloads, pair = Workloads(stage, vcctl), Pair(stage, muster_user)
    administrator.run(_install(gates))
    _side_by_side(stage, workloads, pair, administrator, audit)
    _changed_over(stage, workloads, pair, volcano, administrator, audit)
    _kinds_taken_over(stage, vcctl, administrator)
    _back(stage, pair, vcctl, volcano, administrator)


def _install(gates: bool) -> str:
    """Take step 1 of the guide."""
    command = commands(PAGE, 1)
    return (
        command.replace("crds.install=false", "crds.install=false,view.enabled=false") if gates else command
    )


def _side_by_side(
    stage: Stage, workloads: Workloads, pair: Pair, administrator: Administrator, audit: Audit
) -> None:
    """Take steps 1 and 2: each has its own pods, and neither keeps overwriting the other."""
    pair.start()
    assert "ok Volcano: its scheduler" in _checked(administrator)
    stage.queue("trial")
    stage.wait_phase(stage.gang("ours", 2, queue="trial"))
    stage.wait_phase(stage.pods("theirs", 1, queue="b", cpu="0", scheduler="volcano"))
    stage.wait_group("ours", phase="Running")
    _wait_quiet(audit)
    assert workloads.untouched()


def _changed_over(
    stage: Stage,
    workloads: Workloads,
    pair: Pair,
    volcano: Volcano,
    administrator: Administrator,
    audit: Audit,
) -> None:
    """Take step 3: running jobs are left alone and counted, pending ones start whole, Jobs continue."""
    pair.stop()
    pair.forget_webhooks()
    administrator.step(3)
    pair.start()
    pair.wait_reported("no scheduler")
    wait_for(lambda: volcano.running() == {"vc-controller-manager"}, what="Volcano's controllers alone")
    stage.wait_reason("waits", "NoRoom", "Fragmented")
    assert workloads.untouched()
    assert "ok Volcano: no scheduler" in _checked(administrator)
    wait_for(lambda: _status(stage, "a").get("running") == 2, what="what runs is counted")
    assert _status(stage, "a")["allocated"]["cpu"] == "4"
    stage.finish(JOB)
    _wait_job(stage, "job", "Completed")
    stage.delete_pods(["ours-0", "ours-1"])
    wait_for(lambda: stage.phases(workloads.later) == {"Running"}, what="the Job that waited runs")
    _wait_job(stage, "later", "Running")
    stage.finish([*workloads.gang, *workloads.plain])
    stage.wait_phase(workloads.waiting)
    _wait_quiet(audit)


def _kinds_taken_over(stage: Stage, vcctl: Vcctl, administrator: Administrator) -> None:
    """Take steps 4 and 5: all queues stay, and know spec.state from then on."""
    administrator.step(4)
    administrator.step(5)
    vcctl("queue", "create", "--name=late")
    wait_for(lambda: _status(stage, "late").get("state") == "Open", what="a new queue is open")
    vcctl("queue", "operate", "--name=b", "--action=close")
    wait_for(lambda: _status(stage, "b").get("state") == "Closing", what="the queue with a Job closes")
    assert stage.api.get(QUEUES, "b")["spec"]["state"] == "Closed"
    vcctl("queue", "operate", "--name=b", "--action=open")
    wait_for(lambda: _status(stage, "b").get("state") == "Open", what="it is open again")


def _back(stage: Stage, pair: Pair, vcctl: Vcctl, volcano: Volcano, administrator: Administrator) -> None:
    """Take step 6: Volcano has its pods again, and can change what Muster wrote."""
    running = stage.bound(f"later-work-{number}" for number in range(4))
    assert len(running) == 4
    waiting = stage.gang("again", 2, queue="a", scheduler="volcano")
    administrator.step(6)
    pair.wait_reported("its own scheduler")
    wait_for(lambda: not _gated(stage), what="nothing is gated")
    pair.stop()
    pair.forget_webhooks()
    administrator.run("helm uninstall muster --namespace kube-muster")
    wait_for(lambda: volcano.running() == {*volcano_installed.PROGRAMS}, what="all of Volcano runs")
    assert stage.bound(running) == running
    stage.finish([f"waits-{number}" for number in range(4)])
    stage.wait_phase(waiting)
    for queue in ("b", "late"):
        vcctl("queue", "operate", f"--name={queue}", "--action=close")
        wait_for(lambda: _status(stage, queue)["state"] != "Open", what=f"Volcano closes {queue}")  # noqa: B023
    assert stage.bound(running) == running


def _wait_quiet(audit: Audit) -> None:
    mark = audit.mark()
    try:
        wait_for(lambda: audit.is_silent(SHARED, QUIET))
    except TimeoutError:
        written = counted(each for each in audit.since(mark) if each.resource in SHARED)
        raise TimeoutError(f"queues and groups are written all the time: {written}") from None


def _checked(administrator: Administrator) -> str:
    """Return the output of `muster check`, never empty as pods of the Deployment do not run here."""
    return " ".join(administrator.run("muster check", exit_code=1).split())


def _status(stage: Stage, queue: str) -> Json:
    found: Json = stage.api.get(QUEUES, queue).get("status", {})
    return found


def _wait_job(stage: Stage, name: str, phase: str) -> None:
    def reached() -> bool:
        found = stage.api.get(VOLCANO_JOBS, name, stage.namespace)
        return bool(found.get("status", {}).get("state", {}).get("phase") == phase)

    wait_for(reached, what=f"the Job {name} is {phase}")


def _gated(stage: Stage) -> list[str]:
    pods = stage.api.items(PODS, stage.namespace)
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("schedulingGates")]
