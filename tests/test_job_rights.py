"""The rights to let jobs wait suspended are granted by component, and only for kinds of the table."""

import json

import yaml

from extender.api.workloads.table import WORKLOADS
from tests.cli.installation import documents
from tests.rows import each_of
from tools import chart, release
from tools.chart_changes import FURTHER_JOBS, JOB_KINDS

FOLDER = chart.MANIFESTS / "jobs"
WAITING = [row for row in WORKLOADS.values() if row.manageable]
SUSPENDED = [row for row in WAITING if not row.commanded]  # Volcano Jobs have their own component
RUNTIMES = {
    (kind.group, kind.plural) for row in WORKLOADS.values() if row.runtime for kind in row.runtime.kinds
}


def test_each_component_has_its_name_in_the_chart() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == {*JOB_KINDS}
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    assert schema["properties"]["jobs"]["properties"]["kinds"]["items"]["enum"] == [*JOB_KINDS]


@each_of(*JOB_KINDS)
def test_a_component_grants_the_manageable_kinds_of_one_group(name: str) -> None:
    role, binding = documents(FOLDER / name / "rbac.yaml")
    rule, *others, events = role["rules"]
    assert (events["resources"], events["verbs"]) == (["events"], ["list"])
    (group,) = rule["apiGroups"]
    wanted = {row.plural for row in SUSPENDED if row.group == group}
    assert rule["resources"] == sorted(wanted)
    assert rule["verbs"] == ["get", "list", "watch", "patch"]
    runtimes = [each for each in RUNTIMES if each[0] == group]
    assert [({*other["resources"]}, other["verbs"]) for other in others] == (
        [({plural for _, plural in runtimes}, ["list", "watch"])] if runtimes else []
    )
    assert role["metadata"]["name"] == binding["roleRef"]["name"] == f"kube-muster-jobs-{name}"


def test_each_manageable_kind_has_its_component() -> None:
    granted = {
        (group, plural)
        for path in FOLDER.glob("*/rbac.yaml")
        for rule in documents(path)[0]["rules"]
        for group in filter(None, rule["apiGroups"])
        for plural in rule["resources"]
    }
    assert granted == {(row.group, row.plural) for row in SUSPENDED} | RUNTIMES


def test_a_policy_says_what_is_changed_of_each_manageable_kind() -> None:
    found = documents(chart.MANIFESTS / "account.yaml")
    jobs = [each["spec"] for each in found if each["metadata"]["name"] == "kube-muster-account-jobs"]
    (rule,) = jobs[0]["matchConstraints"]["resourceRules"]
    assert rule["apiGroups"] == sorted({row.group for row in WAITING})
    assert rule["resources"] == sorted({row.plural for row in WAITING})


def test_each_kind_that_says_how_many_pods_start_together_may_be_read() -> None:
    (role,) = (
        each
        for each in documents(chart.MANIFESTS / "rbac.yaml")
        if each["metadata"]["name"] == "kube-muster" and each["kind"] == "ClusterRole"
    )
    read = {
        (group, plural)
        for rule in role["rules"]
        if {"list", "watch"} <= {*rule["verbs"]}
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert {(row.group, row.plural) for row in WORKLOADS.values() if row.makes_groups} <= read


def test_each_install_may_change_jobs_of_kubernetes_and_the_rest_is_granted_apart() -> None:
    base = yaml.safe_load((chart.MANIFESTS / "kustomization.yaml").read_text())["resources"]
    assert [each for each in base if each.startswith("jobs")] == ["jobs/batch/rbac.yaml"]
    assert yaml.safe_load((chart.CHART / "values.yaml").read_text())["jobs"] == {"kinds": ["batch"]}
    every = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["components"]
    components = sorted(path.parent.name for path in FOLDER.glob("*/kustomization.yaml"))
    assert every == [*FURTHER_JOBS] == components


def test_the_release_has_a_file_for_each_api_group_and_one_for_all() -> None:
    """Compare the content of the files with their components."""
    wanted = {f"muster-jobs-{name}.yaml": documents(FOLDER / name / "rbac.yaml") for name in FURTHER_JOBS}
    wanted["muster-jobs-all.yaml"] = [document for each in wanted.values() for document in each]
    found = {name: list(yaml.safe_load_all(release.rights(each))) for name, each in release.JOBS.items()}
    assert found == wanted


def test_the_role_that_all_installs_share_changes_no_job() -> None:
    """Keep job rights apart, so that --manage-jobs=off can be backed by taking one binding away."""
    (role,) = (
        document
        for document in documents(chart.MANIFESTS / "rbac.yaml")
        if (document["kind"], document["metadata"]["name"]) == ("ClusterRole", "kube-muster")
    )
    groups = {row.group for row in WAITING}
    for rule in role["rules"]:
        if groups & {*rule["apiGroups"]}:
            assert {*rule["verbs"]} <= {"list", "watch"}
