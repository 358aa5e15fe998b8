"""`muster queue` and `muster podgroup`: tables, objects, namespaces, and what goes wrong."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from extender.api.units import human_duration
from extender.cli import main
from extender.cli.output import age
from extender.kube import endpoint
from tests.cli.cluster import Cluster, ago
from tests.kube.conftest import write_kubeconfig
from tests.kube.server import Reply, Server
from tests.rows import each_of

QUEUE = "queue.scheduling.volcano.sh"
GROUP = "podgroup.scheduling.volcano.sh"


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Return a cluster with two queues, and groups of two namespaces."""
    cluster.queue(
        "research",
        {"weight": 3, "capability": {"cpu": "16"}, "dequeueStrategy": "fifo"},
        state="Open",
        allocated={"cpu": "12", "memory": "17179869184", "pods": "6"},
        deserved={"cpu": "8", "memory": "0"},
        share=1.5,
        pending=1,
        running=2,
    )
    cluster.queue("batch")
    cluster.namespace("team", queue="research")
    cluster.namespace("other")
    cluster.group("fit", "Running", "Running", queue="research", more={"running": 2})
    cluster.group("sweep", message="cpu: 8 > 2", days=0.5)
    cluster.group("new", "", namespace="other")
    return cluster


def lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


# ---- tables


@each_of(("queue", "list"), ("queue", "get"), ("q", "list"), ("q", "list", "-n", "x"))
def test_queues_as_a_table(command: tuple[str, ...], *, sample: Cluster) -> None:
    assert sample.output(*command) == lines(
        "NAME       STATE   WEIGHT   SHARE   TOTAL   PENDING   INQUEUE   RUNNING   AGE",
        "batch      Open    1        -       0       0         0         0         20d",
        "research   Open    3        150%    3       1         0         2         20d",
    )


def test_a_wide_table_of_queues(sample: Cluster) -> None:
    names = ["PARENT", "UNKNOWN", "COMPLETED", "STRATEGY"]
    names += ["ALLOCATED", "DESERVED", "CAPABILITY", "BORROWED", "RESERVED"]
    flavors = [{"name": "h100", "borrowed": {"nvidia.com/gpu": "8"}}, {"name": "a100"}]
    sample.queue("borrower", {}, state="Open", borrowed={"cpu": "4"}, flavors=flavors)
    head, borrower, row = sample.output("q", "get", "borrower", "research", "-o", "wide").splitlines()
    assert (re.split(r" {3,}", head)[9:], re.split(r" {3,}", row)[9:]) == (
        names,
        ["-", "0", "0", "fifo", "cpu 12, memory 16Gi", "cpu 8", "cpu 16", "-", "-"],
    )
    assert re.split(r" {3,}", borrower)[-2:] == ["cpu 4; h100: nvidia.com/gpu 8", "-"]


@each_of(("podgroup", "list"), ("pg", "get"), ("pg", "list", "--context", "here"))
def test_groups_as_a_table(command: tuple[str, ...], *, sample: Cluster) -> None:
    assert sample.output(*command) == lines(
        "NAME    QUEUE      PHASE     MIN   POSITION   REASON   AGE",
        "fit     research   Running   2     -          -        20d",
        "sweep   research   Pending   2     -          NoRoom   12h",
    )


def test_a_group_that_muster_made_has_the_name_of_its_owner(cluster: Cluster) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u"}
    meta = {"ownerReferences": [{**owner, "controller": True}]}
    cluster.group("podgroup-u", queue="q", more_metadata=meta, more={"waiting": {"position": 3}})
    (row,) = cluster.output("pg", "list").splitlines()[1:]
    assert row.split()[:2] == ["pytorchjob/train", "q"]
    assert "podgroup-u" in cluster.output("pg", "list", "-o", "wide")


def test_groups_of_all_namespaces(sample: Cluster) -> None:
    head, *rows = (line.split() for line in sample.output("pg", "list", "-A").splitlines())
    assert head[:2] == ["NAMESPACE", "NAME"]
    assert [row[:2] for row in rows] == [["other", "new"], ["team", "fit"], ["team", "sweep"]]


def test_a_wide_table_of_groups(sample: Cluster) -> None:
    head, first, second = (
        line.split() for line in sample.output("pg", "get", "sweep", "fit", "-o", "wide").splitlines()
    )
    assert head[7:] == ["ESTIMATE", "RUNNING", "SUCCEEDED", "FAILED", "PODGROUP", "MESSAGE"]
    assert first[7:] == ["-", "0", "0", "0", "sweep", "cpu:", "8", ">", "2"]
    assert second[7:] == ["-", "2", "0", "0", "fit", "-"]


@each_of(("-n", "other"), ("--context", "there"))
def test_a_namespace_is_that_of_the_flag_or_of_the_context(
    flags: tuple[str, ...], *, sample: Cluster
) -> None:
    assert sample.output("pg", "list", "-o", "name", *flags) == f"{GROUP}/new\n"


@each_of(("queue", "list"), ("pg", "list", "-A"))
def test_tables_fit_into_80_columns(table: tuple[str, ...], *, sample: Cluster) -> None:
    assert max(map(len, sample.output(*table).splitlines())) <= 80


@each_of(
    (("queue", "list"), "No queues found"),
    (("pg", "list"), "No podgroups found in namespace team"),
    (("pg", "list", "-A"), "No podgroups found"),
)
def test_an_empty_list_has_a_message(command: tuple[str, ...], message: str, *, cluster: Cluster) -> None:
    result = cluster.muster(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{message}\n")


# ---- objects


def test_names_are_as_kubectl_takes_them(sample: Cluster) -> None:
    assert sample.output("queue", "list", "-o", "name") == lines(f"{QUEUE}/batch", f"{QUEUE}/research")
    assert sample.output("pg", "get", "fit", "-o", "name") == f"{GROUP}/fit\n"


def test_one_object_is_printed_alone_and_several_as_a_list(sample: Cluster) -> None:
    one = sample.json("pg", "get", "fit")
    several = yaml.safe_load(sample.output("pg", "list", "-o", "yaml"))
    assert (one["kind"], one["spec"]) == ("PodGroup", {"minMember": 2, "queue": "research"})
    assert (several["kind"], len(several["items"])) == ("List", 2)
    assert several["items"][0] == one


def test_no_objects_are_an_empty_list(cluster: Cluster) -> None:
    assert cluster.json("queue", "list")["items"] == []
    assert cluster.output("queue", "list", "-o", "name") == ""


def test_managed_fields_are_left_out(cluster: Cluster) -> None:
    cluster.queue("a", metadata={"managedFields": [{"manager": "kubectl"}]})
    assert "managedFields" not in cluster.output("queue", "get", "a", "-o", "yaml")


# ---- what goes wrong


def test_a_name_that_is_not_there(sample: Cluster) -> None:
    assert (
        sample.refuses("queue", "get", "nope") == "Error: queue 'nope' not found; there are: batch, research"
    )
    assert sample.misses("pg", "get", "fit", "nope") == ("nope", ["fit", "sweep"])


def test_a_name_that_is_nearly_there(sample: Cluster) -> None:
    assert sample.misses("why", "queue/reserch") == ("reserch", ["research", "batch"])
    for number in range(20):
        sample.group(f"sweep-{number}")
    assert sample.misses("why", "podgroup/swep-7")[1][0] == "sweep-7"
    assert sample.misses("why", "podgroup/zzz") == ("zzz", [])


def test_an_unknown_name_is_reported_where_none_exist_or_listing_is_forbidden(cluster: Cluster) -> None:
    assert cluster.refuses("why", "queue/a").endswith("; there are none")
    cluster.lock(("queues", ""))
    assert cluster.misses("why", "queue/a") == ("a", [])


@each_of(
    (("queue", "list", "-o", "xml"), "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'name'."),
    (("pg", "list", "--context", "nowhere"), "--context: invalid value 'nowhere': must be here, there"),
    (("pg", "get", "fit", "-A"), "set only one of -A and NAME, 'fit': a name is of one namespace"),
    (("queue", "lst"), "No such command 'lst'."),
)
def test_errors_name_the_flag_its_value_and_the_allowed_values(
    arguments: tuple[str, ...], message: str, *, cluster: Cluster
) -> None:
    assert message in cluster.refuses(*arguments, status=2)


def test_a_missing_kubeconfig_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["q", "list", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: --kubeconfig: {tmp_path / 'none'}: no such file\n")


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: day, context: {cluster: c, user: u}}, {name: night, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""
EMPTY = "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n"
NO_CONTEXT = "it has no current context"
CHOOSE = "choose one of day, night: kubectl config use-context NAME"


@pytest.mark.parametrize(
    "command",
    ["queue list", "podgroup list", "why queue/x", "queue close x", "podgroup describe x", "check"],
)
@pytest.mark.parametrize(
    ("text", "output"),
    [
        (KUBECONFIG, f"{NO_CONTEXT}; {CHOOSE} --kubeconfig FILE"),
        (
            f"{KUBECONFIG}current-context: dusk\n",
            f"its current context 'dusk' does not exist; {CHOOSE} --kubeconfig FILE",
        ),
        (EMPTY, "it has no contexts, so it names no cluster"),
    ],
)
def test_a_kubeconfig_without_a_current_context(tmp_path: Path, command: str, text: str, output: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    result = CliRunner().invoke(main, [*command.split(), "--kubeconfig", str(file)])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: --kubeconfig: {file}: {output}\n".replace("FILE", str(file)))


def test_a_kubeconfig_of_the_environment_is_named_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    result = CliRunner().invoke(main, ["queue", "list"])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {tmp_path / 'config'}: {NO_CONTEXT}; {CHOOSE}\n")


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    none = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    result = CliRunner().invoke(main, ["queue", "list", "--kubeconfig", str(none)])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the API server cannot be reached: 127.0.0.1:1: ")


def test_forbidden_lists_have_the_words_of_the_server(cluster: Cluster) -> None:
    cluster.lock(("queues", ""))
    result = cluster.muster("queue", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == lines(
        'Error: not allowed: queues.scheduling.volcano.sh is forbidden: User "you" cannot list it',
        "You need a ClusterRoleBinding to the role kube-muster-view, or to another that may read queues.",
    )
    cluster.lock(("podgroups", "team"))
    assert cluster.refuses("pg", "list").startswith("Error: not allowed: podgroups")


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[tuple[Server, list[str]]]:
    """Yield a server with preset answers, and the flags to find it."""
    with Server() as server:
        yield server, ["--kubeconfig", str(write_kubeconfig(tmp_path, server.url))]


@pytest.mark.parametrize("command", [["queue", "list"], ["queue", "get", "a"]])
def test_a_cluster_without_the_kinds_of_muster_is_reported(
    foreign: tuple[Server, list[str]], command: list[str]
) -> None:
    server, flags = foreign
    server.script.append(Reply(404, b"404 page not found"))
    result = CliRunner().invoke(main, [*command, *flags])
    message = "Error: the cluster knows no queues: Muster's CRDs are not installed\n"
    assert (result.exit_code, result.stderr) == (1, message)


NO_ANSWER = "the API server gave no usable answer: "


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(401), "the API server does not accept the credentials of the kubeconfig; log in again"),
        (Reply(500, b'{"message": "etcd is away"}'), "the API server refuses: etcd is away"),
        (Reply(200, b"<html>"), NO_ANSWER),
        (Reply(raw=b"SSH-2.0\r\n"), NO_ANSWER),
    ],
)
def test_a_server_that_is_no_help(foreign: tuple[Server, list[str]], reply: Reply, message: str) -> None:
    server, flags = foreign
    server.script.append(reply)
    result = CliRunner().invoke(main, ["queue", "list", *flags])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {message}")


def test_a_long_list_is_read_in_pages(foreign: tuple[Server, list[str]]) -> None:
    server, flags = foreign
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    for name, more in (("b", {"continue": "x"}), ("a", {})):
        page = {"metadata": more, "items": [{**head, "metadata": {"name": name}}]}
        server.script.append(Reply(200, json.dumps(page).encode()))
    result = CliRunner().invoke(main, ["queue", "list", "-o", "name", *flags])
    assert result.stdout == lines(f"{QUEUE}/a", f"{QUEUE}/b")
    assert [request.query.get("continue") for request in server.requests] == [None, "x"]


# ---- ages


@each_of(
    *((0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"), (10_799, "179m")),
    *((3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600 + 60, "8h"), (48 * 3600, "2d")),
    *((2 * 86400 + 3600, "2d1h"), (8 * 86400 + 3600, "8d"), (730 * 86400, "2y"), (9 * 365 * 86400, "9y")),
)
def test_ages_are_those_of_kubectl(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_an_unknown_age() -> None:
    assert (age(None), age(""), age("yesterday")) == ("-", "-", "-")
    assert age(ago(days=-1)) == "0s"  # a clock that is ahead of ours


# ---- namespaces


def test_in_a_pod_the_namespace_is_the_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(endpoint, "_NAMESPACE_FILE", tmp_path / "namespace")
    assert endpoint.own_namespace(None, None) == "default"
    (tmp_path / "namespace").write_text("team\n")
    assert endpoint.own_namespace(None, None) == "team"


def test_a_context_without_a_namespace_means_default(tmp_path: Path) -> None:
    assert endpoint.own_namespace(str(write_kubeconfig(tmp_path, "http://127.0.0.1:1")), None) == "default"
