"""`muster check` where the scheduler reads its pods through Muster: the line `view`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli import main
from tests.cli.installation import MANIFESTS, METRICS, PROXY, Installation, older
from tests.kube.conftest import write_kubeconfig

READS = "kube-scheduler/v1.36.3 reads pods here for 5m12s, and got the last event 3s ago"
FINE = {"muster_view_pod_watches": 1.0, "muster_view_silence_seconds": 3.0, "muster_view_detours_total": 0.0}
Lines = list[tuple[str, str, str]]  # state, what is said, what to do


@pytest.fixture
def site() -> Iterator[Installation]:
    with Installation() as installation:
        installation.install()
        installation.run()
        set_note(installation)
        yield installation


@pytest.fixture
def gated() -> Iterator[Installation]:
    with Installation() as installation:
        installation.install()
        installation.gates()
        installation.run()
        yield installation


def set_note(site: Installation, record: str = READS, **changed: float) -> None:
    metrics = "".join(f"{name} {number}\n" for name, number in {**FINE, **changed}.items())
    site.pages[f"{PROXY}/metrics"] = (200, METRICS + metrics)
    site.pages[f"{PROXY}/readyz"] = (200, f"[+]ping ok\n[+]view ok: {record}\nreadyz check passed\n")


def findings_on(site: Installation, folder: Path, subject: str = "view") -> Lines:
    kubeconfig = str(write_kubeconfig(folder, site.url))
    done = CliRunner().invoke(main, ["check", "-o", "json", "--kubeconfig", kubeconfig])
    lines = [each for each in json.loads(done.stdout) if each["subject"] == subject]
    return [(line["state"], line["message"], line["todo"]) for line in lines]


def scheduler(site: Installation) -> Any:
    (workload,) = site.of("deployments")
    return workload["spec"]["template"]["spec"]["containers"][0]


def muster(site: Installation) -> Any:
    """Return the container `muster` of the workload; `run` has given it to the pod as well."""
    (workload,) = site.of("deployments")
    return workload["spec"]["template"]["spec"]["initContainers"][0]


def test_a_proxy_without_faults_is_ok(site: Installation, tmp_path: Path) -> None:
    file = "the kubeconfig of the scheduler proxy, /run/kube-muster/kubeconfig"
    assert findings_on(site, tmp_path) == [
        ("ok", f"deployment/muster: its scheduler has {file}", ""),
        ("ok", f"muster-1: {READS}", ""),
    ]


def test_without_the_view_there_is_no_such_line(gated: Installation, tmp_path: Path) -> None:
    assert findings_on(gated, tmp_path) == []


def test_pods_need_no_gates_with_the_view(site: Installation, tmp_path: Path) -> None:
    assert {state for state, *_ in findings_on(site, tmp_path, "policies")} == {"ok"}
    site.pages["/version"] = older("1.35")
    assert not any("kube-muster-pods" in message for _, message, _ in findings_on(site, tmp_path, "webhooks"))


def test_policies_that_still_gate_pods_are_to_be_deleted(site: Installation, tmp_path: Path) -> None:
    for each in yaml.safe_load_all((MANIFESTS / "gates" / "admission-policy.yaml").read_text()):
        site.put(each)
    wrong = [each for each in findings_on(site, tmp_path) if each[0] == "wrong"]
    left = [(message.split()[0], todo.partition(";")[0]) for _, message, todo in wrong]
    assert left == [
        (f"{kind}/{name}", f"kubectl delete {kind} {name}")
        for kind, name in (
            ("mutatingadmissionpolicies", "kube-muster-gate"),
            ("mutatingadmissionpolicybindings", "kube-muster-gate"),
        )
    ]


# ---- how it is installed


def without_kubeconfig(site: Installation) -> None:
    scheduler(site)["command"][1] = "--config=/etc/kubernetes/muster/sidecar-gates.yaml"


def by_flags(site: Installation) -> None:
    scheduler(site)["command"] = ["kube-scheduler", "--kubeconfig", "/etc/own/kubeconfig"]


def in_another_folder(site: Installation) -> None:
    for each in muster(site)["env"]:
        if each["name"] == "MUSTER_VIEW_FOLDER":
            each["value"] = "/run/elsewhere/"


@pytest.mark.parametrize("mounted", [True, False])
def test_a_scheduler_with_the_views_kubeconfig_and_muster_without_the_view(
    site: Installation, tmp_path: Path, mounted: bool
) -> None:
    for each in muster(site)["env"]:
        if each["name"] == "MUSTER_VIEW_LISTEN":
            each["value"] = "off"
    if not mounted:
        scheduler(site)["volumeMounts"] = [
            each for each in scheduler(site)["volumeMounts"] if each["name"] != "view"
        ]
    ((state, message, todo),) = findings_on(site, tmp_path)
    assert state == "wrong"
    assert message.endswith("/run/kube-muster/kubeconfig, and Muster writes none (--view-listen=off)")
    assert "Set --view-listen and --view-folder" in todo


def test_a_kubeconfig_of_the_administrator_is_ok_without_the_proxy(
    gated: Installation, tmp_path: Path
) -> None:
    (workload,) = gated.of("deployments")
    spec = workload["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "own", "secret": {"secretName": "own"}})
    scheduler(gated)["volumeMounts"].append({"name": "own", "mountPath": "/etc/own"})
    by_flags(gated)
    assert findings_on(gated, tmp_path) == []


def no_map(site: Installation) -> None:
    site.of("configmaps").clear()


def broken_map(site: Installation) -> None:
    site.of("configmaps")[0]["data"]["sidecar.yaml"] = "{"


def no_volume(site: Installation) -> None:
    scheduler(site)["volumeMounts"].clear()


def no_scheduler(site: Installation) -> None:
    scheduler(site)["name"] = "another"


AROUND = ("wrong", "sidecar.yaml has it")
UNREAD = ("unknown", "clientConnection.kubeconfig is /run/kube-muster/kubeconfig")


@pytest.mark.parametrize(
    ("spoil", "message", "answer"),
    [
        (without_kubeconfig, "its scheduler has no kubeconfig, so it does not read through Muster", AROUND),
        (by_flags, "its scheduler has the kubeconfig /etc/own/kubeconfig, so it does not read", AROUND),
        (in_another_folder, "so it does not read through Muster (/run/elsewhere/kubeconfig)", AROUND),
        (no_map, "the ConfigMap kube-muster/muster-scheduler-config has no sidecar.yaml", UNREAD),
        (broken_map, "its scheduler's configuration cannot be read: while parsing", UNREAD),
        (no_volume, "/etc/kubernetes/muster/sidecar.yaml, is in no ConfigMap", UNREAD),
        (no_scheduler, "it has no container kube-scheduler", UNREAD),
    ],
)
def test_a_scheduler_with_another_kubeconfig_reads_around_it_or_is_not_known(
    site: Installation,
    tmp_path: Path,
    spoil: Callable[[Installation], None],
    message: str,
    answer: tuple[str, str],
) -> None:
    spoil(site)
    state, text, todo = findings_on(site, tmp_path)[0]
    assert (state, message in text, answer[1] in todo) == (answer[0], True, True), text


# ---- what Muster says


@pytest.mark.parametrize(
    ("record", "changed", "state", "todo"),
    [
        ("no client reads pods here", {"muster_view_pod_watches": 0.0}, "wrong", "No pod starts until"),
        (
            f"{READS}; a scheduler reads pods elsewhere: 7",
            {"muster_view_detours_total": 7.0},
            "wrong",
            "Stop",
        ),
        (READS, {"muster_view_silence_seconds": 181.0}, "unknown", "something each minute"),
    ],
)
def test_a_check_shows_the_state_that_muster_reports_of_its_proxy(
    site: Installation, tmp_path: Path, record: str, changed: dict[str, float], state: str, todo: str
) -> None:
    set_note(site, record, **changed)
    got, message, remedy = findings_on(site, tmp_path)[1]
    assert (got, message) == (state, f"muster-1: {record}")
    assert todo in remedy


def test_no_reader_is_needed_where_muster_does_not_lead(site: Installation, tmp_path: Path) -> None:
    set_note(site, "no client reads pods here", muster_view_pod_watches=0.0, muster_leader=0.0)
    status, metrics = site.pages[f"{PROXY}/metrics"]
    site.pages[f"{PROXY}/metrics"] = (status, metrics.replace("muster_leader 1.0\n", ""))
    assert findings_on(site, tmp_path)[1][0] == "ok"


def test_a_pod_out_of_reach_says_nothing(site: Installation, tmp_path: Path) -> None:
    site.pages[f"{PROXY}/readyz"] = (503, "no route to host")
    assert [state for state, *_ in findings_on(site, tmp_path)] == ["ok"]
    assert findings_on(site, tmp_path, "health")[0][0] == "unknown"
