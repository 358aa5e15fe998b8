"""Completion: scripts that shells take, and names that the cluster has."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli import main
from extender.cli.completion import completions
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster
from tests.rows import each_of


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    cluster.queue("research")
    cluster.queue("reports")
    cluster.group("sweep")
    cluster.group("far", namespace="other")
    cluster.pod("sweep-0", "sweep")
    return cluster


def offered(cluster: Cluster, *typed: str) -> list[str]:
    *before, last = typed
    flags = [*before, "--kubeconfig", str(cluster.kubeconfig)]
    return list(completions(main, [*flags, last]))


@each_of("bash", "zsh", "fish")
def test_each_shell_has_a_script(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_MUSTER_COMPLETE" in done.stdout


def test_bash_takes_its_script() -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@each_of(
    (("queue", "describe", "re"), ["reports", "research", ":4"]),
    (("queue", "close", "research", "rep"), ["reports", ":4"]),
    (("podgroup", "describe", ""), ["sweep", ":4"]),
    (("pg", "get", "-n", "other", ""), ["far", ":4"]),
    (("why", "s"), ["statefulset/", "sweep-0", ":4"]),
    (("why", "jo"), ["job/", ":4"]),
    (("why", "queue/res"), ["queue/research", ":4"]),
    (("why", "pg/"), ["pg/sweep", ":4"]),
)
def test_names_are_those_of_the_cluster(typed: tuple[str, ...], found: list[str], *, sample: Cluster) -> None:
    assert offered(sample, *typed) == found


@each_of(
    ("p", ["priority="]),
    ("queue.we", ["queue.weight="]),
    ("queue.d", ["queue.deserved."]),
    ("queue.weight=re", ["queue.weight=reports", "queue.weight=research"]),
    ("delete=podgroup/", ["delete=podgroup/sweep"]),
    ("minMember=", []),
)
def test_terms_are_offered(typed: str, found: list[str], *, sample: Cluster) -> None:
    line = ["why", "--kubeconfig", str(sample.kubeconfig), "sweep", "--what-if", typed]
    assert list(completions(main, line)) == [*found, ":4"]


def test_names_of_workloads_are_offered(sample: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "train")
    proxy.workload("batch/v1", "Job", "test")
    assert offered(sample, "why", "job/tr") == ["job/train", ":4"]
    assert offered(sample, "why", "secret/t") == [":4"]


@pytest.mark.parametrize(
    ("typed", "found"), [("", ["train", ":4"]), ("tr", ["train", ":4"]), ("job/t", ["job/train", ":4"])]
)
@pytest.mark.parametrize("command", ["describe", "hold", "resume", "stop"])
def test_names_of_jobs_are_those_of_podgroups(
    sample: Cluster, command: str, typed: str, found: list[str]
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    sample.group("podgroup-u", more_metadata={"ownerReferences": [owner]})
    assert offered(sample, "job", command, typed) == found
    if typed:
        assert offered(sample, "hold", typed) == found
        assert set(found) <= {*offered(sample, "why", "tr"), "job/train"}


def test_completed_commands_have_a_description() -> None:
    assert "create\tCreate a queue." in next(completions(main, ["queue", "cr"]))


def test_without_a_cluster_nothing_is_offered(tmp_path: Path) -> None:
    typed = ["queue", "describe", "--kubeconfig", str(tmp_path / "none"), ""]
    assert list(completions(main, typed)) == [":4"]


def test_kubectl_asks_a_program(sample: Cluster) -> None:
    program = "from extender.cli.completion import for_kubectl; for_kubectl()"
    typed = ["queue", "describe", "--kubeconfig", str(sample.kubeconfig), "re"]
    done = subprocess.run([sys.executable, "-c", program, *typed], capture_output=True, text=True, check=True)
    assert done.stdout == "reports\nresearch\n:4\n"
