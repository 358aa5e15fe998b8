"""`muster plan`: whether and when what files hold would start in the cluster that there is."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from extender.api.keys import GROUP_ANNOTATION, QUEUE, RUN_TIME
from extender.apimachinery.kinds import PRIORITY_CLASSES, TOPOLOGIES
from extender.cli import live
from extender.cli.output import Json
from extender.domain.model.reasons import Reason, sentence
from extender.sim.kubelets import node
from extender.sim.virtual.runner import SimulationOptions, simulate
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster, ago


def since() -> Json:
    """Return the status of a pod that has run for an hour."""
    return {"startTime": ago(hours=1)}


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Return a cluster that uses 8 of its 16 cores: 4 for another hour, 4 for an unknown time."""
    for name in ("n0", "n1"):
        cluster.node(name)
    for namespace in ("team", "other"):
        cluster.namespace(namespace)
    cluster.queue("q", {"preemption": {"withinQueue": "Never", "unmanaged": "Never"}}, state="Open")
    timed = {"annotations": {RUN_TIME: "2h"}}
    cluster.group("timed", "Running", "Running", queue="q", more_metadata=timed)
    cluster.group("endless", "Running", "Running", queue="q")
    for number in range(2):
        cluster.pod(f"timed-{number}", "timed", node="n0", status=since())
        cluster.pod(f"endless-{number}", "endless", node="n1", status=since())
    return cluster


def job(name: str, pods: int, cpu: str, queue: str = "q", **more: str) -> Json:
    """Return a job that waits suspended."""
    container = {"name": "m", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pod = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"labels": {"job": name}}, "spec": pod}
    numbers = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    meta = {"name": name, "annotations": {QUEUE: queue, **more}}
    spec = {"suspend": True, **numbers, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def pods(name: str, count: int, queue: str, priority: str = "") -> list[Json]:
    """Return a gang with its PodGroup, of two cores for each pod."""
    ranked = {"priorityClassName": priority} if priority else {}
    container = {"name": "m", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    spec = {"schedulerName": "muster", "containers": [container], **ranked}
    notes = {"annotations": {GROUP_ANNOTATION: name}}
    head = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    members = [{**head, "metadata": {"name": f"{name}-{number}", **notes}} for number in range(count)]
    return [{**group, "spec": {"minMember": count, "queue": queue, **ranked}}, *members]


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(*objects: Json) -> str:
        path = tmp_path / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    return written


def starts(sample: Cluster, path: str, status: int = 0) -> dict[str, Json]:
    """Return the starts by name."""
    result = sample.muster("plan", path, "-o", "json")
    assert (result.exit_code, result.stderr) == (status, "")
    return {each["name"]: each for each in json.loads(result.stdout)["starts"]}


def test_each_object_of_a_plan_starts_now_later_at_an_unknown_time_or_never(
    sample: Cluster, write: Write
) -> None:
    path = write(job("at-once", 2, "2"), job("later", 2, "3"), job("stuck", 2, "7"), job("huge", 1, "9"))
    found = starts(sample, path, status=3)
    assert {name: each["start"] for name, each in found.items()} == {
        "team/job/at-once": "Now",
        "team/job/later": "Later",
        "team/job/stuck": "Unknown",
        "team/job/huge": "Never",
    }
    later = found["team/job/later"]
    assert 3500 < later["after"] <= 3600
    assert later["method"] == "Declared"
    assert (found["team/job/huge"]["reason"], found["team/job/stuck"]["reason"]) == ("NeverFits", "NoRoom")
    assert "team/endless" in found["team/job/stuck"]["endless"]


def test_jobs_without_a_scheduler_start_in_adopted_namespaces(sample: Cluster, write: Write) -> None:
    suspended, running = job("suspended", 2, "1"), job("running", 2, "1")
    running["spec"]["suspend"] = False
    for each in (suspended, running):
        del each["spec"]["template"]["spec"]["schedulerName"]
    path = write(suspended, running)
    assert "Now" not in {each["start"] for each in starts(sample, path, status=3).values()}
    sample.output("namespace", "adopt", "team", "--queue", "q")
    found = starts(sample, path)
    assert {name: each["start"] for name, each in found.items()} == {
        "team/job/suspended": "Now",
        "team/job/running": "Now",
    }


def test_the_text_of_a_plan(sample: Cluster, write: Write) -> None:
    answer = sample.muster("plan", write(job("now", 2, "2"), job("huge", 1, "9")))
    assert answer.exit_code == 3
    now, _, huge, *reasons = answer.stdout.splitlines()
    assert now == "team/job/now (2 pods, queue q) would start now."
    assert huge == "team/job/huge (1 pod, queue q) would never start as things are: NeverFits."
    assert reasons[0] == f"  {sentence(Reason.NEVER_FITS)}"
    assert "cpu 9" in reasons[1]
    assert ("cpu 8 per member" in reasons[2], reasons[3]) == (True, "  Fragmented.")


def test_an_unusable_topology_of_the_cluster_does_not_matter(sample: Cluster, write: Write) -> None:
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "rack"}]}
    head = {"apiVersion": TOPOLOGIES.api_version, "kind": TOPOLOGIES.name}
    sample.store.put(TOPOLOGIES, {**head, "metadata": {"name": "t", "uid": "t"}, "spec": levels})
    assert starts(sample, write(job("now", 2, "2")))["team/job/now"]["start"] == "Now"


def test_no_object_is_written(sample: Cluster, write: Write) -> None:
    before = sample.store.changed_at
    starts(sample, write(job("now", 2, "2")))
    assert sample.store.changed_at == before


def test_a_second_object_of_a_plan_waits_for_the_first(sample: Cluster, write: Write) -> None:
    """The second waits for the first, which says how long it runs."""
    path = write(job("first", 2, "4", **{RUN_TIME: "10m"}), job("second", 2, "4"))
    found = starts(sample, path)
    assert found["team/job/first"]["start"] == "Now"
    assert found["team/job/second"]["start"] == "Later"
    assert 590 < found["team/job/second"]["after"] < 620


def test_a_plan_beyond_the_simulation_limit_shows_the_part_that_is_known(
    sample: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_MAX_CYCLES", 1)
    path = write(
        job("first", 2, "4", **{RUN_TIME: "10m"}),
        job("second", 2, "4", **{RUN_TIME: "10m"}),
        job("third", 2, "4"),
    )
    found = starts(sample, path)["team/job/third"]
    assert (found["start"], found["reason"]) == ("Unknown", "NoRoom")
    assert found["notBefore"]
    assert "remedy" not in found
    answer = " ".join(sample.muster("plan", path).stdout.split())
    assert "would wait until 2" in answer
    assert "The simulation limit was reached before the group started." in answer


def test_a_plan_includes_reclaims(sample: Cluster, write: Write) -> None:
    """`hog` holds all of two more nodes, twice its share; what is evicted waits again."""
    for name in ("n2", "n3"):
        sample.node(name)
    sample.queue("hog", state="Open")
    sample.queue("poor", {"preemption": {"after": "5m", "atMost": "5m"}}, state="Open")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "hog", "uid": "uid-hog", "controller": True}
    sample.group("hog", "Running", "Running", queue="hog", min_member=1)
    for number in range(8):
        on = f"n{2 + number // 4}"
        sample.pod(f"hog-{number}", "hog", node=on, metadata={"ownerReferences": [owner]}, status=since())
    path = write(job("rich", 6, "2", queue="poor"))
    found = starts(sample, path)["team/job/rich"]
    assert (found["start"], found["method"]) == ("Later", "Reclaim")
    assert found["paidBy"] == ["team/hog (2 pods)"]
    assert 250 < found["after"] < 400
    answer = " ".join(sample.muster("plan", path).stdout.split())
    assert "once other groups have given up capacity for it" in answer
    assert "These give up capacity for it: team/hog (2 pods)." in answer


def test_a_group_with_its_pods_in_a_queue_of_the_same_file(sample: Cluster, write: Write) -> None:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "new"}}
    gang = pods("gang", 2, queue="new")
    found = starts(sample, write({**queue, "spec": {"capability": {"cpu": "3"}}}, *gang), status=3)[
        "team/gang"
    ]
    assert (found["start"], found["reason"], found["queue"], found["pods"]) == (
        "Never",
        "NeverFits",
        "new",
        2,
    )
    found = starts(sample, write({**queue, "spec": {"capability": {"cpu": "4"}}}, *gang))
    assert found["team/gang"]["start"] == "Now"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (job("x", 1, "1", queue="lost"), "QueueNotFound"),
        ({**job("x", 1, "1"), "metadata": {"name": "x"}}, "NotAsked"),
    ],
)
def test_an_object_that_blocks_itself_never_starts(
    sample: Cluster, write: Write, made: Json, reason: str
) -> None:
    found = starts(sample, write(made), status=3)["team/job/x"]
    assert (found["start"], found["reason"]) == ("Never", reason)


def test_a_plan_names_the_groups_that_it_delays(sample: Cluster, write: Write) -> None:
    """Overtake a group of the cluster that would start now, for a group of a higher class."""
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    sample.store.put(PRIORITY_CLASSES, {**classes, "metadata": {"name": "high", "uid": "high"}, "value": 9})
    sample.gang("next", 4, queue="q")
    answer = sample.muster("plan", write(*pods("first", 4, "q", "high")))
    assert "team/first (4 pods, queue q) " in answer.stdout
    assert "For that, of others:\n  team/next would not start now, as it does without that: " in answer.stdout


def test_jobs_of_a_kind_that_muster_may_not_change(sample: Cluster, proxy: ApiProxy, write: Write) -> None:
    proxy.install_muster()
    proxy._collections["/apis/scheduling.k8s.io/v1/priorityclasses"] = []
    proxy.denied_to_muster.add(("patch", "jobs"))
    found = starts(sample, write(job("x", 1, "1")), status=3)["team/job/x"]
    assert (found["start"], found["reason"]) == ("Never", "NotAsked")
    assert found["detail"] == "Muster's account may not change jobs.batch: docs/reference/jobs.md#the-rights."


def test_a_namespace_that_there_is_not(sample: Cluster, write: Write) -> None:
    path = write(job("x", 1, "1"), job("y", 1, "1"))
    assert sample.refuses("plan", path, "-n", "nope", status=2) == (
        f'Error: {path}:1: namespaces "nope" not found'
    )


def test_an_existing_object_is_not_planned(sample: Cluster, write: Write) -> None:
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "timed"}}
    says = sample.refuses("plan", write({**group, "spec": {"minMember": 1, "queue": "q"}}), status=2)
    assert says == "Error: team/timed is in the cluster already; about what waits there, ask muster why"


def test_a_file_that_makes_no_sense(sample: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("{")
    result = sample.muster("plan", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bad.yaml:1: not YAML" in result.stderr


def test_a_user_who_may_not_read_the_whole_cluster_sees_the_needed_rights(
    sample: Cluster, write: Write
) -> None:
    sample.lock(("pods", ""))
    says = sample.refuses("plan", write(job("now", 2, "2")))
    assert says.startswith("muster plan ")
    assert "nodes, namespaces" in says


@pytest.mark.parametrize("seed", range(3))
def test_starts_are_those_of_a_simulation(cluster: Cluster, write: Write, seed: int) -> None:
    """Start the same gangs at the same times: same nodes, and run times as declared."""
    rng = random.Random(seed)
    head = {"apiVersion": "v1", "kind": "Node"}
    objects: list[Json] = [{**head, **node(f"n{number}", "4", "64Gi")} for number in range(3)]
    for name in "abcdefghij":
        seconds = rng.choice([60, 300, 900, 2400])
        group, *members = pods(name, rng.choice([1, 1, 2, 3, 5]), "default")
        objects.append({**group, "metadata": {"name": name, "annotations": {RUN_TIME: f"{seconds}s"}}})
        for member in members:
            member["metadata"]["annotations"] |= {"sim.kube-muster.io/run-seconds": str(seconds)}
        objects += members
    cluster.namespace("default")
    path = write(*objects)
    played = simulate(SimulationOptions(files=(Path(path),)))
    expected = {timeline.key: timeline.started_at for timeline in played.measurements.timelines.values()}
    result = cluster.muster("plan", path, "-n", "default", "-o", "json")
    found = {each["group"]: each.get("after", 0.0) for each in json.loads(result.stdout)["starts"]}
    assert found == pytest.approx(expected)
    assert max(found.values()) > 0
