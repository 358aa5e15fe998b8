"""Answers to what-if on a real control plane: `muster why --what-if` and `muster plan` are right."""

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.harness import objects
from tests.e2e.harness.access import ADMIN, SUBMITTER
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import JOBS, POD_GROUPS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.test_explained import MILD, two_that_wait

pytestmark = pytest.mark.usefixtures("job_rights")
RUN_TIME = "kube-muster.io/run-time"


@pytest.fixture
def admin(stage: Stage) -> Shell:
    return Shell(stage.cluster, ADMIN, stage.namespace)


def test_a_what_if_answer_comes_true(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, admin: Shell
) -> None:
    _, first = two_that_wait(stage)

    def supposed(group: str, *terms: str) -> Json:
        flags = [word for term in terms for word in ("--what-if", term)]
        found: Json = admin.json("why", f"podgroup/{group}", *flags)
        return found

    assert supposed("first", "nodes=+1")["group"]["change"] == "starts"
    assert supposed("first", "delete=podgroup/early")["group"]["change"] == "starts"
    assert supposed("first", "queue.weight=q:9")["group"]["after"]["reason"] == "NoRoom"
    assert supposed("second", "nodes=+1")["group"]["change"] == "moves up"
    overtakes = supposed("second", "nodes=+1", "priority=5")
    assert overtakes["group"]["change"] == "starts"
    assert [each["group"] for each in supposed("second", "nodes=+2")["others"]] == [
        f"{stage.namespace}/first"
    ]

    page = muster.debug(f"/debug/why/{stage.namespace}/first?what-if=nodes=%2B1")
    assert page["group"]["change"] == "starts"

    stage.nodes(1, prefix="m", cpu="4")
    stage.wait_phase(first)
    stage.wait_reason("second", "NoRoom")


def test_a_planned_start_comes_true(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, admin: Shell, tmp_path: Path
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q", preemption=MILD)
    timed = objects.pod_group(
        "timed", namespace=stage.namespace, min_member=1, queue="q", annotations={RUN_TIME: "30m"}
    )
    stage.api.create(POD_GROUPS, timed)
    stage.wait_phase(stage.pods("timed", 1, group="timed", cpu="3", gated=True))
    names = {"now": ("1", 1), "later": ("3", 1), "never": ("5", 1)}
    jobs = {name: _job(name, cpu, pods) for name, (cpu, pods) in names.items()}
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml.safe_dump_all(jobs.values()))

    done = admin("plan", str(path), "-o", "json")
    assert done.returncode == 3, done.stderr
    starts = {each["name"].rpartition("/")[2]: each for each in json.loads(done.stdout)["starts"]}
    assert {name: each["start"] for name, each in starts.items()} == {
        "now": "Now",
        "later": "Later",
        "never": "Never",
    }
    assert 1500 < starts["later"]["after"] <= 1800
    assert starts["never"]["reason"] == "NeverFits"
    assert stage.api.items(JOBS, stage.namespace) == []

    for job in jobs.values():
        stage.api.create(JOBS, {**job, "metadata": {**job["metadata"], "namespace": stage.namespace}})
    wait_for(lambda: not stage.jobs.get("now")["spec"]["suspend"], what="the first one is admitted")
    says = f"starts once {stage.namespace}/timed (1 pod) ends"
    wait_for(
        lambda: says in " ".join(admin("why", "job/later").stdout.split()),
        what="the other one waits as planned",
    )


def _job(name: str, cpu: str, pods: int) -> Json:
    """Return a job that waits suspended in queue q."""
    container = {"name": "m", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
    meta = {"name": name, "annotations": {"scheduling.volcano.sh/queue-name": "q"}}
    numbers = {"parallelism": pods, "completions": pods}
    whole = {"suspend": True, **numbers, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": whole}


def test_a_user_who_may_not_read_the_cluster_sees_nothing_of_it(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, tmp_path: Path
) -> None:
    stage.nodes(1, cpu="4")
    stage.gang("early", 1, cpu="8", gated=True)
    submitter, path = Shell(stage.cluster, SUBMITTER, stage.namespace), tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(_job("x", "1", 1)))
    assert "nodes, namespaces" in submitter.refuses("plan", str(path))
    assert "not allowed" in submitter.refuses("why", "podgroup/early", "--what-if", "nodes=+1")
