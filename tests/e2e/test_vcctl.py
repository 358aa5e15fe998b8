"""Queues and Jobs by Volcano's own command line: created, listed, changed and deleted as there."""

import subprocess

import pytest

from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.queue_table import Row, rows
from tests.e2e.harness.resources import COMMANDS, POD_GROUPS, QUEUES, VOLCANO_JOBS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano import Vcctl
from tests.e2e.harness.volcano_jobs import VERSION, VolcanoJobs, installed, task
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port, configured, wait_in_force


@pytest.fixture
def vcctl(stage: Stage) -> Vcctl:
    return Vcctl(stage.cluster, ADMIN)


def test_the_life_of_a_queue(stage: Stage, muster: Muster, vcctl: Vcctl) -> None:
    vcctl("queue", "create", "--name=a", "--weight=3")
    _wait(vcctl, "a", Weight="3", State="Open")
    vcctl("queue", "operate", "--name=a", "--action=update", "--weight=5")
    _wait(vcctl, "a", Weight="5")
    vcctl("queue", "operate", "--name=a", "--action=close")
    _wait(vcctl, "a", State="Closed")
    vcctl("queue", "operate", "--name=a", "--action=open")
    _wait(vcctl, "a", State="Open")
    vcctl("queue", "operate", "--name=a", "--action=close")
    _wait(vcctl, "a", State="Closed")
    vcctl("queue", "delete", "--name=a")
    assert stage.api.find(QUEUES, "a") is None
    wait_for(lambda: not stage.api.items(COMMANDS, "default"), what="no Command is left")


def test_a_queue_with_groups_is_closing_until_they_are_gone(
    stage: Stage, scheduler: KubeScheduler, vcctl: Vcctl
) -> None:
    stage.nodes(2, cpu="1")
    vcctl("queue", "create", "--name=a")
    gang = stage.gang("g", 2, queue="a", gated=True)
    stage.wait_phase(gang)
    vcctl("queue", "operate", "--name=a", "--action=close")
    _wait(vcctl, "a", State="Closing", Running="1")
    stage.group("late", 1, queue="a")
    stage.wait_reason("late", "QueueNotOpen")
    for group in ("g", "late"):
        stage.api.delete(POD_GROUPS, group, stage.namespace)
    _wait(vcctl, "a", State="Closed", Running="0", Pending="0")


def test_queues_are_listed_with_the_counts_of_their_groups(
    stage: Stage, scheduler: KubeScheduler, vcctl: Vcctl
) -> None:
    stage.nodes(3, cpu="1")
    for name in ("a", "b"):
        vcctl("queue", "create", f"--name={name}")
    running = stage.gang("runs", 2, queue="a", gated=True)
    stage.wait_phase(running)
    stage.gang("waits", 3, queue="a", gated=True)
    stage.gang("ends", 1, queue="b", gated=True)
    stage.wait_phase(["ends-0"])
    stage.finish(["ends-0"])
    _wait(vcctl, "a", Running="1", Pending="1", Inqueue="0", Unknown="0", Completed="0")
    _wait(vcctl, "b", Running="0", Pending="0", Inqueue="0", Unknown="0", Completed="1")
    assert {"a", "b", "default", "root"} <= _listed(vcctl).keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("delete",), "queue name must be specified"),
        (("delete", "--name=nowhere"), '"nowhere" not found'),
        (("operate", "--name=nowhere", "--action=close"), '"nowhere" not found'),
        (("operate", "--name=nowhere"), "action can not be null"),
    ],
    ids=["no-name", "unknown", "unknown-to-close", "no-action"],
)
def test_an_invalid_argument_is_refused(
    muster: Muster, vcctl: Vcctl, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        vcctl("queue", *arguments)
    assert message in refused.value.stdout + refused.value.stderr


def test_a_queue_that_is_not_closed_stays(stage: Stage, muster_user: User, vcctl: Vcctl) -> None:
    port = Port()
    with configured(stage.api, port):
        stage.start_muster(*port.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        vcctl("queue", "create", "--name=a")
        _wait(vcctl, "a", State="Open")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            vcctl("queue", "delete", "--name=a")
        refusal = refused.value.stdout + refused.value.stderr
        assert "Closed" in refusal
        vcctl("queue", "operate", "--name=a", "--action=close")
        _wait(vcctl, "a", State="Closed")
        vcctl("queue", "delete", "--name=a")
        vcctl("queue", "create", "--name=shut", "--state=Closed")
        _wait(vcctl, "shut", State="Closed")
    assert stage.api.find(QUEUES, "a") is None


def test_the_life_of_a_job(stage: Stage, muster_user: User, scheduler: KubeScheduler, vcctl: Vcctl) -> None:
    """Include the changes that admission makes to the object that vcctl sends."""
    stage.nodes(4, cpu="1")  # no controller here deletes the pods of a job that is gone
    jobs = VolcanoJobs(stage.api, stage.namespace, stage.kubelet)
    port, here = Port(), f"--namespace={stage.namespace}"

    def listed() -> Row:
        head, line = vcctl("job", "list", here).splitlines()
        return dict(zip(head.split(), line.split(), strict=True))

    with installed(stage.api), configured(stage.api, port):
        stage.start_muster(*port.flags("self-signed"), "--volcano-jobs=on", user=muster_user)
        named = {"name": "probe", "namespace": stage.namespace}
        probe = {"apiVersion": VERSION, "kind": "Job", "metadata": named, "spec": {"tasks": [task()]}}
        wait_for(lambda: "queue" in stage.api.dry_run(VOLCANO_JOBS, probe)["spec"], what="Muster runs Jobs")
        amounts = ("--requests=cpu=1000m,memory=10Mi", "--limits=cpu=1000m,memory=10Mi")
        vcctl("job", "run", "--name=train", "--min=2", "--replicas=2", *amounts, here)
        jobs.wait_pods("train", 2, "Running")
        spec = jobs.get("train")["spec"]
        assert (spec["queue"], spec["maxRetry"], spec["tasks"][0]["name"]) == ("default", 3, "default0")
        jobs.wait_status("train", running=2)
        assert (
            listed().items() >= {"Name": "train", "Phase": "Running", "Replicas": "2", "Running": "2"}.items()
        )
        assert "Running" in vcctl("job", "view", "--name=train", here)
        vcctl("job", "suspend", "--name=train", here)
        jobs.wait_phase("train", "Aborted")
        vcctl("job", "resume", "--name=train", here)
        jobs.wait_phase("train", "Running")
        wait_for(lambda: not stage.api.items(COMMANDS, stage.namespace), what="no Command is left")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            vcctl("job", "run", "--name=whole", "--min=3", "--replicas=2", *amounts, here)
        refusal = refused.value.stdout + refused.value.stderr
        assert "spec.minAvailable: invalid value 3: " in refusal
        with pytest.raises(ApiError, match="JobImmutable"):
            jobs.client.patch(VOLCANO_JOBS, "train", {"spec": {"queue": "other"}}, stage.namespace)
        vcctl("job", "delete", "--name=train", here)
        assert stage.api.find(VOLCANO_JOBS, "train", stage.namespace) is None
        muster = Shell(stage.cluster, ADMIN, stage.namespace)
        muster.output("job", "run", "--name", "same", "--min", "2", "--replicas", "2", "--requests", "cpu=1")
        jobs.wait_phase("same", "Running")
        muster.output("job", "suspend", "--name", "same")
        jobs.wait_phase("same", "Aborted")
        muster.output("job", "resume", "--name", "same")
        jobs.wait_phase("same", "Running")
        assert "Running" in muster.output("job", "view", "--name", "same")
        muster.output("job", "delete", "--name", "same")
        assert stage.api.find(VOLCANO_JOBS, "same", stage.namespace) is None


def _listed(vcctl: Vcctl) -> dict[str, Row]:
    """Return the rows by name."""
    return {row["Name"]: row for row in rows(vcctl("queue", "list"))}


def _wait(vcctl: Vcctl, queue: str, **cells: str) -> None:
    """Wait until `vcctl queue get` shows these cells, which the row of `list` has, too."""

    def shown() -> bool:
        (row,) = rows(vcctl("queue", "get", f"--name={queue}"))
        return cells.items() <= row.items()

    wait_for(shown, what=f"vcctl shows queue {queue} {cells}")
