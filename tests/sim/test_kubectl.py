"""The real kubectl against the embedded API server, where `make control-plane` has built one."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.apimachinery.kinds import EVENTS, NODES, POD_GROUPS, PODS
from extender.apimachinery.objects import now
from extender.apimachinery.service import Service
from extender.cli import main
from extender.sim.apiserver.server import ApiServer
from extender.sim.apiserver.tables import accepts_table, table
from extender.sim.kubelets import Kubelets, node
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.pages.fences import commands
from tests.sim.kubectl import Kubectl
from tests.sim.requests import pod

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = README.parent / "examples" / "first-gang.yaml"


def test_the_example_is_applied_shown_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", str(EXAMPLE)).count("created") == 14
    assert kubectl("apply", "-f", str(EXAMPLE)).count("unchanged") == 14
    head, first, *_ = kubectl("get", "pods", "-o", "wide").splitlines()
    assert head.split()[:3] == ["NAME", "READY", "STATUS"]
    assert first.split()[1:3] == ["0/1", "SchedulingGated"]
    assert kubectl("get", "queue", "-o", "name").split() == [
        "queue.scheduling.volcano.sh/reports",
        "queue.scheduling.volcano.sh/research",
    ]
    assert "train" in kubectl("get", "pg", "--all-namespaces")
    kubectl("delete", "-f", str(EXAMPLE))
    assert kubectl("get", "pods,pg,q", "-o", "name") == ""


def test_groups_are_shown_as_the_readme_shows_them(kubectl: Kubectl, service: Service) -> None:
    kubectl("apply", "-f", str(EXAMPLE))
    (page,) = (each.printed for each in commands(README) if each.text == "kubectl get podgroups -o wide")
    assert page is not None
    head, *rows = (line.split() for line in page.splitlines())
    for name, phase, _, running, _, _, reason, *position in rows:
        conditions = [{"type": "Scheduled", "status": "False", "reason": reason}]
        status = {"phase": phase, "running": int(running), "conditions": conditions}
        status["waiting"] = {"position": int(position[0])} if position else {}
        kubectl("patch", "podgroup", name, "--type=merge", "-p", json.dumps({"status": status}))
    shown = [line.split() for line in kubectl("get", "podgroups", "-o", "wide").splitlines()]
    aged = head.index("AGE")
    assert [[*line[:aged], *line[aged + 1 :]] for line in shown] == [
        [*line[:aged], *line[aged + 1 :]] for line in (head, *rows)
    ]


def test_a_deletion_waits_for_the_kubelet(kubectl: Kubectl, service: Service) -> None:
    service.create(PODS, "", pod("a", nodeName="n0", terminationGracePeriodSeconds=30))
    kubelets = Kubelets(service)
    kubelets.start()
    kubectl("wait", "pod/a", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    kubectl("delete", "pod", "a")
    assert service.store.get(PODS, "default", "a") is None
    kubelets.stop()


def test_a_pod_is_described_with_its_events(kubectl: Kubectl, service: Service) -> None:
    scheduler = Scheduler(service, Extender("127.0.0.1:9"))
    scheduler.start()
    for name in ("a", "b"):
        service.create(PODS, "", pod(name, cpu="3"))
    wait_for(lambda: len(service.store.all(EVENTS)) == 2)
    service.create(NODES, "", objects.node("n0", cpu="4"))
    wait_for(lambda: not scheduler.busy and len(service.store.all(EVENTS)) == 4)
    scheduler.stop()
    first, second = sorted((kubectl("describe", "pod", name) for name in ("a", "b")), key=len)
    assert "no nodes available to schedule pods" in first
    assert "Successfully assigned default/" in first
    assert "Insufficient cpu" in second
    assert "default-scheduler" in second


def test_lists_become_tables_for_people(service: Service) -> None:
    made = service.create(PODS, "", pod("a", nodeName="n0"))
    shown = table(PODS, made)
    names = [column["name"] for column in shown["columnDefinitions"]]
    cells = dict(zip(names, shown["rows"][0]["cells"], strict=True))
    assert (cells["Name"], cells["Ready"], cells["Status"], cells["Node"]) == ("a", "0/1", "Pending", "n0")
    assert accepts_table("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert not accepts_table("application/json")


def test_kinds_of_ours_have_the_columns_of_their_crds(service: Service) -> None:
    group = objects.pod_group("g", namespace="default", min_member=2)
    group["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
    ]
    reason = {"type": "Scheduled", "status": "False", "reason": "NoRoom"}
    status = {"phase": "Pending", "conditions": [reason], "waiting": {"position": 3}}
    shown = table(POD_GROUPS, service.create(POD_GROUPS, "", {**group, "status": status}))
    names = [column["name"] for column in shown["columnDefinitions"]]
    cells = dict(zip(names, shown["rows"][0]["cells"], strict=True))
    assert (cells["Status"], cells["minMember"], cells["Reason"]) == ("Pending", 2, "NoRoom")
    assert (cells["Position"], cells["Runnings"], cells["Owner"]) == (3, "", "j")
    assert [column["priority"] for column in shown["columnDefinitions"]] == [0, 0, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("include", "has"), [("", ["metadata"]), ("None", []), ("Object", ["metadata", "spec"])]
)
def test_a_row_has_as_much_of_its_object_as_is_asked_for(
    service: Service, include: str, has: list[str]
) -> None:
    (row,) = table(PODS, service.create(PODS, "", pod("a")), include)["rows"]
    shown = row.get("object", {})
    assert [each for each in ("metadata", "spec") if each in shown] == has


def test_server_side_apply_keeps_fields_of_other_managers(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", str(EXAMPLE)).count("serverside-applied") == 14
    kubectl("label", "queue", "research", "team=a")
    kubectl("patch", "queue", "research", "--type=merge", "-p", '{"spec":{"weight":5}}')
    refused = kubectl.refused("apply", "--server-side", "-f", str(EXAMPLE))
    assert 'conflict with "kubectl-patch" using scheduling.volcano.sh/v1beta1: .spec.weight' in refused
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(EXAMPLE))
    shown = kubectl("get", "queue", "research", "-o", "jsonpath={.spec.weight} {.metadata.labels.team}")
    assert shown == "1 a"
    assert kubectl("apply", "-f", str(EXAMPLE)).count("configured") == 14  # from one way to the other


def test_protobuf_bodies_of_kubectl_are_read(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "team-a") == "namespace/team-a created\n"
    assert kubectl("get", "namespace", "team-a").split()[:5] == ["NAME", "STATUS", "AGE", "team-a", "Active"]
    assert "-5" in kubectl("create", "priorityclass", "low", "--value=-5", "-o", "jsonpath={.value}")
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert kubectl("auth", "can-i", "--list").splitlines()[1].split() == ["*.*", "[]", "[]", "[*]"]
    assert "you" in kubectl("auth", "whoami")
    refused = kubectl.refused("create", "namespace", "Team_A")
    assert 'The Namespace "Team_A" is invalid' in refused
    assert "a lowercase RFC 1123 label must consist of" in refused


def test_nodes_have_the_columns_that_people_know(kubectl: Kubectl, service: Service) -> None:
    new_node = node("n0", "4", "16Gi")
    new_node["metadata"]["labels"] = {"node-role.kubernetes.io/worker": ""}
    new_node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    service.create(NODES, "", new_node)
    head, row = kubectl("get", "nodes", "-o", "wide").splitlines()
    assert head.split()[:7] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP", "EXTERNAL-IP"]
    assert head.split()[7:] == ["OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"]
    assert row.split()[1:3] == ["Ready", "worker"]
    assert row.split()[4].startswith("v1.37.0+muster-")
    assert row.split()[5:] == ["10.0.0.1", "<none>", "<unknown>", "<unknown>", "<unknown>"]
    assert kubectl("get", "nodes").splitlines()[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]


def test_kinds_are_explained(kubectl: Kubectl) -> None:
    assert "PodSpec" in kubectl("explain", "pod")
    assert "requests\t<map[string]Quantity>" in kubectl("explain", "pod.spec.containers.resources")
    assert "How many members must be able to run at once" in kubectl("explain", "podgroup.spec.minMember")
    assert "in proportion to their weights" in " ".join(kubectl("explain", "queue.spec.weight").split())


def test_events_have_the_columns_that_people_know(kubectl: Kubectl, service: Service) -> None:
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    seen = {"lastTimestamp": now(), "firstTimestamp": now(), "count": 3, "source": {"component": "x"}}
    event = {
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no nodes",
        "involvedObject": about,
    }
    service.create(EVENTS, "", {"metadata": {"name": "a.1", "namespace": "default"}, **event, **seen})
    head, row = kubectl("get", "events").splitlines()
    assert head.split("   ")[0] == "LAST SEEN"
    assert head.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row.split()[1:] == ["Warning", "FailedScheduling", "pod/a", "no", "nodes"]
    sorted_row = kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[1]
    assert sorted_row.split()[1:] == row.split()[1:]
    wide = kubectl("get", "events", "-o", "wide").splitlines()[0].split("  ")
    assert [name.strip() for name in wide if name.strip()][-3:] == ["FIRST SEEN", "COUNT", "NAME"]


def test_muster_check_knows_an_embedded_cluster(server: ApiServer, tmp_path: Path) -> None:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    done = CliRunner().invoke(main, ["check", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.output)
    assert (found["subject"], found["state"]) == ("cluster", "ok")
    assert "this is the embedded cluster of muster run" in found["message"]
