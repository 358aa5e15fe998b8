"""Shipped YAML: rules that no API server checks for us."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import inspect

from extender import __version__
from extender.api import keys
from extender.api.configuration import Configuration
from extender.api.keys import MANAGED
from extender.api.objects.queues import Estimate, QueueSpec, QueueStatus, WaitingStatus
from extender.api.units import as_seconds
from extender.api.workloads.table import WORKLOADS
from extender.cli.settings import read_configuration, serve
from tests.cli.installation import documents
from tests.rows import each_of
from tools.chart_changes import FURTHER_JOBS

ROOT = Path(__file__).parents[1]
Json = dict[str, Any]

FOLDERS = ("manifests", "scheduler-config", "install")
INSTALLS = ["sidecar", "default-scheduler"]
CHART = ROOT / "install" / "chart"
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.yaml")
    if not path.is_relative_to(CHART)  # templates are not YAML before they are rendered
)
COMPONENTS = {
    "monitoring",
    "cert-manager",
    "dashboard",
    "history",
    "older-kubernetes",
    "gates",
    "overruling",
    "provisioning",
    "quota",
    "quota-marks",
    "volcano-jobs",
    "volcano-jobs-ssh",
    "jobs",
    *(f"jobs/{name}" for name in FURTHER_JOBS),
}
CONFIGURATIONS = ["sidecar.yaml", "sidecar-gates.yaml", "default-scheduler.yaml"]
WITHOUT_THE_VIEW = ["sidecar-gates.yaml", "default-scheduler.yaml"]
OF_THE_SIDECAR = ["sidecar.yaml", "sidecar-gates.yaml"]
POLICIES = ["gates/admission-policy.yaml", "default-scheduler/admission-policy.yaml"]
OUR_NAMES = {"muster", "volcano"}
# Documents that are read by a program, not by an API server.
PROGRAM_KINDS = {"Kustomization", "Component", "KubeSchedulerConfiguration"}


def objects() -> Iterator[Json]:
    for path in FILES:
        yield from (document for document in documents(path) if document["kind"] not in PROGRAM_KINDS)


def of_kind(*kinds: str) -> list[Json]:
    return [each for each in objects() if each["kind"] in kinds]


def named(kind: str, name: str) -> Json:
    (found,) = [each for each in of_kind(kind) if each["metadata"]["name"] == name]
    return found


def scheduler_configuration(name: str) -> Json:
    (found,) = documents(ROOT / "scheduler-config" / name)
    return found


def policies(name: str) -> list[Json]:
    return [
        document
        for document in documents(ROOT / "manifests" / name)
        if document["kind"] == "MutatingAdmissionPolicy"
    ]


def version_of(plural: str) -> Json:
    (version,) = named("CustomResourceDefinition", f"{plural}.scheduling.volcano.sh")["spec"]["versions"]
    found: Json = version
    return found


def schema_of(plural: str, part: str) -> Json:
    found: Json = version_of(plural)["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def pod_spec(kind: str = "Deployment") -> Json:
    found: Json = named(kind, "muster")["spec"]["template"]["spec"]
    return found


def containers(kind: str = "Deployment") -> list[Json]:
    return [*pod_spec(kind).get("initContainers", []), *pod_spec(kind)["containers"]]


each_pod = pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])


# ---- every file


@each_of(*FILES)
def test_each_document_says_what_it_is(path: Path) -> None:
    found = documents(path)
    assert found
    assert all(each["apiVersion"] and each["kind"] for each in found)


@each_of(*list(objects()))
def test_objects_carry_the_usual_labels(each: Json) -> None:
    labels = each["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "muster"
    assert labels["app.kubernetes.io/part-of"] == "kube-muster"
    assert "app.kubernetes.io/component" in labels or each["kind"] == "Namespace"


@each_of(*INSTALLS)
def test_no_two_objects_of_an_install_are_the_same(install: str) -> None:
    identities = [
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        for path in sorted(reached(ROOT / "install" / install))
        for document in documents(path)
        if document["kind"] not in PROGRAM_KINDS
    ]
    assert len(identities) == len(set(identities))


def test_each_install_leaves_out_only_the_other() -> None:
    everything = set((ROOT / "manifests").rglob("*.yaml"))
    for install, other in zip(INSTALLS, reversed(INSTALLS), strict=True):
        left_out = everything - reached(ROOT / "install" / install)
        folders = {str(path.parent.relative_to(ROOT / "manifests")) for path in left_out}
        assert folders - {"adoption"} == {other, *COMPONENTS}
        assert ("adoption" in folders) is (install == "default-scheduler"), "its pods need no adoption"


def reached(folder: Path) -> set[Path]:
    """Return the files that kustomize reads for this folder."""
    kustomization = folder / "kustomization.yaml"
    found = {kustomization}
    for each in documents(kustomization)[0].get("resources", []):
        path = (folder / each).resolve()
        found |= reached(path) if path.is_dir() else {path}
    return found


# ---- the scheduler's configuration


@pytest.mark.parametrize("name", CONFIGURATIONS)
class TestSchedulerConfiguration:
    def test_one_server_has_two_entries(self, name: str) -> None:
        chooser, binder = scheduler_configuration(name)["extenders"]
        listen = Configuration().listen
        scheme = "https" if "tlsConfig" in chooser else "http"
        assert chooser["urlPrefix"] == binder["urlPrefix"] == f"{scheme}://{listen.host}:{listen.port}/v1"
        assert chooser["filterVerb"] == "filter"
        assert "bindVerb" not in chooser
        assert {key for key in binder if key.endswith("Verb")} == {"bindVerb"}

    def test_neither_is_ignorable(self, name: str) -> None:
        # A binder that may be ignored lets the scheduler bind members behind the back of their gang.
        assert [each["ignorable"] for each in scheduler_configuration(name)["extenders"]] == [False, False]

    def test_names_are_sent_instead_of_nodes(self, name: str) -> None:
        assert all(each["nodeCacheCapable"] is True for each in scheduler_configuration(name)["extenders"])

    def test_a_held_bind_outlives_its_deadline(self, name: str) -> None:
        chooser, binder = scheduler_configuration(name)["extenders"]
        assert as_seconds(chooser["httpTimeout"]) <= 3
        assert as_seconds(binder["httpTimeout"]) > Configuration().bind_deadline

    def test_a_weight_goes_with_prioritize_only(self, name: str) -> None:
        for each in scheduler_configuration(name)["extenders"]:
            assert ("weight" in each) == ("prioritizeVerb" in each)

    def test_an_abort_does_not_stop_the_scheduler(self, name: str) -> None:
        client = scheduler_configuration(name)["clientConnection"]
        assert min(client["qps"], client["burst"]) >= 1000


@each_of(*WITHOUT_THE_VIEW)
def test_a_planned_node_is_always_offered_and_muster_says_who_is_evicted(name: str) -> None:
    found = scheduler_configuration(name)
    assert all(each["percentageOfNodesToScore"] == 100 for each in found["profiles"])
    assert found["extenders"][0]["preemptVerb"] == "preempt"


def test_with_the_view_only_marked_pods_are_asked_about_and_no_pod_is_evicted() -> None:
    """Nominate the planned node, which is tried first, so sampling does no harm.

    Without a filter call, no preempt call could keep the scheduler from evicting a pod. Its configuration
    therefore disables preemption.
    """
    found = scheduler_configuration("sidecar.yaml")
    asked, binder = found["extenders"]
    assert asked["managedResources"] == [{"name": keys.ASK_MARK, "ignoredByScheduler": True}]
    assert "managedResources" not in binder
    for profile in found["profiles"]:
        assert profile["plugins"]["multiPoint"] == {"disabled": [{"name": "DefaultPreemption"}]}
        assert "percentageOfNodesToScore" not in profile


def test_the_profiles_are_those_that_muster_serves() -> None:
    def profiles(name: str) -> set[str]:
        return {each["schedulerName"] for each in scheduler_configuration(name)["profiles"]}

    assert profiles("sidecar-gates.yaml") == profiles("sidecar.yaml")
    assert profiles("sidecar-gates.yaml") == set(Configuration().scheduler_names) == OUR_NAMES
    assert profiles("default-scheduler.yaml") == OUR_NAMES | {keys.DEFAULT_SCHEDULER}


@each_of(*OF_THE_SIDECAR)
def test_the_second_scheduler_has_its_own_lease(name: str) -> None:
    election = scheduler_configuration(name)["leaderElection"]
    lease = Configuration().lease
    assert election["leaderElect"] is True
    assert (election["resourceNamespace"], election["resourceName"]) == (lease.namespace, lease.name)
    assert lease.name != "kube-scheduler"


def test_each_entry_has_its_own_marker_resource() -> None:
    entries = scheduler_configuration("default-scheduler.yaml")["extenders"]
    resources = [entry["managedResources"] for entry in entries]
    assert resources == [
        [{"name": mark, "ignoredByScheduler": True}] for mark in (keys.PLACE_MARK, keys.BIND_MARK)
    ]
    assert all(
        "managedResources" not in each for each in scheduler_configuration("sidecar-gates.yaml")["extenders"]
    )


# ---- admission


@pytest.mark.parametrize("name", POLICIES)
class TestAdmissionPolicy:
    def test_each_policy_is_bound(self, name: str) -> None:
        found = documents(ROOT / "manifests" / name)
        bound = [each["spec"]["policyName"] for each in found if each["kind"].endswith("Binding")]
        assert sorted(bound) == sorted(policy["metadata"]["name"] for policy in policies(name))

    def test_no_mutation_is_a_json_patch(self, name: str) -> None:
        # One with a list as its value panics the API server.
        for policy in policies(name):
            assert [each["patchType"] for each in policy["spec"]["mutations"]] == ["ApplyConfiguration"]
            assert policy["apiVersion"] == "admissionregistration.k8s.io/v1"

    def test_only_new_pods_outside_the_system_are_changed(self, name: str) -> None:
        for policy in policies(name):
            constraints = policy["spec"]["matchConstraints"]
            (rule,) = constraints["resourceRules"]
            (left_alone,) = constraints["namespaceSelector"]["matchExpressions"]
            assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
            assert left_alone["operator"] == "NotIn"
            assert set(left_alone["values"]) == {"kube-system", "kube-muster"}

    def test_match_conditions_do_not_ask_for_the_namespace(self, name: str) -> None:
        # It is not there: the API server gives the namespace to mutations only.
        for policy in policies(name):
            assert all(
                "namespaceObject" not in each["expression"] for each in policy["spec"]["matchConditions"]
            )

    def test_the_gate_is_ours(self, name: str) -> None:
        for policy in policies(name):
            (mutation,) = policy["spec"]["mutations"]
            assert f"schedulingGates{{name: '{keys.GATE}'}}" in mutation["applyConfiguration"]["expression"]


def test_both_variants_serve_the_same_scheduler_names() -> None:
    for name in POLICIES:
        conditions = {
            policy["name"]: policy["expression"] for policy in policies(name)[0]["spec"]["matchConditions"]
        }
        (written,) = re.findall(r"schedulerName in \[(.*?)\]", conditions["ours"])
        assert set(re.findall(r"'(.*?)'", written)) == OUR_NAMES


def test_only_a_fault_that_would_pass_a_pod_by_its_queue_stops_it() -> None:
    failure = {
        policy["metadata"]["name"]: policy["spec"]["failurePolicy"]
        for name in POLICIES
        for policy in policies(name)
    }
    assert failure == {
        "kube-muster-gate": "Ignore",
        "kube-muster-gate-adopted": "Ignore",
        "kube-muster-mark": "Fail",
        "kube-muster-mark-by-namespace": "Ignore",
    }


def test_marks_are_asked_for_as_extended_resources_must_be() -> None:
    marks = f"{{'{keys.PLACE_MARK}': '1', '{keys.BIND_MARK}': '1'}}"
    for policy in policies("default-scheduler/admission-policy.yaml"):
        (mutation,) = policy["spec"]["mutations"]
        expression = mutation["applyConfiguration"]["expression"]
        assert f"requests: {marks}" in expression
        assert f"limits: {marks}" in expression


def test_every_way_to_name_a_group_or_a_queue_marks_a_pod() -> None:
    by_pod, by_namespace = policies("default-scheduler/admission-policy.yaml")
    (ours,) = [each["expression"] for each in by_pod["spec"]["matchConditions"] if each["name"] == "ours"]
    for way in (
        f"annotations[?'{keys.GROUP_ANNOTATION}']",
        f"labels[?'{keys.GROUP_LABEL}']",
        "schedulingGroup.?podGroupName",
        f"annotations[?'{keys.QUEUE}']",
        f"labels[?'{keys.QUEUE}']",
        f"labels[?'{keys.LOCAL_QUEUE}']",
    ):
        assert way in ours
    (mutation,) = by_namespace["spec"]["mutations"]
    expression = mutation["applyConfiguration"]["expression"]
    assert f"namespaceObject.metadata.?annotations[?'{keys.QUEUE}']" in expression


# ---- rights


ROLES = of_kind("Role", "ClusterRole")


@each_of(*ROLES)
def test_no_role_is_wider_than_it_says(role: Json) -> None:
    for rule in role["rules"]:
        assert all("*" not in value for values in rule.values() for value in values)
        assert "secrets" not in rule["resources"] or rule["verbs"] == ["create"] or rule["resourceNames"]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


OWNERS = {row.plural for row in WORKLOADS.values()} | {"daemonsets"}


def test_muster_may_do_what_it_does_and_no_more() -> None:
    granted = {
        (resource, verb)
        for rule in named("ClusterRole", "kube-muster")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {"pods", "nodes", "namespaces", "priorityclasses", "queues", "podgroups", "poddisruptionbudgets"}
    read |= {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}
    assert granted == {(resource, verb) for resource in read for verb in ("list", "watch")} | {
        ("pods", "get"),
        ("pods", "patch"),
        ("pods/status", "patch"),
        ("leases", "get"),
        ("events", "create"),
        ("events", "patch"),
        ("pods/binding", "create"),
        ("pods/eviction", "create"),
        ("podgroups", "create"),
        ("podgroups", "delete"),
        ("podgroups", "patch"),
        ("podgroups/status", "patch"),
        ("compositepodgroups", "list"),
        ("compositepodgroups", "watch"),
        ("compositepodgroups", "patch"),
        ("compositepodgroups/status", "patch"),
        ("queues", "create"),
        ("queues", "get"),
        ("queues", "patch"),
        ("queues/status", "patch"),
        ("localqueues", "list"),
        ("localqueues", "watch"),
        ("resourceflavors", "list"),
        ("resourceflavors", "watch"),
        ("hypernodes", "list"),
        ("hypernodes", "watch"),
        ("topologies", "list"),
        ("topologies", "watch"),
        ("localqueues/status", "patch"),
        ("commands", "list"),
        ("commands", "watch"),
        ("commands", "delete"),
    } | {(owner, verb) for owner in OWNERS for verb in ("list", "watch")}


def test_the_dashboard_may_ask_about_others_and_no_more() -> None:
    granted = {
        (*rule["apiGroups"], resource, *rule["verbs"])
        for rule in named("ClusterRole", "kube-muster-dashboard")["rules"]
        for resource in rule["resources"]
    }
    assert granted == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


def test_tenants_change_no_queues_and_create_no_commands() -> None:
    """Check the additions to the roles edit and view.

    LocalQueues, and queues in all namespaces, are for admin.
    """
    for role in ROLES:
        flagged = {name.rpartition("-")[2] for name in role["metadata"]["labels"] if "/aggregate-to-" in name}
        if flagged:
            for rule in role["rules"]:
                changes = not {*rule["verbs"]} <= {"get", "list", "watch"}
                assert "commands" not in rule["resources"]
                owned = (["podgroups"], ["cronjobs", "jobs"])
                assert flagged == {"admin"} or not changes or rule["resources"] in owned


def test_leases_are_read_by_name() -> None:
    for role in ROLES:
        for rule in role["rules"]:
            if "leases" in rule["resources"]:
                assert rule["resourceNames"]
                assert "kube-scheduler" not in rule["resourceNames"] or "update" not in rule["verbs"]


def test_every_binding_is_for_the_one_service_account() -> None:
    (account,) = of_kind("ServiceAccount")
    subject = {
        "kind": "ServiceAccount",
        "name": account["metadata"]["name"],
        "namespace": account["metadata"]["namespace"],
    }
    for binding in of_kind("RoleBinding", "ClusterRoleBinding"):
        assert binding["subjects"] == [subject]
    assert pod_spec()["serviceAccountName"] == pod_spec("DaemonSet")["serviceAccountName"] == subject["name"]


# ---- custom resources


@each_of(("queues", "Cluster", "q"), ("podgroups", "Namespaced", "pg"))
def test_names_are_those_that_operators_write(plural: str, scope: str, short: str) -> None:
    spec = named("CustomResourceDefinition", f"{plural}.scheduling.volcano.sh")["spec"]
    assert (spec["group"], version_of(plural)["name"]) == ("scheduling.volcano.sh", "v1beta1")
    assert spec["scope"] == scope
    assert short in spec["names"]["shortNames"]


def test_only_a_queue_has_a_status_subresource() -> None:
    # Clients write a PodGroup's status with the object; a subresource would drop it.
    assert version_of("queues")["subresources"] == {"status": {}}
    assert "subresources" not in version_of("podgroups")


def test_a_closed_queue_is_not_reopened_by_a_default() -> None:
    state = schema_of("queues", "spec")["properties"]["state"]
    assert state["enum"] == ["Open", "Closed"]
    assert "default" not in state


def test_a_default_does_not_hide_the_queue_of_the_namespace() -> None:
    assert "default" not in schema_of("podgroups", "spec")["properties"]["queue"]


def differences(schema: Json, type_: inspect.Type, path: str = "") -> Iterator[str]:
    """Yield the fields that only a schema or only a struct has, at any depth."""
    match type_:
        case inspect.UnionType(types):
            for each in types:
                yield from differences(schema, each, path)
        case inspect.ListType(item):
            yield from differences(schema["items"], item, path)
        case inspect.StructType():
            properties = schema.get("properties", {})
            known = {field.encode_name: field.type for field in type_.fields}
            yield from (f"{path}{name}" for name in known.keys() ^ properties.keys())
            for name in known.keys() & properties.keys():
                yield from differences(properties[name], known[name], f"{path}{name}.")


def test_a_queue_has_every_field_of_its_api() -> None:
    spec, status = (schema_of("queues", part) for part in ("spec", "status"))
    assert {*differences(spec, inspect.type_info(QueueSpec))} == {"type", "affinity", "extendClusters"}
    assert {*differences(status, inspect.type_info(QueueStatus))} == {"conditions.observedGeneration"}
    spec, status = spec["properties"], status["properties"]
    assert (spec["weight"]["minimum"], spec["weight"]["maximum"], spec["weight"]["default"]) == (1, 65535, 1)
    assert spec["dequeueStrategy"]["enum"] == ["fifo", "traverse", "fair", "priority", "rotation", "mixed"]
    assert spec["dequeueStrategy"]["default"] == "traverse"
    assert set(status["state"]["enum"]) == {"", "Open", "Closed", "Closing", "Unknown"}


def test_a_group_has_every_field_of_its_api() -> None:
    spec, status = (schema_of("podgroups", part)["properties"] for part in ("spec", "status"))
    assert set(spec) == {
        "minMember", "minTaskMember", "queue", "priorityClassName", "minResources", "networkTopology",
        "subGroupPolicy",
    }  # fmt: skip
    assert set(status) == {
        "phase", "conditions", "running", "succeeded", "failed", "waiting",
    }  # fmt: skip
    waiting = status["waiting"]["properties"]
    assert set(waiting) == set(WaitingStatus.__struct_encode_fields__)
    assert set(waiting["estimate"]["properties"]) == set(Estimate.__struct_encode_fields__)
    assert spec["minMember"]["minimum"] == 0
    assert status["phase"]["enum"] == ["Pending", "Inqueue", "Running", "Unknown", "Completed"]


@each_of(("queues", "capability"), ("podgroups", "minResources"))
def test_amounts_are_quantities_that_are_not_negative(plural: str, field: str) -> None:
    amount = schema_of(plural, "spec")["properties"][field]["additionalProperties"]
    assert amount["x-kubernetes-int-or-string"] is True
    assert amount["minimum"] == 0
    pattern = re.compile(amount["pattern"])
    for good in [
        "0",
        "1",
        "+1",
        "1.5",
        ".5",
        "5.",
        "500m",
        "16Gi",
        "1e3",
        "1E-3",
        "2k",
        "7u",
        "7n",
        "1E",
        "1Ei",
    ]:
        assert pattern.search(good), good
    for bad in ("", "-1", "-500m", "abc", "1K", "1GB", "1 Gi", "1ki", "0x10", "1e", "1e1.5", ".", "1_000"):
        assert not pattern.search(bad), bad


def test_only_a_few_columns_are_printed_by_default() -> None:
    for plural in ("queues", "podgroups"):
        columns = version_of(plural)["additionalPrinterColumns"]
        assert len([column for column in columns if not column.get("priority")]) <= 6


# ---- the pod


def test_images_have_a_version() -> None:
    images = {each["name"]: each["image"] for each in [*containers(), *containers("DaemonSet")]}
    assert images["muster"] == f"kube-muster:{__version__}"
    assert re.fullmatch(r"registry\.k8s\.io/kube-scheduler:v1\.\d+\.\d+", images["kube-scheduler"])


@each_pod
def test_containers_are_as_restricted_as_can_be(kind: str) -> None:
    security = pod_spec(kind)["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(kind):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_the_hosts_network_asks_for_a_less_restricted_namespace() -> None:
    labels = named("Namespace", "kube-muster")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert "hostNetwork" not in pod_spec()
    (patch,) = documents(ROOT / "install" / "default-scheduler" / "kustomization.yaml")[0]["patches"]
    assert yaml.safe_load(patch["patch"])["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "privileged"
    }
    assert pod_spec("DaemonSet")["hostNetwork"] is True


@each_pod
def test_probes_ask_the_port_that_is_listened_on(kind: str) -> None:
    for container in containers(kind):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
    muster = containers(kind)[0]
    assert {"name": "health", "containerPort": Configuration().health_listen.port} in muster["ports"]


@each_pod
def test_all_containers_have_requests_and_memory_limits(kind: str) -> None:
    assert all({"cpu", "memory"} <= set(container["resources"]["requests"]) for container in containers(kind))
    assert all("memory" in container["resources"]["limits"] for container in containers(kind))


def test_pods_have_a_priority() -> None:
    assert named("PriorityClass", pod_spec()["priorityClassName"])["value"] > 0
    assert pod_spec("DaemonSet")["priorityClassName"].startswith("system-")


def test_what_selects_the_replicas_finds_them() -> None:
    labels = named("Deployment", "muster")["spec"]["template"]["metadata"]["labels"]
    spread = [each["labelSelector"] for each in pod_spec()["topologySpreadConstraints"]]
    budget = named("PodDisruptionBudget", "muster")["spec"]["selector"]
    policy = named("NetworkPolicy", "muster")["spec"]["podSelector"]
    for selector in (*spread, budget, policy):
        assert selector["matchLabels"]
        assert selector["matchLabels"].items() <= labels.items()


def test_neither_verbs_nor_debug_pages_are_reached_over_the_network() -> None:
    rules = named("NetworkPolicy", "muster")["spec"]["ingress"]
    let_in = {port["port"] for rule in rules for port in rule["ports"]}
    settings = Configuration()
    assert settings.health_listen.port in let_in
    assert not {settings.listen.port, settings.debug_listen.port} & let_in
    given = [*containers()[0]["args"], *containers("DaemonSet")[0]["args"]]
    assert not any(each.startswith("--debug-listen") for each in given)
    assert [each for each in given if each.startswith("--listen")] == [f"--listen={settings.listen}"]


def test_metrics_are_for_the_namespace_of_prometheus_alone() -> None:
    """A flood from any other pod of the cluster ends at the policy."""
    settings = Configuration()
    rules = named("NetworkPolicy", "muster")["spec"]["ingress"]
    (rule,) = [
        rule for rule in rules if {"protocol": "TCP", "port": settings.health_listen.port} in rule["ports"]
    ]
    (peer,) = rule["from"]
    assert peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    (webhooks,) = [each for each in rules if each is not rule]
    assert [webhook["port"] for webhook in webhooks["ports"]] == [settings.webhook_listen.port]


LEASES = {"Deployment": "kube-system/muster-scheduler", "DaemonSet": "kube-system/kube-scheduler"}
NAMES = {"Deployment": "sidecar.yaml", "DaemonSet": "default-scheduler.yaml"}


@each_pod
def test_muster_has_flags_for_the_scheduler_next_to_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    muster = containers(kind)[0]
    command, *flags = muster["args"]
    for each in muster.get("env", []):
        monkeypatch.setenv(each["name"], each["value"])
    assert command == serve.name
    with serve.make_context(command, flags) as context:
        configuration = read_configuration(context.params.pop("config"), context.params)
    assert str(configuration.lease) == LEASES[kind]
    profiles = scheduler_configuration(NAMES[kind])["profiles"]
    assert list(configuration.scheduler_names) == [profile["schedulerName"] for profile in profiles]


def test_muster_is_up_before_the_scheduler_calls_it() -> None:
    (muster,) = pod_spec()["initContainers"]
    assert muster["restartPolicy"] == "Always"
    assert muster["startupProbe"]["httpGet"]["path"] == "/livez"


def test_the_scheduler_reads_the_configuration_that_is_shipped() -> None:
    (generator,) = documents(ROOT / "scheduler-config" / "kustomization.yaml")[0]["configMapGenerator"]
    (volume,) = [each["configMap"]["name"] for each in pod_spec()["volumes"] if "configMap" in each]
    (scheduler,) = pod_spec()["containers"]
    (mount,) = [each for each in scheduler["volumeMounts"] if each["name"] == "config"]
    assert (generator["name"], generator["files"]) == (volume, OF_THE_SIDECAR)
    assert f"--config={mount['mountPath']}/sidecar.yaml" in scheduler["command"]


def test_the_scheduler_reads_what_muster_writes_on_loopback() -> None:
    """A memory volume that both containers have, and only Muster writes to."""
    muster, scheduler = containers()
    settings = {each["name"]: each["value"] for each in muster["env"]}
    folder = settings["MUSTER_VIEW_FOLDER"]
    assert settings["MUSTER_VIEW_LISTEN"].startswith("127.0.0.1:")
    (written,) = [each for each in muster["volumeMounts"] if each["mountPath"] == folder]
    assert written == {"name": "view", "mountPath": folder}
    assert {**written, "readOnly": True} in scheduler["volumeMounts"]
    (volume,) = [each for each in pod_spec()["volumes"] if each["name"] == "view"]
    assert volume["emptyDir"]["medium"] == "Memory"
    client = scheduler_configuration("sidecar.yaml")["clientConnection"]
    assert client["kubeconfig"] == f"{folder}/kubeconfig"


def test_no_pod_is_changed_at_its_creation_unless_its_namespace_is_adopted() -> None:
    for path in reached(ROOT / "install" / "sidecar"):
        for document in documents(path):
            if document["kind"] == "MutatingAdmissionPolicy":
                selector = document["spec"]["matchConstraints"]["namespaceSelector"]
                assert selector["matchLabels"] == {MANAGED: "true"}
    assert not any(
        "pods" in rule["resources"]
        for document in documents(ROOT / "manifests" / "webhooks" / "mutating.yaml")
        for webhook in document["webhooks"]
        if webhook["clientConfig"]["service"]["path"] != "/use/mutate"  # notes rights and authors
        for rule in webhook["rules"]
    )


def test_with_gates_nothing_is_left_of_the_view() -> None:
    """The scheduler reads the other file, and all that the Deployment has for the proxy is taken out."""
    (component,) = documents(ROOT / "manifests" / "gates" / "kustomization.yaml")
    (patch,) = [yaml.safe_load(each["patch"]) for each in component["patches"]]
    changed = patch["spec"]["template"]["spec"]
    (muster,), (scheduler,) = changed["initContainers"], changed["containers"]
    assert Path(scheduler["command"][1]).name == "sidecar-gates.yaml"
    settings = {container["name"]: container["value"] for container in containers()[0]["env"]}
    folder = settings["MUSTER_VIEW_FOLDER"]
    gone = {"$patch": "delete"}
    assert muster["env"] == [{"name": name, **gone} for name in settings if name.startswith("MUSTER_VIEW_")]
    assert muster["volumeMounts"] == scheduler["volumeMounts"] == [{"mountPath": folder, **gone}]
    assert changed["volumes"] == [{"name": "view", **gone}]


def test_the_view_is_not_reached_over_the_network() -> None:
    rules = named("NetworkPolicy", "muster")["spec"]["ingress"]
    assert 8284 not in {port["port"] for rule in rules for port in rule["ports"]}
    (scheduler,) = pod_spec()["containers"]
    assert "hostNetwork" not in pod_spec()
    assert {port["containerPort"] for port in [*scheduler["ports"], *containers()[0]["ports"]]} == {
        10259,
        8282,
        8443,
    }


def test_in_the_hosts_network_scheduler_and_muster_show_each_other_certificates() -> None:
    """Check the certificates there; in their own pod, no other process is on their loopback."""
    for each in scheduler_configuration("default-scheduler.yaml")["extenders"]:
        assert each["enableHTTPS"] is True
        assert {*each["tlsConfig"]} == {"caFile", "certFile", "keyFile"}
        assert not each["tlsConfig"].get("insecure")
    assert all("tlsConfig" not in each for each in scheduler_configuration("sidecar-gates.yaml")["extenders"])
    (muster,) = containers("DaemonSet")
    (folder,) = [each["value"] for each in muster["env"] if each["name"] == "MUSTER_TLS_FOLDER"]
    (mounted,) = [each["name"] for each in muster["volumeMounts"] if each["mountPath"] == folder]
    assert {"name": mounted, "secret": {"secretName": "muster-tls", "defaultMode": 0o440}} in pod_spec(
        "DaemonSet"
    )["volumes"]


# ---- the image


def test_the_image_runs_as_an_unprivileged_user() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert f"USER {pod_spec()['securityContext']['runAsUser']}:65532" in lines
    assert lines[-2:] == ['ENTRYPOINT ["muster"]', 'CMD ["serve"]']
    assert not any("latest" in line for line in lines)


def test_what_the_image_copies_is_let_through() -> None:
    copied = [
        word
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in let_through
    assert {f"!{each}" for each in copied} <= set(let_through)
