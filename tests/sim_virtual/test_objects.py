"""Workloads out of -f files: the same YAML as for a real cluster, with annotations for time."""

from pathlib import Path

import pytest

from extender.files.manifests import load
from extender.sim.virtual.manifest_workload import from_manifests, make_nodes
from extender.sim.virtual.report import Waits
from extender.sim.virtual.workload import InvalidWorkload, VirtualWorkload
from tests.sim_virtual.bench import cluster, run, starts

RUN, ARRIVAL, FAIL = (f"sim.kube-muster.io/{name}" for name in ("run-seconds", "arrival-seconds", "fail"))
EXAMPLE = Path(__file__).parents[2] / "examples" / "first-gang.yaml"


def pod(name: str, group: str = "", cpu: str = "1", on: str = "", **annotations: str) -> str:
    recorded = {"scheduling.k8s.io/group-name": group} if group else {}
    known = {"run": RUN, "arrival": ARRIVAL, "fail": FAIL}
    recorded |= {known[key]: value for key, value in annotations.items()}
    notes = ", ".join(f'{key}: "{value}"' for key, value in recorded.items())
    place = f", nodeName: {on}" if on else ""
    resources = f"resources: {{requests: {{cpu: '{cpu}'}}}}"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{notes}}}}}\n"
        f"spec: {{schedulerName: muster{place}, containers: [{{name: main, image: x, {resources}}}]}}\n"
    )


def group(name: str, members: int, **annotations: str) -> str:
    notes = ", ".join(f'{ARRIVAL}: "{value}"' for value in annotations.values())
    return (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\n"
        f"metadata: {{name: {name}, annotations: {{{notes}}}}}\nspec: {{minMember: {members}}}\n"
    )


def loaded(folder: Path, *documents: str) -> VirtualWorkload:
    path = folder / "objects.yaml"
    path.write_text("---\n".join(documents))
    return cluster() + from_manifests(load([path]), seed=0)


def test_the_first_example() -> None:
    """Report and train start at once; sweep waits whole until report has ended."""
    given = from_manifests(load([EXAMPLE]), seed=0) + cluster(nodes=3)
    result = run(given)
    assert starts(result) == {"report": 0.0, "train": 0.0, "sweep": 40.0}
    assert (result.report.done, result.report.makespan) == (3, 60.0)


def test_the_example_of_flavors() -> None:
    given = from_manifests(load([EXAMPLE.with_name("flavors.yaml")]), seed=0)
    result = run(given)
    assert starts(result) == {"fit": 0.0, "tune": 0.0, "trial": 0.0}
    assert result.report.makespan == 60.0


def test_the_example_of_devices() -> None:
    """Both jobs fit on the nodes together, and only one within the limit of their queue."""
    file, nodes = EXAMPLE.parent / "gpus" / "claims.yaml", make_nodes(4, "4", "16Gi", devices=("gpu", 4))
    result = run(from_manifests(load([file]), seed=0) + nodes)
    assert starts(result) == {"job/train": 0.0, "job/tune": 20.0}


TREE = """\
apiVersion: scheduling.sigs.k8s.io/v1beta1
kind: ElasticQuotaTree
metadata: {name: tree, namespace: kube-system}
spec:
  root:
    name: root
    max: {cpu: 4}
    children:
      - {name: team, max: {cpu: 1}, namespaces: [default]}
      - {name: odd, max: {cpu: -1}}
      - {name: taken, max: {cpu: 1}}
"""
ELASTIC_JOB = """\
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: default}
spec: {max: {cpu: 1}}
"""
SUSPENDED_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  suspend: true
  parallelism: 2
  template:
    metadata: {annotations: {sim.kube-muster.io/run-seconds: "5"}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {requests: {cpu: 1}}}]
"""
TAKEN_QUEUE = (
    "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: taken}\nspec: {weight: 3}\n"
)


@pytest.mark.parametrize(("quota", "queue"), [(TREE, "team"), (ELASTIC_JOB, "default-quota")])
def test_quotas_make_queues_and_their_namespaces_enter_them(tmp_path: Path, quota: str, queue: str) -> None:
    """Both at once would fit the node, not the quota."""
    given = loaded(tmp_path, TAKEN_QUEUE, quota, pod("a", run="10"), pod("b", run="10"), SUSPENDED_JOB)
    result = run(given)
    assert {starts(result)[name] for name in ("pod/a", "pod/b")} == {0.0, 10.0}
    assert queue in {queue.name for queue in result.report.queues}
    assert "train" not in starts(result), "its queue fits one pod only"
    weights = {queue.metadata.name: queue.spec.weight for queue in given.queues}
    assert weights["taken"] == 3


def test_an_invalid_part_of_a_quota_is_reported_and_the_rest_holds(tmp_path: Path) -> None:
    notes = loaded(tmp_path, TAKEN_QUEUE, TREE).notes
    tree = "ElasticQuotaTree/kube-system/tree"
    assert any(record.startswith(f"{tree}: node 'odd': max") for record in notes), notes
    assert f"{tree}: queue 'taken' exists, and stays as it is" in notes


def test_pods_come_with_their_group_unless_they_say_when(tmp_path: Path) -> None:
    given = loaded(
        tmp_path,
        group("g", 2, arrival="5"),
        pod("g-0", "g", run="10"),
        pod("g-1", "g", run="10", arrival="20"),
        pod("single", run="1", arrival="2.5"),
    )
    result = run(given)
    assert starts(result) == {"g": 20.0, "pod/single": 2.5}
    assert result.report.waits == Waits(0, 0, 0, 0)
    assert result.report.makespan == 27.5  # from 2.5 to 30


def test_bound_pods_hold_their_capacity(tmp_path: Path) -> None:
    given = loaded(
        tmp_path,
        pod("old", cpu="4", on="node-1", run="30"),
        pod("new", cpu="4"),
        pod("next", cpu="4", run="1"),
    )
    assert starts(run(given))["pod/next"] == 30.0


def test_a_member_that_fails_ends_with_its_group(tmp_path: Path) -> None:
    documents = (group("g", 2), pod("g-0", "g", run="10", fail="true"), pod("g-1", "g", run="30"))
    report = run(loaded(tmp_path, *documents)).report
    assert (report.done, report.makespan) == (1, 30.0)


def test_members_without_their_group_wait(tmp_path: Path) -> None:
    (never,) = run(loaded(tmp_path, pod("a", "absent"))).report.never_started
    assert never.reason == "GroupNotFound"


def test_pods_of_other_schedulers_are_counted(tmp_path: Path) -> None:
    other = pod("other", run="5").replace("schedulerName: muster", "schedulerName: other")
    report = run(loaded(tmp_path, other, pod("ours", run="5"))).report
    assert (report.outsiders, report.pods) == (1, 1)


def test_a_start_that_cannot_be_completed_is_undone(tmp_path: Path) -> None:
    """One of two members stands since a crash, the other is larger than what is left."""
    documents = (group("g", 2), pod("g-0", "g", on="node-1"), pod("g-1", "g", cpu="5"))
    result = run(loaded(tmp_path, *documents))
    (never,) = result.report.never_started
    assert never.reason in ("NotEnoughMembers", "NeverFits")


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_wrong_arrival_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidWorkload, match=rf"objects\.yaml:6: .*{ARRIVAL}.*invalid value '{text}'"):
        loaded(tmp_path, pod("a"), pod("b", arrival=text))


def test_what_comes_after_the_last_date_is_simulated_all_the_same(tmp_path: Path) -> None:
    report = run(loaded(tmp_path, pod("a", run="5", arrival="1e300"), pod("b", run="1e12"))).report
    assert (report.started, report.done) == (2, 2)


def test_what_the_server_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkload, match=r"objects\.yaml:6: .*no PriorityClass"):
        loaded(tmp_path, pod("a"), pod("b").replace("spec: {", "spec: {priorityClassName: high, "))


REPLICAS = """\
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: NAME
  annotations: {scheduling.volcano.sh/group-min-member: "2", sim.kube-muster.io/run-seconds: "30"}
spec:
  replicas: 2
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {schedulerName: muster, containers: [{name: c, image: x, resources: {requests: {cpu: "3"}}}]}
"""


def test_replicas_start_together_when_their_owner_asks_for_it(tmp_path: Path) -> None:
    """Two nodes of 4: while two pods of the first stand, the second fits none, then all."""
    result = run(loaded(tmp_path, REPLICAS.replace("NAME", "a"), REPLICAS.replace("NAME", "b")))
    assert starts(result) == {"replicaset/a": 0.0, "replicaset/b": 30.0}
    assert result.report.makespan == 60.0


def test_pods_are_in_the_queue_that_only_their_owner_names(tmp_path: Path) -> None:
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: research}\n"
    named = "{name: train, annotations: {scheduling.volcano.sh/queue-name: research}}"
    job = SUSPENDED_JOB.replace("suspend: true", "suspend: false").replace("{name: train}", named)
    (found,) = run(loaded(tmp_path, queue, job)).report.queues
    assert (found.name, found.groups) == ("research", 1)


def test_later_objects_of_controllers_of_jobs_are_reported(tmp_path: Path) -> None:
    head = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: NAME}\n"
    pod = "{schedulerName: muster, restartPolicy: Never, containers: [{name: main, image: x}]}"
    template = f"template: {{spec: {pod}}}"
    given = loaded(
        tmp_path,
        head.replace("NAME", "long") + f"spec: {{parallelism: 2, completions: 5, {template}}}\n",
        head.replace("NAME", "later") + f"spec: {{suspend: true, completions: 5, {template}}}\n",
    )
    later, long = (record.partition(": ")[2] for record in given.notes)
    assert later.startswith('Job "later": it is suspended')
    assert long == 'Job "long": only its first pods are made; 3 more, made as those succeed, are not'


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, annotations: {scheduling.volcano.sh/queue-name: default, RUN: "10"}}
spec:
  suspend: true
  parallelism: 3
  completions: 3
  template:
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {requests: {cpu: "2"}}}]
"""


def test_suspended_jobs_of_a_queue_wait_and_start_whole(tmp_path: Path) -> None:
    documents = [JOB.replace("NAME", name).replace("RUN", RUN) for name in ("first", "second")]
    given = loaded(tmp_path, *documents)
    waiting = [(each.podgroup.group.spec.min_member, each.podgroup.group.spec.queue) for each in given.jobs]
    assert waiting == [(3, "default")] * 2
    assert given.notes == ()
    result = run(given)
    assert set(starts(result).values()) == {0.0, 10.0}
    assert result.report.done == 2


VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: NAME, annotations: {RUN: "10"}}
spec:
  minAvailable: 3
  schedulerName: muster
  tasks:
    - name: worker
      replicas: 3
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: x, resources: {requests: {cpu: "2"}}}]
"""


def test_volcano_jobs_wait_as_jobs_in_the_group_that_volcano_would_make(tmp_path: Path) -> None:
    given = loaded(tmp_path, *(VOLCANO.replace("NAME", name).replace("RUN", RUN) for name in ("a", "b")))
    units = [(each.podgroup.group.metadata.name, each.podgroup.group.spec.min_member) for each in given.jobs]
    assert units == [
        (f"{each.object['metadata']['name']}-{each.object['metadata']['uid']}", 3) for each in given.jobs
    ]
    assert (given.groups, given.members, given.notes) == ((), (), ())
    result = run(given)
    assert starts(result) == {"vcjob/a": 0.0, "vcjob/b": 10.0}
    assert result.report.done == 2


def test_a_template_with_empty_metadata_gets_the_annotations_of_its_volcano_job(tmp_path: Path) -> None:
    text = VOLCANO.replace("NAME", "a").replace("RUN", RUN)
    given = loaded(tmp_path, text.replace("template:\n", "template:\n        metadata:\n"))
    assert run(given).report.makespan == 10.0


LOCAL_QUEUE = """\
apiVersion: kube-muster.io/v1alpha1
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {queue: taken}
"""
BY_LABEL = SUSPENDED_JOB.replace("{name: train}", "{name: train, labels: {kueue.x-k8s.io/queue-name: NAME}}")


@pytest.mark.parametrize(("named", "reason"), [("team", None), ("none", "QueueNotFound")])
def test_a_suspended_job_enters_the_queue_of_its_local_queue(
    tmp_path: Path, named: str, reason: str | None
) -> None:
    report = run(loaded(tmp_path, TAKEN_QUEUE, LOCAL_QUEUE, BY_LABEL.replace("NAME", named))).report
    assert [never.reason for never in report.never_started] == ([reason] if reason else [])
    assert [queue.name for queue in report.queues if queue.started] == ([] if reason else ["taken"])


PLAIN_JOB = SUSPENDED_JOB.replace("      schedulerName: muster\n", "")
GOING_JOB = PLAIN_JOB.replace("  suspend: true\n", "")
SUSPENDED = "it is suspended, and "
TO_SPEC = "add schedulerName: muster to spec.template.spec"
TO_QUEUE = (
    "add the annotation scheduling.volcano.sh/queue-name: default, or that of another queue, to its metadata"
)


@pytest.mark.parametrize(
    ("job", "stands", "missing"),
    [
        (GOING_JOB, "", TO_SPEC),
        (
            GOING_JOB.replace("restart", "schedulerName: yunikorn\n      restart"),
            "",
            TO_SPEC.replace("muster", "muster instead of yunikorn"),
        ),
        (SUSPENDED_JOB, SUSPENDED, TO_QUEUE),
        (PLAIN_JOB, SUSPENDED, f"{TO_SPEC} and {TO_QUEUE}"),
        (BY_LABEL.replace("NAME", "team").replace("      schedulerName: muster\n", ""), SUSPENDED, TO_SPEC),
    ],
)
def test_workloads_that_muster_is_not_asked_to_start_are_reported_with_the_missing_field(
    tmp_path: Path, job: str, stands: str, missing: str
) -> None:
    (left,) = loaded(tmp_path, LOCAL_QUEUE, TAKEN_QUEUE, job).unmanaged_objects
    sentence = f"{stands}Muster is not asked to start it: {missing}"
    assert (left.title, left.sentence) == ("default/job/train", sentence)


def test_members_that_a_gang_starts_without_never_started(tmp_path: Path) -> None:
    """Two nodes of 4: the third fits only where another one ends."""
    pods = (pod(f"g-{number}", "g", cpu="3", run="5" if number else "") for number in range(3))
    assert run(loaded(tmp_path, group("g", 1), *pods)).report.never_started == []
    pods = (pod(f"g-{number}", "g", cpu="3") for number in range(3))
    (left,) = run(loaded(tmp_path, group("g", 1), *pods)).report.never_started
    assert (left.group, left.pods, left.reason) == ("default/g", 1, "NoRoom")


def test_pods_run_for_their_declared_time_or_the_flags_up_to_a_deadline(
    tmp_path: Path,
) -> None:
    path = tmp_path / "objects.yaml"
    late = SUSPENDED_JOB.replace("  suspend: true", "  activeDeadlineSeconds: 3")
    path.write_text("---\n".join([pod("a"), pod("b", run="9"), late]))
    given = from_manifests(load([path]), seed=0, seconds=7.0)
    found = {member.pod.metadata.name[:5]: (member.run_seconds, member.fails) for member in given.members}
    assert found == {"a": (7.0, False), "b": (9.0, False), "train": (3.0, True)}


def _of_queue(name: str, cpu: int, at: int, notes: str = "") -> str:
    """Return a queue, and a Job of one pod in it that runs for ten hours."""
    head = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\n---\n"
    recorded = f'{RUN}: "36000", {ARRIVAL}: "{at}"{notes}'
    queue = f"metadata: {{annotations: {{scheduling.volcano.sh/queue-name: {name}}}}}"
    container = f"{{name: main, image: x, resources: {{requests: {{cpu: '{cpu}'}}}}}}"
    pods = f"{{{queue}, spec: {{schedulerName: muster, restartPolicy: Never, containers: [{container}]}}}}"
    meta = f"{{name: {name}, annotations: {{{recorded}}}}}"
    return f"{head}apiVersion: batch/v1\nkind: Job\nmetadata: {meta}\nspec: {{template: {pods}}}\n"


@pytest.mark.parametrize(
    ("notes", "named", "wait"),
    [
        ("", False, 900.0),
        (", kube-muster.io/checkpoint: 5m", False, 300.0),
        (", kube-muster.io/checkpoint: 5m", True, 900.0),
    ],
    ids=["never-saved", "saved", "of-a-group"],
)
def test_checkpoints_of_a_job_are_those_of_its_pods(
    tmp_path: Path, notes: str, named: bool, wait: float
) -> None:
    """Evict a job soon after a checkpoint, when it costs little, but not where the pods name a group.

    A group is treated as in a cluster.
    """
    first = _of_queue("first", 4, 0, notes)
    if named:
        first = first.replace(
            "{scheduling.volcano.sh/queue-name: first}", "{scheduling.k8s.io/group-name: own}"
        )
        first += "---\n" + group("own", 1).replace("minMember: 1", "minMember: 1, queue: first")
    path = tmp_path / "objects.yaml"
    path.write_text("---\n".join([first, _of_queue("late", 2, 7200)]))
    result = run(cluster(nodes=1) + from_manifests(load([path]), seed=0))
    assert starts(result)["job/late"] == 7200 + wait


def test_a_job_that_may_starts_with_fewer_pods_and_the_next_one_with_the_rest(tmp_path: Path) -> None:
    """Two nodes of 4 fit two pods of 3: the first job asks for five and takes both."""
    fewer = JOB.replace("RUN: ", "kube-muster.io/min-parallelism: '1', RUN: ").replace('cpu: "2"', 'cpu: "3"')
    first, second = (fewer.replace("NAME", name).replace("RUN", RUN) for name in ("first", "second"))
    more = first.replace("parallelism: 3\n  completions: 3", "parallelism: 5\n  completions: 5")
    result = run(loaded(tmp_path, more, second))
    assert set(starts(result).values()) == {0.0, 10.0}
    assert (result.report.pods, result.report.done, result.report.never_started) == (4, 2, [])
    waits = {timeline.wait for timeline in result.measurements.timelines.values()}
    assert waits == {0.0, 10.0}, "a job waits from its arrival on, though its pods come with its start"


RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              template:
                spec:
                  schedulerName: muster
                  containers: [{name: node, image: x, resources: {requests: {cpu: "2"}}}]
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: llm
  annotations: {scheduling.volcano.sh/queue-name: default, RUN: "10"}
spec: {SUSPEND runtimeRef: {name: torch}, trainer: {numNodes: 3}}
""".replace("RUN", RUN)


@pytest.mark.parametrize("suspended", ["suspend: true,", ""])
def test_the_pods_of_a_train_job_are_those_of_its_runtime(tmp_path: Path, suspended: str) -> None:
    given = loaded(tmp_path, RUNTIME, TRAIN_JOB.replace("SUSPEND", suspended))
    assert given.notes == ()
    assert [pod.spec.containers[0].resources.requests for _, pod, *_ in given.all_members] == [
        {"cpu": "2"}
    ] * 3
    report = run(given).report
    assert (report.pods, report.done, report.makespan) == (3, report.groups, 10.0)


def test_a_train_job_of_a_runtime_for_another_scheduler_is_not_asked_for(tmp_path: Path) -> None:
    other = RUNTIME.replace("                  schedulerName: muster\n", "")
    (left,) = loaded(tmp_path, other, TRAIN_JOB.replace("SUSPEND", "")).unmanaged_objects
    assert left.missing == "add schedulerName: muster to the pod templates of its runtime"


def test_a_waiting_train_job_whose_runtime_is_missing_says_so(tmp_path: Path) -> None:
    (never,) = run(loaded(tmp_path, TRAIN_JOB.replace("SUSPEND", "suspend: true,"))).report.never_started
    assert (never.reason, "ClusterTrainingRuntime torch" in never.detail) == ("InvalidSpec", True)


def test_a_suspended_job_that_names_no_queue_stays_suspended(tmp_path: Path) -> None:
    job = JOB.replace("scheduling.volcano.sh/queue-name", "else").replace("NAME", "first").replace("RUN", RUN)
    given = loaded(tmp_path, job)
    assert (given.members, len(given.notes)) == ((), 1)


# ---- ResourceQuotas


def quota(**hard: str) -> str:
    amounts = ", ".join(f"{name.replace('_', '.')}: '{amount}'" for name, amount in hard.items())
    return f"apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q}}\nspec: {{hard: {{{amounts}}}}}\n"


def test_pods_beyond_a_quota_come_when_earlier_ones_have_ended(tmp_path: Path) -> None:
    """The nodes fit all pods at once."""
    pods = [pod(name, cpu="1", run="20") for name in "abcd"]
    result = run(loaded(tmp_path, quota(requests_cpu="2"), *pods))
    assert sorted(timeline.started_at or 0.0 for timeline in result.measurements.timelines.values()) == [
        0,
        0,
        20,
        20,
    ]
    assert (result.report.done, result.report.makespan) == (4, 40.0)


def test_a_gang_waits_for_its_members_that_a_quota_refuses(tmp_path: Path) -> None:
    members = [pod(f"g-{number}", "g", cpu="1") for number in range(2)]
    documents = (quota(pods="2"), pod("first", cpu="1", run="30"), group("g", 2), *members)
    result = run(loaded(tmp_path, *documents))
    assert starts(result)["g"] == 30.0


def test_pods_that_a_quota_never_takes_are_named(tmp_path: Path) -> None:
    members = [pod(f"g-{number}", "g", cpu="1") for number in range(3)]
    (never,) = run(loaded(tmp_path, quota(cpu="2"), group("g", 3), *members)).report.never_started
    assert (never.group, never.reason) == ("default/g", "FailedCreate")
    assert never.detail.startswith('2 of 3 pods created: pods "g-2" is forbidden: ')


LIMITED_JOB = (
    JOB.replace("NAME", "cut")
    .replace("RUN", RUN)
    .replace("      sched", "      activeDeadlineSeconds: 99\n      sched")
)


def limit(pods: int) -> str:
    """Return a time limit for pods with a deadline."""
    return quota(pods=str(pods)).replace("spec: {", "spec: {scopes: [Terminating], ")


def test_a_job_whose_pods_a_quota_refuses_soon_frees_its_capacity_for_the_next(tmp_path: Path) -> None:
    other = JOB.replace("NAME", "next").replace("RUN:", f'{ARRIVAL}: "1", {RUN}:')
    result = run(loaded(tmp_path, limit(2), LIMITED_JOB, other))
    assert (starts(result), result.report.makespan) == ({"job/next": 2.0, "job/cut": None}, 12.0)
    (never,) = result.report.never_started
    assert (never.group, never.reason) == ("default/job/cut", "BackingOff")
    refusal = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    assert never.detail.endswith(f": {refusal}")


@pytest.mark.parametrize("before", [1, 3])
def test_a_job_some_or_all_of_whose_pods_a_quota_refuses_starts_once_others_have_ended(
    tmp_path: Path, before: int
) -> None:
    """Try at 0, 7, 19 and 41 seconds: after a second each time, and pauses of 5, 10 and 20 seconds."""
    pods = [pod(f"first-{number}", cpu="100m", run="30") for number in range(before)]
    first = [text.replace("{sched", "{activeDeadlineSeconds: 99, sched") for text in pods]
    result = run(loaded(tmp_path, limit(3), *first, LIMITED_JOB))
    assert (starts(result)["job/cut"], result.report.makespan) == (41.0, 51.0)


def test_a_member_beyond_what_its_gang_needs_is_named_apart(tmp_path: Path) -> None:
    members = [pod(f"g-{number}", "g", cpu="1") for number in range(3)]
    (never,) = run(loaded(tmp_path, quota(cpu="2"), group("g", 2), *members)).report.never_started
    assert (never.pods, never.reason) == (1, "FailedCreate")
