"""Public samples of Volcano and Kueue, from their Go modules: each runs in its queue, or says why not."""

import subprocess
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import build
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS, PODS, QUEUES
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port, configured

Json = dict[str, Any]
VOLCANO = build.MODULES.parent / "volcano" / "installed"
KUEUE = "sigs.k8s.io/kueue@v0.17.0"
WAITS = {"kubecon-2019-china/node-selector/nginx.yaml": "NeverFits"}  # it selects a node by its address
REFUSED = {
    "invalid_jobs/duplicatedPolicyEvent-webhook-deny.yaml": "spec.policies[1].event: duplicate value",
    "invalid_jobs/duplicatedTaskName-webhook-deny.yaml": "spec.tasks[1].name: duplicate value",
    "invalid_jobs/minAvailable-webhook-deny.yaml": "spec.minAvailable: invalid value 5",
}
OF_OTHERS = ("argo/", "jobflow/", "spark-sample/", "-priority.yaml")  # kinds that are not served here
LEFT_OUT = (
    "cronjob/cronjob.yaml",  # it makes jobs at full minutes
)
pytestmark = pytest.mark.usefixtures("volcano_kinds", "job_rights")


@pytest.fixture
def muster(stage: Stage, muster_user: User) -> Iterator[Muster]:
    port = Port()
    with configured(stage.api, port):
        muster = stage.start_muster(*port.flags("self-signed"), "--volcano-jobs=on", user=muster_user)
        stage.start_sidecar(muster, user=muster_user)
        stage.start_controller_manager()
        yield muster


class Kubectl:
    """Somebody who creates files in the namespace of the test, whichever they name."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._command = [str(stage.cluster.binaries / "kubectl"), f"--namespace={stage.namespace}"]
        self._command += [f"--kubeconfig={stage.cluster.kubeconfig(ADMIN)}"]
        self._file = folder / "sample.yaml"

    def create(self, documents: list[Json]) -> str:
        """Return what is refused."""
        for document in documents:
            document["metadata"].pop("namespace", None)
        self._file.write_text(yaml.safe_dump_all(documents))
        return self._run("create").stderr

    def delete(self) -> None:
        self._run("delete", "--ignore-not-found")

    def _run(self, *verb: str) -> "subprocess.CompletedProcess[str]":
        command = [*self._command, *verb, "-f", str(self._file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("muster")
def test_samples_of_volcano_run_unchanged(stage: Stage, tmp_path: Path) -> None:
    """Queues first, and then each other file of the folder alone."""
    stage.nodes(2, cpu="64", memory="256Gi", labels={"kubernetes.io/os": "linux"}, **{"nvidia.com/gpu": "8"})
    folder = build.sources("volcano.sh/volcano", VOLCANO) / "example"
    files = {str(path.relative_to(folder)): read(path) for path in sorted(folder.rglob("*.yaml"))}
    kubectl, ran = Kubectl(stage, tmp_path), 0
    for queue in filter(is_queue, chain(*files.values())):
        stage.api.create(QUEUES, queue)
    for name, documents in files.items():
        workloads = [each for each in documents if not is_queue(each)]
        if not workloads or name in LEFT_OUT or any(part in name for part in OF_OTHERS):
            continue
        refused = kubectl.create(workloads)
        assert REFUSED.get(name, "") in refused
        assert bool(refused) is (name in REFUSED), f"{name}: {refused}"
        if not refused:
            wait_for(partial(is_settled, stage, WAITS.get(name)), what=f"{name} runs, or waits as expected")
            ran += 1
        kubectl.delete()
        wait_for(lambda: not stage.api.items(POD_GROUPS, stage.namespace), what=f"{name} is gone")
    assert ran >= 20


@pytest.mark.usefixtures("muster")
def test_samples_of_kueue_run_in_the_queues_that_migrate_makes(stage: Stage, tmp_path: Path) -> None:
    """Use the samples of its dashboard: the module has no others. Nodes call its `gpu` by another name."""
    stage.nodes(2, cpu="64", memory="256Gi", **{"nvidia.com/gpu": "8"})
    folder = build.sources(KUEUE, VOLCANO) / "cmd" / "kueueviz" / "examples"
    admin = Shell(stage.cluster, ADMIN, stage.namespace)
    printed = admin.output("migrate", "kueue", "-f", str(folder))
    documents = [each for each in yaml.safe_load_all(printed.replace(" gpu:", " nvidia.com/gpu:")) if each]
    kubectl = Kubectl(stage, tmp_path)
    stage.started.callback(kubectl.delete)
    assert "Error" not in kubectl.create(documents)
    wait_for(lambda: states(admin) == {"Running"}, what="all jobs run")
    queues = {job["queue"] for job in admin.json("job", "list")["items"]}
    assert queues == {"agi-cluster-queue", "llm-cluster-queue", "emergency-cluster-queue"}


def states(admin: Shell) -> set[str]:
    return {job["state"] for job in admin.json("job", "list")["items"]}


def read(path: Path) -> list[Json]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def is_queue(document: Json) -> bool:
    return bool(document["kind"] == "Queue")


def is_settled(stage: Stage, reason: str | None) -> bool:
    """Return whether all pods of ours run, or all groups wait for this reason."""
    if reason is not None:
        groups = stage.api.items(POD_GROUPS, stage.namespace)
        return [each["status"]["conditions"][-1]["reason"] for each in groups] == [reason]
    pods = stage.api.items(PODS, stage.namespace)
    ours = [pod for pod in pods if pod["spec"]["schedulerName"] == "volcano"]
    return bool(pods) and all(pod["status"]["phase"] == "Running" for pod in ours)
