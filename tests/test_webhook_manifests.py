"""The webhooks and policies that are shipped fit the code, and refuse no harmless request."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from extender.api.configuration import Configuration
from extender.api.keys import GROUP_ANNOTATION, GROUP_LABEL, LOCAL_QUEUE, QUEUE
from extender.api.workloads.table import WORKLOADS
from extender.shipped import read
from extender.webhooks.certificate_rotation import CONFIGURATION_NAME, CONFIGURATIONS
from extender.webhooks.lookups import REVIEW_TIMEOUT
from tests.rows import each_of
from tests.webhooks.bench import Bench

MANIFESTS = Path(__file__).parents[1] / "manifests"
FILES = ("webhooks/validating.yaml", "webhooks/mutating.yaml", "older-kubernetes/pod-webhook.yaml")
OUR_KINDS = {"queues", "podgroups", "localqueues", "resourceflavors"}
Json = dict[str, Any]
AUTHOR_PATHS = ("/use/mutate", "/authors/mutate")


def documents(file: str) -> list[Json]:
    return read([MANIFESTS / file])


WEBHOOKS = [webhook for file in FILES for document in documents(file) for webhook in document["webhooks"]]
each_webhook = pytest.mark.parametrize(
    "webhook", WEBHOOKS, ids=lambda each: each["clientConfig"]["service"]["path"]
)


@each_webhook
def test_only_our_own_kinds_wait_for_muster(webhook: Json) -> None:
    (rule,) = webhook["rules"]
    ours = (
        rule["apiGroups"] in (["scheduling.volcano.sh"], ["kube-muster.io"])
        and set(rule["resources"]) <= OUR_KINDS
    )
    assert webhook["failurePolicy"] == ("Fail" if ours else "Ignore")
    assert REVIEW_TIMEOUT < webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"


@each_webhook
def test_the_system_does_not_wait_for_muster(webhook: Json) -> None:
    (rule,) = webhook["rules"]
    if rule["resources"] not in (["queues"], ["resourceflavors"]):  # they have no namespace
        (left_out,) = webhook["namespaceSelector"]["matchExpressions"]
        assert left_out["operator"] == "NotIn"
        assert set(left_out["values"]) == {"kube-system", "kube-muster"}


def test_every_path_is_called_and_every_call_has_a_path() -> None:
    called = {each["clientConfig"]["service"]["path"] for each in WEBHOOKS}
    assert called == Bench().reviewer.paths.keys()


@each_of("/jobs/validate", "/jobs/mutate", "/pods/validate", "/pods/mutate")
def test_every_way_to_name_a_group_or_a_queue_is_sent(path: str) -> None:
    for webhook in WEBHOOKS:
        if webhook["clientConfig"]["service"]["path"] != path or webhook["name"].startswith("adoption."):
            continue
        ours = webhook["matchConditions"][0]["expression"]
        names = Configuration().scheduler_names
        assert all(f"'{name}'" in ours for name in names)
        if webhook["rules"][0]["apiGroups"] != ["batch.volcano.sh"]:
            for key in (GROUP_ANNOTATION, GROUP_LABEL, QUEUE, LOCAL_QUEUE, "schedulingGroup"):
                assert key in ours


def kinds_sent(webhooks: Iterable[Json]) -> set[tuple[str, str]]:
    """Return the API group and the plural of each kind of which these webhooks are asked."""
    rules = (rule for webhook in webhooks for rule in webhook["rules"])
    return {kind for rule in rules for kind in product(rule["apiGroups"], rule["resources"])}


def test_every_kind_of_job_that_names_a_queue_is_sent_for_its_annotation() -> None:
    recorded = [each for each in WEBHOOKS if each["clientConfig"]["service"]["path"] == "/use/mutate"]
    jobs = {(row.group, row.plural) for row in WORKLOADS.values() if row.manageable}
    groups = {
        (name, "podgroups") for name in ("scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io")
    }
    assert jobs | groups | {("", "pods"), ("batch.volcano.sh", "cronjobs")} <= kinds_sent(recorded)
    assert all(each["rules"][0]["operations"] == ["CREATE", "UPDATE"] for each in recorded)


def test_what_makes_pods_is_sent_for_its_author_whatever_kind_it_is() -> None:
    recorded = [each for each in WEBHOOKS if each["clientConfig"]["service"]["path"] in AUTHOR_PATHS]
    kinds = {(row.group, row.plural) for row in WORKLOADS.values()}
    assert kinds | {("apps", "daemonsets"), ("batch.volcano.sh", "cronjobs")} <= kinds_sent(recorded)


def test_what_makes_pods_is_sent_for_its_warnings_whatever_kind_it_is() -> None:
    (sent,) = (each for each in WEBHOOKS if each["clientConfig"]["service"]["path"] == "/workloads/validate")
    (rule,) = sent["rules"]
    apart = {("batch", "jobs"), ("batch.volcano.sh", "jobs"), ("", "replicationcontrollers")}
    kinds = {(row.group, row.plural) for row in WORKLOADS.values()} - apart
    assert {group for group, _ in kinds} == set(rule["apiGroups"])
    assert {plural for _, plural in kinds} == set(rule["resources"])


def test_the_service_leads_to_the_port_and_has_the_name_of_the_certificate() -> None:
    (service,) = documents("webhooks/service.yaml")
    meta, (port,) = service["metadata"], service["spec"]["ports"]
    assert port["targetPort"] == Configuration().webhook_listen.port
    assert Configuration().webhook_names == (f"{meta['name']}.{meta['namespace']}.svc",)
    for webhook in WEBHOOKS:
        called = webhook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (meta["name"], meta["namespace"])


def test_one_secret_and_three_configurations_are_written_by_name() -> None:
    rules = [rule for document in documents("webhooks/rbac.yaml") for rule in document.get("rules", ())]
    named = {
        (resource, name): rule["verbs"]
        for rule in rules
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    secret = Configuration().webhook_secret
    written = {(resource.plural, name) for resource, name in CONFIGURATIONS} | {("secrets", secret.name)}
    assert named == {each: ["get", "patch"] for each in written}
    (certificate,) = [document for document in documents("webhooks/rbac.yaml") if document["kind"] == "Role"]
    assert certificate["metadata"]["namespace"] == secret.namespace
    assert {document["metadata"]["name"] for file in FILES for document in documents(file)} == {
        CONFIGURATION_NAME,
        f"{CONFIGURATION_NAME}-pods",
    }


def test_policies_are_bound_and_refuse() -> None:
    found = documents("validation-policy.yaml")
    bound = {each["spec"]["policyName"]: each["spec"] for each in found if each["kind"].endswith("Binding")}
    policies = {
        each["metadata"]["name"]: each["spec"] for each in found if not each["kind"].endswith("Binding")
    }
    assert bound.keys() == policies.keys()
    assert all(each["validationActions"] == ["Deny"] for each in bound.values())
    assert all(policy["failurePolicy"] == "Fail" for policy in policies.values())
