"""Pods of Volcano Jobs: how they are made, and what is read from them."""

from copy import deepcopy
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.volcano import JobStatus, PartitionPolicy, TaskSpec, VolumeSpec
from extender.volcano.admission import with_defaults
from extender.volcano.pods import JobPod, build_pod, partition_of, pod_of
from tests.rows import each_of
from tests.volcano.jobs import TEMPLATE, job, task


def built(index: int = 1, meta: dict[str, Any] | None = None, of: TaskSpec | None = None, **spec: Any) -> Any:
    new_job = job(of or task("w", 2), status=JobStatus(version=2, retry_count=1), **spec)
    new_job = with_defaults(replace(new_job, metadata=Meta(name="j", namespace="n", uid="u", **(meta or {}))))
    return build_pod(new_job, new_job.spec.tasks[0], index)


def test_a_pod_has_volcanos_labels_and_annotations() -> None:
    found = built(queue="q")["metadata"]
    assert (found["name"], found["namespace"]) == ("j-w-1", "n")
    assert found["labels"] == {
        "volcano.sh/job-name": "j",
        "volcano.sh/job-namespace": "n",
        "volcano.sh/queue-name": "q",
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "w",
    }
    assert found["annotations"] == {
        "scheduling.k8s.io/group-name": "j-u",
        "volcano.sh/job-name": "j",
        "volcano.sh/job-retry-count": "1",
        "volcano.sh/job-version": "2",
        "volcano.sh/queue-name": "q",
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "w",
        "volcano.sh/template-uid": "j-w",
    }
    assert found["ownerReferences"] == [
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": "j",
            "uid": "u",
            "controller": True,
        }
    ]


def test_fields_of_a_pod_from_its_job_and_its_template() -> None:
    notes = {"volcano.sh/preemptable": "true", "volcano.sh/jdb-min-available": "1", "other": "x"}
    labels = {"volcano.sh/cooldown-time": "10s", "other": "x"}
    template = {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2", "volcano.sh/task-index": "9"}}}
    found = built(
        meta={"annotations": notes, "labels": labels},
        of=TaskSpec("w", 2, template=template, topology_policy="restricted"),
        scheduler_name="muster",
        priority_class_name="high",
    )
    assert (
        found["metadata"]["annotations"].items()
        >= {
            "volcano.sh/preemptable": "true",
            "volcano.sh/jdb-min-available": "1",
            "volcano.sh/numa-topology-policy": "restricted",
            "a": "2",
            "volcano.sh/task-index": "1",
        }.items()
    )
    assert found["metadata"]["labels"].items() >= {"volcano.sh/cooldown-time": "10s", "l": "1"}.items()
    assert "other" not in found["metadata"]["annotations"] | found["metadata"]["labels"]
    assert found["spec"] == {"schedulerName": "muster", "priorityClassName": "high"}


def test_the_template_comes_before_the_job() -> None:
    spec = {"schedulerName": "mine", "priorityClassName": "low", "hostNetwork": True}
    of = TaskSpec("w", 1, template={"spec": spec})
    found = built(of=of, scheduler_name="muster", priority_class_name="high")["spec"]
    assert found == {**spec, "dnsPolicy": "ClusterFirstWithHostNet"}


def test_volumes_are_mounted_in_each_container() -> None:
    containers: list[Any] = [
        {"name": "a", "volumeMounts": [{"name": "own", "mountPath": "/own"}]},
        {"name": "b"},
    ]
    template = {"spec": {"containers": containers, "volumes": [{"name": "own"}]}}
    before = deepcopy(template)
    volumes = [VolumeSpec("/x", "claim"), VolumeSpec("/y", volume_claim={}), VolumeSpec("/z", "claim")]
    spec = built(of=TaskSpec("w", 2, template=template), volumes=volumes)["spec"]
    mounts = [
        {"name": "job-volume-0", "mountPath": "/x"},
        {"name": "job-volume-1", "mountPath": "/y"},
        {"name": "job-volume-0", "mountPath": "/z"},
    ]
    own = containers[0]["volumeMounts"]
    assert [each["volumeMounts"] for each in spec["containers"]] == [[*own, *mounts], mounts]
    assert spec["volumes"] == [
        {"name": "own"},
        {"name": "job-volume-0", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "job-volume-1", "persistentVolumeClaim": {"claimName": "j-u-1"}},
    ]
    assert template == before


@each_of(
    {}, {"metadata": None, "spec": None}, {"spec": {"containers": "none"}}, {"metadata": {"labels": [1]}}
)
def test_an_invalid_template_breaks_nothing(template: Any) -> None:
    found = built(of=TaskSpec("w", 2, template=template), volumes=[VolumeSpec("/x", "claim")])
    assert found["metadata"]["name"] == "j-w-1"


@each_of((2, "0 0 1 1 2"), (0, "0 0 0 0 0"), (None, "    "))
def test_partitions(size: int | None, expected: str) -> None:
    of = task("w", 5, partition_policy=PartitionPolicy(3, size) if size is not None else None)
    assert [partition_of(of, index) for index in range(5)] == expected.split(" ")
    label = built(3, of=of)["metadata"]["labels"].get("volcano.sh/partition-id")
    assert label == (partition_of(of, 3) or None)


# ---- read


def test_a_created_pod_is_read_back() -> None:
    found = pod_of(built(of=task("w", 2, partition_policy=PartitionPolicy(2, 1))))
    expected = JobPod(
        name="j-w-1", uid="", task="w", index=1, version=2, phase="Pending", namespace="n", retry=1
    )
    assert found == replace(expected, partition="1", is_ready=True)


def test_how_a_pod_ended() -> None:
    pod = built() | {
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "restartCount": 2,
                    "state": {"terminated": {"exitCode": 3, "finishedAt": "1970-01-01T00:01:00Z"}},
                },
                {
                    "restartCount": 1,
                    "state": {"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:02:00Z"}},
                },
            ],
            "initContainerStatuses": [{"restartCount": 4}],
        }
    }
    pod["metadata"] |= {
        "deletionTimestamp": "1970-01-01T00:03:00Z",
        "creationTimestamp": "1970-01-01T00:00:30Z",
    }
    pod["spec"]["nodeName"] = "node"
    found = pod_of(pod)
    assert found is not None
    assert (found.phase, found.exit_code, found.restart_count) == ("Failed", 3, 7)
    assert (found.created_at, found.ended_at) == (30.0, 120.0)
    assert (found.was_bound, found.is_deleting, found.is_ready) == (True, True, False)


@each_of(
    ({"volcano.sh/task-index": "0", "volcano.sh/job-version": "0", "volcano.sh/task-spec": "w"}, True),
    ({"volcano.sh/task-index": "0", "volcano.sh/job-version": "0"}, False),
    ({"volcano.sh/task-index": "-1", "volcano.sh/job-version": "0", "volcano.sh/task-spec": "w"}, False),
    ({"volcano.sh/task-index": "0", "volcano.sh/job-version": "x", "volcano.sh/task-spec": "w"}, False),
    (
        {"volcano.sh/task-index": "9" * 30, "volcano.sh/job-version": "0", "volcano.sh/task-spec": "w"},
        False,
    ),
    (None, False),
)
def test_a_pod_without_its_annotations(annotations: Any, is_read: bool) -> None:
    assert (pod_of({"metadata": {"name": "p", "annotations": annotations}}) is not None) is is_read


def test_defaults() -> None:
    new_job = job(TaskSpec("", 2, template=TEMPLATE), task("w", 3, min_available=1), task("v", -1))
    spec = with_defaults(new_job).spec
    assert [(each.name, each.replicas, each.min_available) for each in spec.tasks] == [
        ("default0", 2, 2),
        ("w", 3, 1),
        ("v", 0, 0),
    ]
    assert (spec.min_available, spec.queue, spec.max_retry) == (3, "default", 3)
    parts = PartitionPolicy(4, 2, min_partitions=3)
    assert with_defaults(job(task("w", 8, partition_policy=parts))).spec.min_available == 6
    assert with_defaults(with_defaults(new_job)) == with_defaults(new_job)
