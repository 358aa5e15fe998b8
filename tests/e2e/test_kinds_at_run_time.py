"""Kinds that appear, go and come back while Muster runs: without a restart, and nothing else is disturbed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import manifests, training_runs
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import ELASTIC_QUOTA_TREES, POD_GROUPS, QUEUES
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.e2e.harness.training_runs import TRAINING_RUNS, remove_kind, training_run
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
SYSTEM = "kube-system"
TREES = "elasticquotatrees.scheduling.sigs.k8s.io"
LOOKED_FOR = 120.0  # seconds; Muster looks for kinds that are missing every 30 s


# ---- a kind of jobs


@pytest.fixture
def wire(stage: Stage) -> TcpProxy:
    """Yield a proxy to the API server."""
    return stage.start_wire()


@pytest.fixture
def jobs(stage: Stage, wire: TcpProxy, muster_user: User, tmp_path: Path) -> Iterator[Muster]:
    """Yield a Muster with the configuration and the rights, but without the kind."""
    written = manifests.install(stage.api, training_runs.rights())
    configured = f"--config={training_runs.configuration(tmp_path)}"
    muster = stage.start_muster(configured, user=muster_user, server=wire.server)
    stage.start_sidecar(muster, user=muster_user)
    yield muster
    training_runs.remove(stage.api)
    manifests.remove(stage.api, written)


def create(stage: Stage, name: str, replicas: int) -> str:
    """Create a run and return the name of its PodGroup."""
    made = training_run(name, namespace=stage.namespace, replicas=replicas)
    return f"podgroup-{stage.api.create(TRAINING_RUNS, made)['metadata']['uid']}"


def wait_podgroup(stage: Stage, unit: str, *reasons: str) -> None:
    wait_for(
        lambda: stage.api.find(POD_GROUPS, unit, stage.namespace), timeout=LOOKED_FOR, what=f"the unit {unit}"
    )
    stage.wait_reason(unit, *reasons)


def wait_collected(stage: Stage, unit: str) -> None:
    """Wait for the garbage collector, which looks for kinds every 30 s.

    It ends no group of an unknown kind.
    """
    wait_podgroup(stage, unit, "NoRoom", "NeverFits")
    stage.api.delete(TRAINING_RUNS, "early", stage.namespace)
    wait_gone(stage, unit)


def wait_gone(stage: Stage, unit: str) -> None:
    wait_for(
        lambda: stage.api.find(POD_GROUPS, unit, stage.namespace) is None,
        timeout=LOOKED_FOR,
        what="its group ends",
    )


def wait_started(stage: Stage, name: str) -> None:
    wait_for(
        lambda: not stage.api.get(TRAINING_RUNS, name, stage.namespace)["spec"]["suspend"],
        timeout=LOOKED_FOR,
        what=f"{name} is admitted",
    )


def test_a_kind_of_jobs_comes_goes_and_comes_back(stage: Stage, jobs: Muster, tmp_path: Path) -> None:
    stage.start_controller_manager()
    stage.nodes(1, cpu="4")
    stage.gang("large", 9)
    stage.wait_reason("large", "NoRoom", "NeverFits")
    running = stage.gang("running", 1)
    stage.wait_phase(running)

    training_runs.install(stage.api)
    waiting = [create(stage, name, 5) for name in ("first", "second")]
    for unit in waiting:
        wait_podgroup(stage, unit, "NoRoom", "NeverFits")

    file = f"--config={training_runs.configuration(tmp_path)}"
    found = Shell(stage.cluster, ADMIN, stage.namespace).json("why", "trainingrun/first", file)
    assert (found["kind"], found["verdict"]) == ("TrainingRun", "Waiting")

    wait_collected(stage, create(stage, "early", 5))
    training_runs.remove(stage.api)
    for unit in waiting:
        wait_gone(stage, unit)
    assert jobs.ready()
    assert jobs.live()
    assert stage.reason("large") in ("NoRoom", "NeverFits")
    assert stage.phases(running) == {"Running"}
    stage.wait_phase(stage.gang("later", 2))

    training_runs.install(stage.api)
    unit = create(stage, "third", 1)
    wait_started(stage, "third")
    stage.wait_group(unit, phase="Inqueue")


def test_the_jobs_of_a_kind_that_went_unseen_are_forgotten(
    stage: Stage, jobs: Muster, wire: TcpProxy
) -> None:
    """Forget them: otherwise Muster would make their PodGroups again as often as they are collected."""
    training_runs.install(stage.api)
    stage.start_controller_manager()  # it collects only what belongs to kinds that it knows
    unit = create(stage, "first", 5)
    wait_podgroup(stage, unit, "NoRoom", "NeverFits")
    wire.refuse()
    training_runs.remove(stage.api)
    wire.restore()
    wait_for(lambda: not jobs.decision(stage.namespace, unit), timeout=LOOKED_FOR, what="the job forgotten")
    assert stage.api.find(POD_GROUPS, unit, stage.namespace) is None


# ---- a kind of quotas


@pytest.fixture
def quotas(stage: Stage, muster_user: User) -> Iterator[Muster]:
    written = manifests.apply(stage.api, "quota/rbac.yaml")
    yield stage.start_muster(user=muster_user)
    remove_kind(stage.api, TREES)
    manifests.remove(stage.api, written)


def test_a_kind_of_quotas_comes_goes_and_comes_back(stage: Stage, quotas: Muster) -> None:
    stage.queue("own", weight=3)
    manifests.apply(stage.api, "quota/crd.yaml")
    stage.api.create(ELASTIC_QUOTA_TREES, tree(stage.namespace))
    queue = wait_queue(stage, "child-1")
    stage.group("train", 9, queue="child-1")
    wait_for(lambda: stage.reason("train"), what="the group is evaluated")

    remove_kind(stage.api, TREES)
    wait_for(lambda: stage.api.get(QUEUES, "child-1")["spec"].get("state") == "Closed", what="it is closed")
    assert quotas.ready()
    assert quotas.live()
    assert stage.api.get(QUEUES, "own")["spec"]["weight"] == 3

    manifests.apply(stage.api, "quota/crd.yaml")
    stage.api.create(ELASTIC_QUOTA_TREES, tree(stage.namespace))
    again = wait_for(lambda: _open(stage, "child-1"), timeout=LOOKED_FOR, what="it is open again")
    assert again["metadata"]["uid"] == queue["metadata"]["uid"]
    stage.api.delete_all(POD_GROUPS, stage.namespace)
    remove_kind(stage.api, TREES)
    for name in ("child-1", "root-quota"):
        wait_for(lambda: stage.api.find(QUEUES, name) is None, what=f"{name} is deleted")  # noqa: B023


def tree(namespace: str) -> Json:
    made: Json = yaml.safe_load((DATA / "elastic-quota-tree.yaml").read_text())
    made["spec"]["root"]["children"][0]["namespaces"] = [namespace]
    return made


def wait_queue(stage: Stage, name: str) -> Json:
    found = wait_for(lambda: stage.api.find(QUEUES, name), timeout=LOOKED_FOR, what=f"queue {name}")
    assert found is not None
    return found


def _open(stage: Stage, name: str) -> Json:
    found: Json = stage.api.get(QUEUES, name)
    return found if found["spec"].get("state") == "Open" else {}
