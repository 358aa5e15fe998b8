"""Volcano Jobs that came past admission with anything in them: a look at one never fails, and is bounded."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.objects.volcano import VolcanoJob
from extender.volcano.plan import JobView, plan
from extender.volcano.pods import JobPod, claim_names
from extender.volcano.policies import JobRequest, request_for_lost_pod
from extender.volcano.states import Action, JobPhase
from tests.property_examples import examples
from tests.volcano.jobs import NOW, pod

whole = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 10**6, 2**31 - 1])
words = st.sampled_from(
    ["", "w", "m", "any", "*", "a" * 300, "W w", "..", "ä\n", "5s", "-5s", "9" * 400 + "h"]
)
names = st.one_of(st.sampled_from(["w", "master", "worker", "head", "ps"]), words)
templates: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        {"metadata": None, "spec": 5},
        {"metadata": {"labels": [1], "annotations": "x"}, "spec": {"containers": "none"}},
        {"metadata": {"labels": {"a": [1]}}, "spec": {"containers": ["x", 5, {}], "volumes": 5}},
        {"spec": {"containers": [{"volumeMounts": 3, "env": 4, "ports": "x"}], "initContainers": 4}},
        {"spec": {"hostname": [1], "subdomain": {}, "hostNetwork": "x", "schedulerName": 3}},
    ]
)
policies = st.lists(
    st.fixed_dictionaries(
        {"action": st.one_of(words, st.sampled_from([*map(str, Action)]))},
        optional={"event": words, "events": st.lists(words, max_size=2), "exitCode": whole, "timeout": words},
    ),
    max_size=2,
)
tasks = st.fixed_dictionaries(
    {"name": names, "replicas": whole, "template": templates},
    optional={
        "minAvailable": whole,
        "policies": policies,
        "maxRetry": whole,
        "dependsOn": st.fixed_dictionaries({"name": st.lists(words, max_size=3), "iteration": words}),
        "partitionPolicy": st.fixed_dictionaries(
            {"totalPartitions": whole, "partitionSize": whole, "minPartitions": whole}
        ),
    },
)
specs = st.fixed_dictionaries(
    {
        "tasks": st.lists(tasks, min_size=1, max_size=3),
        "volumes": st.lists(
            st.fixed_dictionaries(
                {"mountPath": words}, optional={"volumeClaimName": words, "volumeClaim": st.just({})}
            ),
            max_size=2,
        ),
    },
    optional={
        "minAvailable": whole,
        "minSuccess": st.integers(1, 3),
        "maxRetry": whole,
        "policies": policies,
        "queue": words,
        "ttlSecondsAfterFinished": whole,
        "plugins": st.dictionaries(
            st.sampled_from(["env", "svc", "ssh", "mpi", "pytorch", "tensorflow", "ray", "magic"]),
            st.lists(words, max_size=2),
            max_size=2,
        ),
    },
)
statuses = st.fixed_dictionaries(
    {
        "state": st.fixed_dictionaries(
            {
                "phase": st.sampled_from(["", "Pending", "Running", "Inqueue", *map(str, JobPhase)]),
                "reason": st.sampled_from(["", *map(str, Action)]),
                "message": words,
                "lastTransitionTime": words,
            }
        )
    },
    optional={"version": whole, "retryCount": whole},
)
pods = st.lists(
    st.builds(
        pod,
        st.integers(0, 3),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        of=words,
        version=st.integers(0, 3),
        exit_code=st.one_of(st.none(), whole),
        is_deleting=st.booleans(),
    ),
    max_size=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(specs, statuses, pods, st.sampled_from(Action), st.sampled_from([True, True, False]))
def test_no_job_makes_the_controller_raise(
    spec: Any, status: Any, there: list[JobPod], action: Action, admitted: bool
) -> None:
    job = msgspec.convert({"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status}, VolcanoJob)
    request, claims = JobRequest(action, "w", "j-w-0", "0"), dict.fromkeys(claim_names(job), True)
    for asked, exist in ((None, {}), (None, claims), (request, claims)):
        found = plan(JobView(job, there, admitted, NOW, asked, existing_claims=exist))
        assert len(found.new_pods) <= 100
        creates = [new.build() for new in found.new_pods]
        assert len(msgspec.json.encode((found.status, creates, found.new_claims))) < 1_000_000
        assert {each.uid for each in found.pods_to_delete} <= {each.uid for each in there}
    for each in there:
        request_for_lost_pod(job, each, NOW)
