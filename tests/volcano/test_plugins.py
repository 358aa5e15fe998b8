"""The plugins of Volcano Jobs: what they keep for a job, and what its pods are given."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.volcano import JobStatus, Json, TaskSpec, VolcanoJob, VolcanoJobSpec
from extender.volcano.plugins import (
    PLUGINS,
    SshKeys,
    build_with_plugins,
    objects_of,
    plugin_resources,
    plugins_of,
    ssh_secret,
)
from tests.rows import each_of

KEYS = SshKeys("private", "ssh-ed25519 public")


def job(plugins: dict[str, list[str] | None] | None, tasks: dict[str, int], **template: Any) -> VolcanoJob:
    """Return a job named `train`; `template` is put into the spec of each of its pods."""
    spec = {"containers": [{"name": "main", "env": [{"name": "OWN", "value": "1"}]}], **template}
    of = [TaskSpec(name=name, replicas=many, template={"spec": spec}) for name, many in tasks.items()]
    return VolcanoJob(
        Meta(name="train", namespace="lab", uid="u1"), VolcanoJobSpec(tasks=of, plugins=plugins)
    )


def pod(of: VolcanoJob, task: str, index: int) -> Json:
    """Return a pod as the job's controller builds it, with the additions of its plugins."""
    found = next(each for each in of.spec.tasks if each.name == task)
    return build_with_plugins(of, plugins_of(of).plugins, found, index)


def env(of: VolcanoJob, task: str, index: int) -> dict[str, str]:
    variables = pod(of, task, index)["spec"]["containers"][0]["env"]
    assert len({variable["name"] for variable in variables}) == len(variables)
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def by_kind(of: VolcanoJob) -> dict[str, Json]:
    return {found["kind"]: found for found in objects_of(of)}


def test_without_plugins_nothing_is_added() -> None:
    plain = job(None, {"worker": 2})
    assert objects_of(plain) == ()
    assert ssh_secret(plain, "secret", lambda: KEYS) is None
    assert pod(plain, "worker", 0)["spec"] == plain.spec.tasks[0].template["spec"]


def test_env_sets_the_index_of_each_pod_of_a_task() -> None:
    numbered = job({"env": []}, {"worker": 3}, initContainers=[{"name": "before"}])
    assert env(numbered, "worker", 2) == {"OWN": "1", "VK_TASK_INDEX": "2", "VC_TASK_INDEX": "2"}
    assert pod(numbered, "worker", 1)["spec"]["initContainers"][0]["env"][0]["value"] == "1"


def test_the_variable_of_a_plugin_replaces_the_templates() -> None:
    own = [{"name": "main", "env": [{"name": "VC_TASK_INDEX", "value": "mine"}]}]
    assert env(job({"env": []}, {"worker": 1}, containers=own), "worker", 0)["VC_TASK_INDEX"] == "0"


# ---- svc


def test_svc_keeps_a_service_the_lists_of_hosts_and_a_network_of_the_job() -> None:
    found = by_kind(job({"svc": []}, {"ps": 1, "mpi-worker": 2}))
    assert list(found) == ["Service", "ConfigMap", "NetworkPolicy"]
    for each in found.values():
        owner = each["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
            "Job",
            "train",
            "u1",
            True,
        )
        assert each["metadata"]["namespace"] == "lab"
    labels = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "lab"}
    assert found["Service"]["metadata"]["name"] == "train"
    assert found["Service"]["spec"] == {"clusterIP": "None", "selector": labels}
    assert found["ConfigMap"]["metadata"]["name"] == "train-svc"
    assert found["ConfigMap"]["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "mpi_worker.host": "train-mpi-worker-0.train\ntrain-mpi-worker-1.train",
        "VC_MPI_WORKER_HOSTS": "train-mpi-worker-0.train,train-mpi-worker-1.train",
        "VC_MPI_WORKER_NUM": "2",
    }
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == policy["ingress"][0]["from"][0]["podSelector"] == {"matchLabels": labels}
    assert policy["policyTypes"] == ["Ingress"]


def test_svc_gives_pods_a_name_the_lists_as_files_and_as_variables() -> None:
    spec = pod(job({"svc": []}, {"ps": 1, "worker": 2}), "worker", 1)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("train-worker-1", "train")
    assert spec["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]
    main = spec["containers"][0]
    assert main["volumeMounts"] == [{"name": "train-svc", "mountPath": "/etc/volcano"}]
    reported = {each["name"]: each["valueFrom"]["configMapKeyRef"] for each in main["env"][1:]}
    assert list(reported) == ["VC_PS_HOSTS", "VC_PS_NUM", "VC_WORKER_HOSTS", "VC_WORKER_NUM"]
    assert reported["VC_PS_NUM"] == {"name": "train-svc", "key": "VC_PS_NUM"}


def test_host_names_of_the_template_stay() -> None:
    named = job({"svc": []}, {"worker": 3}, hostname="h", subdomain="s")
    spec = pod(named, "worker", 0)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("h", "s")
    assert by_kind(named)["ConfigMap"]["data"]["worker.host"] == "h.s"


@each_of(
    ([], ["Service", "ConfigMap", "NetworkPolicy"], False, True),
    (["--disable-network-policy"], ["Service", "ConfigMap"], False, True),
    (["--disable-network-policy=true"], ["Service", "ConfigMap"], False, True),
    (["-disable-network-policy=false"], ["Service", "ConfigMap", "NetworkPolicy"], False, True),
    (["--publish-not-ready-addresses"], ["Service", "ConfigMap", "NetworkPolicy"], True, True),
    (["--inject-hosts-env=false"], ["Service", "ConfigMap", "NetworkPolicy"], False, False),
)
def test_flags_of_svc(flags: list[str], kinds: list[str], is_early: bool, has_environment: bool) -> None:
    flagged = job({"svc": flags}, {"worker": 1})
    found = by_kind(flagged)
    assert list(found) == kinds
    assert found["Service"]["spec"].get("publishNotReadyAddresses", False) is is_early
    names = [each["name"] for each in pod(flagged, "worker", 0)["spec"]["containers"][0]["env"]]
    assert ("VC_WORKER_NUM" in names) is has_environment
    assert plugins_of(flagged).faults == ()


# ---- ssh


def test_ssh_gives_all_pods_one_key_and_the_host_names() -> None:
    secret = ssh_secret(job({"ssh": []}, {"master": 1, "worker": 1}), "secret", lambda: KEYS)
    assert secret is not None
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "secret")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u1"
    files = secret["stringData"]
    assert (files["id_rsa"], files["id_rsa.pub"], files["authorized_keys"]) == (
        KEYS.private_key,
        *[KEYS.public_key] * 2,
    )
    assert files["config"].splitlines() == [
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        "Host train-master-0",
        "  HostName train-master-0.train",
        "  Port 22",
        "Host train-worker-0",
        "  HostName train-worker-0.train",
        "  Port 22",
    ]


def test_a_job_may_bring_its_keys_and_its_port() -> None:
    flags = ["--ssh-private-key=own", "--ssh-public-key=shown", "--ssh-port", "2222"]
    secret = ssh_secret(job({"ssh": flags}, {"worker": 1}), "secret", pytest.fail)
    assert secret is not None
    assert (secret["stringData"]["id_rsa"], secret["stringData"]["authorized_keys"]) == ("own", "shown")
    assert "  Port 2222" in secret["stringData"]["config"]


@each_of(
    ([], "/root/.ssh", 0o600),
    (["--ssh-key-file-path=/home/user/.ssh"], "/home/user/.ssh", 0o644),
    (["--no-root"], "/etc/volcano/.ssh", 0o644),
)
def test_the_key_is_mounted_into_every_container(flags: list[str], path: str, mode: int) -> None:
    two = [{"name": "main"}, {"name": "side"}]
    new_job = job({"ssh": flags}, {"w": 1}, containers=two, initContainers=[{"name": "i"}])
    new_job = replace(new_job, status=JobStatus(controlled_resources={"plugin-ssh": "train-ssh-9f"}))
    spec = pod(new_job, "w", 0)["spec"]
    mounts = [found["volumeMounts"] for found in spec["containers"] + spec["initContainers"]]
    assert mounts == [[{"name": "train-ssh", "mountPath": path, "subPath": ".ssh"}]] * 3
    secret = spec["volumes"][0]["secret"]
    assert (secret["secretName"], secret["defaultMode"]) == ("train-ssh-9f", mode)
    files = [item["path"] for item in secret["items"]]
    assert files == [".ssh/id_rsa", ".ssh/id_rsa.pub", ".ssh/authorized_keys", ".ssh/config"]


@each_of(("train-ssh-9f", "train-ssh-9f"), ("ssh", "train-ssh"))
def test_the_secret_is_the_one_that_the_status_names(recorded: str, name: str) -> None:
    """Volcano notes the mere name of the plugin."""
    status = JobStatus(controlled_resources={"plugin-ssh": recorded, "plugin-svc": "svc"})
    given = replace(job({"ssh": [], "svc": []}, {"w": 1}), status=status)
    assert pod(given, "w", 0)["spec"]["volumes"][-1]["secret"]["secretName"] == name
    assert plugin_resources(given) == {"plugin-svc": "svc"}


# ---- frameworks


@each_of(("master", 0, "0"), ("worker", 0, "1"), ("worker", 2, "3"), ("other", 0, None))
def test_pytorch_counts_the_master_first(task: str, index: int, rank: str | None) -> None:
    torch = job({"pytorch": []}, {"master": 1, "worker": 3, "other": 5})
    found = env(torch, task, index)
    assert found["MASTER_ADDR"] == "train-master-0.train"
    assert (found["MASTER_PORT"], found["WORLD_SIZE"], found.get("RANK")) == ("23456", "4", rank)
    ports = pod(torch, task, index)["spec"]["containers"][0]["ports"]
    assert ports == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_workers_of_pytorch_wait_for_the_master_where_asked() -> None:
    flags = ["--wait-master-enabled", "--wait-master-timeout=60", "--wait-master-image=nc:1", "--port=99"]
    torch = job({"pytorch": flags}, {"master": 1, "worker": 1})
    assert "initContainers" not in pod(torch, "master", 0)["spec"]
    [waiting] = pod(torch, "worker", 0)["spec"]["initContainers"]
    assert (waiting["image"], waiting["command"][:2]) == ("nc:1", ["timeout", "60"])
    assert "train-master-0.train 99" in waiting["command"][-1]


@each_of(
    ("ps", 0, ("ps", 0)),
    ("trainer", 1, ("worker", 1)),
    ("boss", 0, ("chief", 0)),
    ("judge", 0, ("evaluator", 0)),
)
def test_each_process_of_tensorflow_gets_the_addresses_of_the_others(
    task: str, index: int, shown: tuple[str, int]
) -> None:
    flags = ["--worker=trainer", "--chief=boss", "--evaluator=judge", "--port=5000"]
    tensorflow = job({"tensorflow": flags}, {"ps": 1, "trainer": 2, "boss": 1, "judge": 1, "other": 1})
    config = json.loads(env(tensorflow, task, index)["TF_CONFIG"])
    assert (config["task"]["type"], config["task"]["index"]) == shown
    assert config["cluster"] == {
        "ps": ["train-ps-0.train:5000"],
        "worker": ["train-trainer-0.train:5000", "train-trainer-1.train:5000"],
        "chief": ["train-boss-0.train:5000"],
        "evaluator": ["train-judge-0.train:5000"],
    }


def test_a_single_process_of_tensorflow_gets_no_configuration() -> None:
    assert "TF_CONFIG" not in env(job({"tensorflow": []}, {"worker": 1}), "worker", 0)


def test_the_master_of_mpi_knows_the_workers() -> None:
    mpi = job({"mpi": ["--master=boss"]}, {"boss": 1, "worker": 2}, initContainers=[{"name": "before"}])
    assert env(mpi, "boss", 0)["MPI_HOST"] == "train-worker-0.train,train-worker-1.train"
    assert "MPI_HOST" not in env(mpi, "worker", 0)
    spec = pod(mpi, "boss", 0)["spec"]
    assert spec["initContainers"][0]["env"][-1]["name"] == "MPI_HOST"
    assert spec["containers"][0]["ports"] == [{"name": "mpijob-port", "containerPort": 22}]


def test_an_existing_port_stays_unchanged() -> None:
    open_one = [{"name": "main", "ports": [{"containerPort": 22, "name": "ssh"}]}]
    mpi = job({"mpi": []}, {"master": 1, "worker": 1}, containers=open_one)
    assert pod(mpi, "worker", 0)["spec"]["containers"][0]["ports"] == open_one[0]["ports"]


def test_ray_starts_a_head_and_workers_that_join_it() -> None:
    two = [{"name": "head"}, {"name": "worker"}]
    ray = job({"ray": ["--port=1234", "--dashboardPort=3456"]}, {"head": 1, "worker": 1}, containers=two)
    head, side = pod(ray, "head", 0)["spec"]["containers"]
    assert "--head" in head["command"][-1]
    assert "--port=1234 --dashboard-port=3456 --ray-client-server-port=10001" in head["command"][-1]
    assert [port["containerPort"] for port in head["ports"]] == [1234, 3456, 10001]
    assert "command" not in side
    assert (
        "--address=train-head-0.train:1234" in pod(ray, "worker", 0)["spec"]["containers"][1]["command"][-1]
    )
    services = {found["metadata"]["name"]: found for found in objects_of(ray) if found["kind"] == "Service"}
    assert services["train"]["spec"]["clusterIP"] == "None"
    head_service = services["train-head-svc"]["spec"]
    assert head_service["selector"]["volcano.sh/task-spec"] == "head"
    assert [port["port"] for port in head_service["ports"]] == [1234, 3456, 10001]


@each_of(
    ("mpi", {"mpi", "svc", "ssh"}),
    ("tensorflow", {"tensorflow", "svc"}),
    ("pytorch", {"pytorch", "svc"}),
    ("ray", {"ray", "svc"}),
    ("ssh", {"ssh"}),
)
def test_required_plugins_are_added(asked: str, names: set[str]) -> None:
    plugins = plugins_of(job({asked: None}, {"master": 1, "worker": 1, "head": 1})).plugins
    assert {plugin.name for plugin in plugins} == names


# ---- faults are reported, and affect nothing else


@each_of(
    ({"horovod": []}, "unknown plugin horovod: must be one of env, svc, ssh, pytorch, tensorflow, mpi, ray"),
    ({"env": ["--loud"]}, "plugin env: unknown flag --loud: the plugin has no flags"),
    ({"svc": ["loud"]}, "plugin svc: unknown flag loud"),
    ({"svc": ["--inject-hosts-env=maybe"]}, "plugin svc: flag --inject-hosts-env must be true or false"),
    ({"ssh": ["--ssh-port=70000"]}, "plugin ssh: flag --ssh-port must be a port from 1 to 65535"),
    ({"mpi": ["--port"]}, "plugin mpi: flag --port must be a port from 1 to 65535"),
    ({"pytorch": ["--wait-master-timeout=long"]}, "flag --wait-master-timeout must be a whole number"),
    ({"pytorch": ["--master=boss"]}, "plugin pytorch: the job has no task boss, which it needs"),
    ({"mpi": ["--worker=w"]}, "plugin mpi: the job has no task w, which it needs"),
    ({"ray": []}, "plugin ray: the job has no task head, which it needs"),
)
def test_faults_are_reported(plugins: dict[str, list[str] | None], said: str) -> None:
    wrong = job(plugins, {"master": 1, "worker": 1})
    [fault] = plugins_of(wrong).faults
    assert said in fault
    assert env(wrong, "worker", 0)["OWN"] == "1"


def test_an_invalid_flag_affects_only_itself() -> None:
    found = plugins_of(job({"svc": ["--loud", "--disable-network-policy", "--inject-hosts-env=x"]}, {"w": 1}))
    assert len(found.faults) == 2
    assert "NetworkPolicy" not in {each["kind"] for each in found.plugins[0].objects(job({}, {"w": 1}))}


def test_a_job_with_names_too_long_for_a_config_map_gets_none() -> None:
    large = job({"env": [], "mpi": []}, {"master": 1, "worker": 10**9})
    assert objects_of(large) == ()
    assert ssh_secret(large, "secret", lambda: KEYS) is None
    assert [fault.partition(":")[0] for fault in plugins_of(large).faults] == [
        "plugin svc",
        "plugin ssh",
        "plugin mpi",
    ]
    assert env(large, "worker", 7)["VC_TASK_INDEX"] == "7"


def test_no_key_is_repeated() -> None:
    for flags in (["--ssh-privat-key=hidden"], ["--ssh-port=hidden"]):
        assert "hidden" not in " ".join(plugins_of(job({"ssh": flags}, {"w": 1})).faults)


def test_the_page_has_all_plugins_with_their_flags() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "volcano.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", page, re.MULTILINE)
    reported = {name: re.findall(r"`([\w-]+)`", flags) for name, flags in rows}
    flags = {
        name: [field.encode_name for field in msgspec.structs.fields(kind)] for name, kind in PLUGINS.items()
    }
    assert reported == flags


TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["--port=1", "--port", "-master=x", "--no-root=2", "--="])
)
PARTS = st.dictionaries(
    st.sampled_from([*PLUGINS, "other"]), st.one_of(st.none(), st.lists(TEXTS, max_size=3))
)


@given(PARTS, st.integers(0, 3), st.sampled_from(["master", "worker", "head", "ps"]))
def test_any_plugins_leave_the_template_unchanged(
    plugins: dict[str, list[str] | None], many: int, task: str
) -> None:
    new_job = job(plugins, {task: many + 1, "worker-b": many})
    before = deepcopy(new_job.spec.tasks[0].template)
    new_pod = pod(new_job, task, many)
    assert new_pod["spec"]["containers"][0]["name"] == "main"
    assert new_job.spec.tasks[0].template == before
    assert new_pod == pod(new_job, task, many)
    msgspec.json.encode([new_pod, *objects_of(new_job), ssh_secret(new_job, "secret", lambda: KEYS)])
    names = [(each["kind"], each["metadata"]["name"]) for each in objects_of(new_job)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["tensorflow", "mpi"])
@pytest.mark.parametrize(("kind", "more"), [("containers", 60), ("initContainers", 59)])
def test_containers_get_no_host_list_that_is_too_long(name: str, kind: str, more: int) -> None:
    several = {kind: [{"name": f"c{n}"} for n in range(more)]}
    wide = job({name: []}, {"worker": 2000, "master": 1}, **several)
    text = "left out: 120060 hosts in the containers of a pod: must be at most 100000"
    assert plugins_of(wide).faults == (f"plugin {name}: {text}",)
    assert not env(wide, "master", 0).keys() & {"TF_CONFIG", "MPI_HOST"}
