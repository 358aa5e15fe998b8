"""ResourceQuotas in the embedded cluster: what pods count for, and which come later."""

from random import Random
from typing import Any

import pytest

from extender.api.objects.pods import Pod
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import EVENTS, JOBS, KIND_BY_NAME, PODS, RESOURCE_QUOTAS, Json
from extender.apimachinery.objects import typed
from extender.apimachinery.quotas import refusal, usage
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.sim.controllers.workloads import WorkloadControllers
from tests.e2e.harness.jobs import job
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of
from tests.sim.kubectl import Kubectl
from tests.sim.requests import pod


def pod_requesting(
    requests: Json | None = None, limits: Json | None = None, name: str = "a", **spec: Any
) -> Json:
    new_pod = pod(name)
    (container,) = new_pod["spec"]["containers"]
    container["resources"] = {"requests": requests or {}, "limits": limits or {}}
    return {**new_pod, "spec": {**new_pod["spec"], **spec}}


def quota(name: str = "q", hard: Json | None = None, **spec: Any) -> Json:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **spec}}


OBJECT = {"count/pods": 1, "pods": 1}


@each_of(
    (pod_requesting(), OBJECT),
    (pod_requesting({"cpu": "500m"}), {**OBJECT, "cpu": "500m", "requests.cpu": "500m"}),
    (pod_requesting({"cpu": "1.5"}), {**OBJECT, "cpu": "1500m", "requests.cpu": "1500m"}),
    (pod_requesting({"memory": "1536Mi"}), {**OBJECT, "memory": "1536Mi", "requests.memory": "1536Mi"}),
    (pod_requesting({"memory": "2000M"}), {**OBJECT, "memory": "2G", "requests.memory": "2G"}),
    (pod_requesting({"memory": "2048Mi"}), {**OBJECT, "memory": "2Gi", "requests.memory": "2Gi"}),
    (pod_requesting(limits={"cpu": "2"}), {**OBJECT, "limits.cpu": "2"}),
    (pod_requesting({"example.com/gpu": "2"}), {**OBJECT, "requests.example.com/gpu": "2"}),
    (pod_requesting(limits={"example.com/gpu": "2"}), OBJECT),
    (
        pod_requesting({"hugepages-2Mi": "4Mi"}),
        {**OBJECT, "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"},
    ),
    (pod_requesting({"cpu": "1"}) | {"status": {"phase": "Succeeded"}}, {"count/pods": 1}),
    (pod_requesting({"cpu": "1"}) | {"status": {"phase": "Failed"}}, {"count/pods": 1}),
    (
        pod_requesting({"cpu": "1"}, initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}]),
        {**OBJECT, "cpu": "3", "requests.cpu": "3"},
    ),
)
def test_a_pod_uses_its_amounts_of_a_quota(given: Json, expected: Json) -> None:
    assert usage(typed(given, Pod)) == expected


ONE = pod_requesting({"cpu": "1", "memory": "1Gi"})
CALM = pod_requesting({"cpu": "1"}, activeDeadlineSeconds=60)
POD_OF_CLASS = pod_requesting({"cpu": "1"}, priorityClassName="high")


def by_class(operator: str, *values: str) -> Json:
    scope = {"scopeName": "PriorityClass", "operator": operator, **({"values": [*values]} if values else {})}
    return {"scopeSelector": {"matchExpressions": [scope]}}


@pytest.mark.parametrize(
    ("hard", "spec", "given", "expected"),
    [
        ({"cpu": "1"}, {}, ONE, ""),
        ({"cpu": "500m"}, {}, ONE, "exceeded quota: q, requested: cpu=1, used: cpu=0, limited: cpu=500m"),
        (
            {"pods": "0", "requests.cpu": "0", "memory": "4Gi"},
            {},
            ONE,
            "exceeded quota: q, requested: pods=1,requests.cpu=1, used: pods=0,requests.cpu=0, "
            "limited: pods=0,requests.cpu=0",
        ),
        ({"memory": "1023Mi"}, {}, ONE, "requested: memory=1Gi, used: memory=0, limited: memory=1023Mi"),
        ({"limits.cpu": "1"}, {}, ONE, "failed quota: q: must specify limits.cpu for: main"),
        (
            {"requests.memory": "1", "cpu": "1"},
            {},
            pod_requesting(),
            "failed quota: q: must specify cpu for: main; requests.memory for: main",
        ),
        ({"example.com/gpu": "0"}, {}, pod_requesting({"example.com/gpu": "1"}), ""),
        (
            {"requests.example.com/gpu": "0"},
            {},
            pod_requesting({"example.com/gpu": "1"}),
            "exceeded quota: q",
        ),
        ({"requests.example.com/gpu": "0"}, {}, pod_requesting(), ""),
        ({"ephemeral-storage": "1"}, {}, pod_requesting(), ""),
        ({"count/jobs.batch": "0", "configmaps": "0"}, {}, ONE, ""),
        ({"pods": "0"}, {"scopes": ["Terminating"]}, ONE, ""),
        ({"pods": "0"}, {"scopes": ["Terminating"]}, CALM, "exceeded quota"),
        ({"pods": "0"}, {"scopes": ["NotTerminating"]}, CALM, ""),
        ({"pods": "0"}, {"scopes": ["NotTerminating"]}, ONE, "exceeded quota"),
        ({"pods": "0"}, {"scopes": ["BestEffort"]}, ONE, ""),
        ({"pods": "0"}, {"scopes": ["BestEffort"]}, pod_requesting(), "exceeded quota"),
        ({"pods": "0"}, {"scopes": ["NotBestEffort"]}, pod_requesting(), ""),
        ({"pods": "0"}, {"scopes": ["NotBestEffort"]}, pod_requesting(limits={"cpu": "1"}), "exceeded quota"),
        ({"pods": "0"}, {"scopes": ["CrossNamespacePodAffinity"]}, ONE, ""),
        ({"pods": "0"}, by_class("In", "high"), ONE, ""),
        ({"pods": "0"}, by_class("In", "high"), POD_OF_CLASS, "exceeded quota"),
        ({"pods": "0"}, by_class("NotIn", "high"), POD_OF_CLASS, ""),
        ({"pods": "0"}, by_class("NotIn", "high"), ONE, "exceeded quota"),
        ({"pods": "0"}, by_class("Exists"), ONE, ""),
        ({"pods": "0"}, by_class("Exists"), POD_OF_CLASS, "exceeded quota"),
        ({"pods": "0"}, by_class("DoesNotExist"), POD_OF_CLASS, ""),
    ],
)
def test_which_pods_a_quota_refuses_and_in_which_words(
    service: Service, hard: Json, spec: Json, given: Json, expected: str
) -> None:
    made = service.create(RESOURCE_QUOTAS, "", quota(hard=hard, **spec))
    why = refusal([made], typed(given, Pod))
    assert bool(why) is bool(expected)
    assert expected in why


def test_pods_beyond_a_quota_are_refused_and_the_others_counted(service: Service) -> None:
    service.create(PODS, "", pod_requesting({"cpu": "500m", "memory": "1Gi"}, name="before"))
    hard = {"requests.cpu": "1", "memory": "4Gi", "pods": "5", "secrets": "2"}
    service.create(RESOURCE_QUOTAS, "", quota(hard=hard))
    assert status(service) == {
        "hard": hard,
        "used": {"requests.cpu": "500m", "memory": "1Gi", "pods": "1"},
    }
    service.create(PODS, "", pod_requesting({"cpu": "500m", "memory": "512Mi"}))
    used = {"requests.cpu": "1", "memory": "1536Mi", "pods": "2"}
    assert status(service)["used"] == used
    with pytest.raises(StatusError) as refused:
        service.create(PODS, "", pod_requesting({"cpu": "100m", "memory": "512Mi"}, name="b"))
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert str(refused.value) == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=100m, used: requests.cpu=1, '
        "limited: requests.cpu=1"
    )
    assert status(service)["used"] == used
    assert service.store.get(PODS, "default", "b") is None
    elsewhere = Service(Store(), Random(0))
    assert elsewhere.create(PODS, "", pod_requesting())


def status(service: Service) -> Any:
    return service.get(RESOURCE_QUOTAS, "default", "q")["status"]


@pytest.mark.parametrize(
    ("hard", "word"),
    [({"cpus": "1"}, "must be a standard resource for quota"), ({"pods": "-1"}, "greater than or equal")],
)
def test_a_quota_of_uncounted_objects_is_refused(service: Service, hard: Json, word: str) -> None:
    with pytest.raises(StatusError, match=word):
        service.create(RESOURCE_QUOTAS, "", quota(hard=hard))


# ---- controllers


def submit(service: Service, name: str, pods: int) -> None:
    service.create(JOBS, "", job(name, namespace="default", parallelism=pods, completions=pods, cpu="1"))


def active_jobs(service: Service) -> list[str]:
    """Return the Jobs of the pods that have not ended."""
    active = [each for each in service.store.all(PODS) if each["status"]["phase"] == "Pending"]
    return sorted(each["metadata"]["ownerReferences"][0]["name"] for each in active)


def test_the_next_job_has_its_pods_when_those_of_the_first_have_ended(
    controllers: WorkloadControllers, service: Service
) -> None:
    service.create(RESOURCE_QUOTAS, "", quota(hard={"requests.cpu": "3"}))
    submit(service, "first", 2)
    wait_for(lambda: active_jobs(service) == ["first", "first"])
    submit(service, "second", 3)
    wait_for(lambda: len(controllers.refusal_by_uid) == 1)
    assert active_jobs(service) == ["first", "first", "second"]
    (refused,) = map(str, controllers.refusal_by_uid.values())
    assert refused.startswith('default/job/second: its controller has created 1 of 3 pods: pods "second-')
    assert refused.endswith("requested: requests.cpu=1, used: requests.cpu=3, limited: requests.cpu=3")
    (event,) = service.store.all(EVENTS)
    assert (event["type"], event["reason"]) == ("Warning", "FailedCreate")
    assert event["message"].startswith('Error creating: pods "second-')
    assert event["involvedObject"]["kind"] == "Job"
    for each in service.store.all(PODS):
        if each["metadata"]["name"].startswith("first-"):
            service.set_status(PODS, each["metadata"], lambda _: {"phase": "Succeeded"})
    wait_for(lambda: active_jobs(service) == ["second"] * 3 and not controllers.refusal_by_uid)
    assert status(service)["used"] == {"requests.cpu": "3"}


def test_a_job_has_its_pods_when_the_quota_grows_or_goes(
    controllers: WorkloadControllers, service: Service
) -> None:
    service.create(RESOURCE_QUOTAS, "", quota(hard={"pods": "1"}))
    submit(service, "large", 4)
    wait_for(lambda: len(controllers.refusal_by_uid) == 1)

    def grown(found: Json) -> Json:
        return {**found, "metadata": {**found["metadata"]}, "spec": {"hard": {"pods": "2"}}}

    service.amend(RESOURCE_QUOTAS, "default", "q", grown)
    wait_for(lambda: active_jobs(service) == ["large"] * 2)
    wait_for(lambda: status(service) == {"hard": {"pods": "2"}, "used": {"pods": "2"}})
    service.delete(RESOURCE_QUOTAS, "default", "q", {})
    wait_for(lambda: active_jobs(service) == ["large"] * 4 and not controllers.refusal_by_uid)


def test_all_pods_of_made_jobs_are_counted(controllers: WorkloadControllers, service: Service) -> None:
    service.create(RESOURCE_QUOTAS, "", quota(hard={"pods": "2"}))
    spec = job("a", namespace="default", parallelism=1, completions=1, cpu="1")["spec"]
    replicated = [{"name": "workers", "replicas": 4, "template": {"spec": spec}}]
    made = {"metadata": {"name": "set", "namespace": "default"}, "spec": {"replicatedJobs": replicated}}
    service.create(KIND_BY_NAME["jobset.x-k8s.io/v1alpha2", "JobSet"], "", made)
    wait_for(lambda: len(controllers.refusal_by_uid) == 2)
    (refused,) = map(str, controllers.refusals())
    assert refused.startswith("default/jobset/set: ")
    assert '2 of 4 pods: pods "set-workers-' in refused


def test_a_job_that_is_suspended_or_gone_is_refused_nothing(
    controllers: WorkloadControllers, service: Service
) -> None:
    service.create(RESOURCE_QUOTAS, "", quota(hard={"pods": "0"}))
    for name in ("held", "gone"):
        submit(service, name, 1)
    wait_for(lambda: len(controllers.refusal_by_uid) == 2)

    def suspended(found: Json) -> Json:
        return {**found, "metadata": {**found["metadata"]}, "spec": {**found["spec"], "suspend": True}}

    service.amend(JOBS, "default", "held", suspended)
    service.delete(JOBS, "default", "gone", {})
    wait_for(lambda: not controllers.refusal_by_uid)


# ---- kubectl


def test_a_quota_is_created_shown_and_described(kubectl: Kubectl, service: Service) -> None:
    hard = "--hard=cpu=1,memory=2Gi,limits.cpu=2"
    assert kubectl("create", "quota", "q", hard) == "resourcequota/q created\n"
    service.create(PODS, "", pod_requesting({"cpu": "250m", "memory": "1Gi"}, {"cpu": "1"}))
    head, row = kubectl("get", "quota").splitlines()
    assert head.split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "cpu: 250m/1, memory: 1Gi/2Gi   limits.cpu: 1/2" in row
    described = [line.split() for line in kubectl("describe", "quota", "q").splitlines()]
    assert ["cpu", "250m", "1"] in described
    assert ["limits.cpu", "1", "2"] in described
    refused = kubectl.refused("run", "b", "--image=x")
    assert "(Forbidden)" in refused
    assert "failed quota: q: must specify cpu for: b; limits.cpu for: b; memory for: b" in refused
