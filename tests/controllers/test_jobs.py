"""Writes for jobs: each step once, with as few reads as possible."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.api import keys
from extender.api.objects.base import OwnerReference, condition, merged
from extender.api.objects.cluster import Event
from extender.api.objects.queues import PodGroupStatus
from extender.api.workloads.shape import VOLCANO_JOB, RuntimeName
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.patches import apply_json_patch
from extender.controllers.evictions import EvictionsController
from extender.controllers.jobs import JobsController, JobVersions, may_change_templates
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.snapshot import job_start_and_suspension
from extender.domain.snapshot.job_start_and_suspension import job_podgroup
from extender.domain.snapshot.jobs import AnyJob, JobKind
from extender.kube.errors import ApiError, Conflict, Forbidden, Invalid
from tests.controllers.bench import Bench
from tests.domain.builders import NAMESPACE, group, node, pod, queue
from tests.domain.job_world import BATCH, job, podgroup_name
from tests.domain.train_jobs import TRAIN_JOB, runtime
from tests.domain.volcano_world import task, volcano_job
from tests.domain.world import gang, timestamp
from tests.rows import each_of

SHOWN = 5.0
VOLCANO = JobKind(*VOLCANO_JOB)


class JobBench(Bench):
    """Bench that shows the controller the events of the watches."""

    def __init__(self, *objects: Any) -> None:
        super().__init__(*objects, auto_groups=True)
        self.starter = JobsController(self.means(), self.recorder, WORKLOADS)

    def submit(self, *jobs: AnyJob, version: str = "1", kind: JobKind = BATCH) -> "JobBench":
        for each in jobs:
            seen = replace(each, metadata=replace(each.metadata, resource_version=version))
            self.ledger.intake.set_ancestor(kind.kind, seen.metadata)
            self.ledger.intake.set_job(kind, seen)
            self.starter.on_job(kind, seen)
            self.api.jobs[each.metadata.name] = {
                "metadata": {"uid": each.metadata.uid, "resourceVersion": version, "annotations": {}},
                "spec": each.spec,
            }
        return self

    def show_podgroup(self, name: str) -> "JobBench":
        managed = self.ledger.managed_job(GroupKey(f"{NAMESPACE}/{podgroup_name(name)}"))
        assert managed is not None
        spec = job_podgroup(managed.job, managed.queue, managed.member_count)["spec"]
        self.add(group(podgroup_name(name), spec["minMember"], queue=spec["queue"]))
        return self

    def look(self) -> list[tuple[str, str]]:
        """Return the requests of one look, without events: verbs and names."""
        self.api.calls = []
        self.starter.on_decisions(self.settle().decisions)
        self.flush()
        return [(call[0], call[1]) for call in self.api.calls if not call[0].startswith("event")]


@contextmanager
def writing_bench(*objects: Any) -> Iterator[JobBench]:
    bench = JobBench(*objects)
    with bench.writing(), capture_logs():
        yield bench


def test_a_podgroup_of_a_job_is_created_once_however_late_the_watch_shows_it() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("train", 2))
        assert bench.look() == [("create group", podgroup_name("train"))]
        bench.submit(job("train", 2))
        assert bench.look() == []
        bench.advance(SHOWN)
        assert bench.look() == [("create group", podgroup_name("train"))], "it was not shown: it may be lost"


def test_the_podgroup_of_a_job_names_the_author_of_the_job() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("train", 2, annotations={keys.AUTHOR: "Job/ann"})).look()
        ((_, created),) = bench.api.done("create group")
        assert created["metadata"]["annotations"] == {keys.SUBMITTER: "ann"}


@each_of(("1", ("NeverFits", True)), ("2", ("NoRoom", True)), ("4", ("", False)))
def test_the_podgroup_of_a_job_has_the_reason_of_the_wait_from_its_creation(
    cpu: str, reported: tuple[str, bool]
) -> None:
    with writing_bench(node("n0", cpu=cpu), gang("first", 2)) as bench:
        bench.submit(job("train", 2)).look()
        ((_, created),) = bench.api.done("create group")
        status = msgspec.convert(created["status"], PodGroupStatus)
        scheduled = condition(status.conditions, keys.SCHEDULED)
        assert (scheduled.reason if scheduled else "", status.waiting is not None) == reported
        assert status.phase == "Pending"


def test_a_second_write_does_not_wait_for_the_watch_to_show_the_first_one() -> None:
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.submit(job("train", 2))
        bench.look()
        bench.show_podgroup("train").submit(job("train", 3))
        assert bench.look() == [("patch", podgroup_name("train"))]
        bench.submit(job("train", 4))
        assert bench.look() == [("patch", podgroup_name("train"))]
        *_, (_, patch) = bench.api.done("patch")
        assert patch["spec"] == {"minMember": 4, "minResources": {"cpu": "4"}}


def test_a_podgroup_deleted_with_its_job_is_not_created_again() -> None:
    """The watch of PodGroups is ahead of that of jobs: nothing would collect the new one."""
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.submit(job("train", 2)).look()
        bench.show_podgroup("train").look()
        del bench.api.jobs["train"]
        bench.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        assert bench.look() == [("job", "train")]
        bench.advance(SHOWN).submit(job("train", 2))
        assert bench.look() == [("job", "train"), ("create group", podgroup_name("train"))]


def test_a_podgroup_that_admission_refuses_is_an_event_of_the_job_and_tried_again_after_a_pause() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.api.fail("create group", Forbidden(403, "Forbidden", "not for you"))
        bench.submit(job("train", 2))
        assert bench.look() == [("create group", podgroup_name("train"))]
        ((_, event),) = bench.api.done("event")
        about = event["involvedObject"]
        assert (about["kind"], about["name"], event["reason"]) == ("Job", "train", "PodGroupRefused")
        assert "not for you" in event["message"]
        bench.advance(2.0)
        assert bench.look() == [("create group", podgroup_name("train"))]


def test_a_job_is_unsuspended_without_being_read() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("train", 2), version="7").look()
        assert bench.show_podgroup("train").look() == [("merge job", "train")]
        (((_, patch),)) = bench.api.done("merge job")
        assert patch["metadata"]["resourceVersion"] == "7"
        assert patch["metadata"]["uid"] == "uid-train"
        assert patch["spec"]["suspend"] is False
        named = patch["spec"]["template"]["metadata"]["annotations"]
        assert named == {keys.GROUP_ANNOTATION: podgroup_name("train")}
        assert bench.look() == []


def test_a_job_that_has_changed_is_read_before_it_is_unsuspended() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("train", 2)).look()
        bench.api.fail("merge job", Conflict(409, "Conflict"))
        assert bench.show_podgroup("train").look() == [("merge job", "train")]
        bench.advance(2.0)
        assert bench.look() == [("job", "train"), ("patch job", "train")]


TOO_LONG = "metadata.annotations: Too long: may not be more than 262144 bytes"


@each_of(*product([Invalid(422, "Invalid", TOO_LONG), Forbidden(403, "Forbidden", TOO_LONG)], [False, True]))
def test_a_job_that_may_not_be_unsuspended_holds_no_capacity(fault: ApiError, is_read: bool) -> None:
    """Its author has filled its annotations: it is tried again, ever more rarely, and runs once it may."""
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("full", 4)).look()
        if is_read:
            bench.starter.forget(GroupKey(f"{NAMESPACE}/{podgroup_name('full')}"))
        bench.show_podgroup("full")
        bench.api.fail("patch job" if is_read else "merge job", fault)
        bench.look()
        assert bench.settle().reason(podgroup_name("full")) is Reason.BACKING_OFF
        assert TOO_LONG in bench.decision(podgroup_name("full")).detail
        events = [call[2] for call in bench.api.calls if call[0] == "event"]
        assert {each["reason"] for each in events} == {"StartGivenUp"}
        assert {each["involvedObject"]["name"] for each in events} == {"full", podgroup_name("full")}
        bench.add(gang("other", 4)).settle()
        assert len(bench.plan("other")) == 4
        bench.delete(*(f"other-{n}" for n in range(4))).advance(6.0)
        assert [verb for verb, _ in bench.look()][-1:] in (["patch job"], ["merge job"])


def test_a_job_that_changed_while_it_was_unsuspended_keeps_its_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server answers a test that fails as it does what is invalid."""
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.submit(job("train", 2)).look()
        bench.starter.forget(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        bench.show_podgroup("train")

        def changed(*_: Any) -> None:
            bench.api.jobs["train"]["metadata"]["resourceVersion"] = "2"
            raise Invalid(422, "Invalid", "the server rejected our request")

        monkeypatch.setattr(bench.api, "patch_job", changed)
        bench.look()
        assert bench.settle().decision(podgroup_name("train")).verdict is Verdict.STARTING


@each_of({}, {"annotations": {"kept": "yes"}})
def test_unsuspending_writes_the_same_with_and_without_a_read(metadata: dict[str, Any]) -> None:
    read = msgspec.to_builtins(job("a"))
    head = {"name": "a", "uid": "uid-a", "resourceVersion": "7"}
    obj = {"metadata": {**head, **metadata}, "spec": read["spec"]}
    template = ("spec", "template", "metadata", "annotations")
    as_read = job_start_and_suspension.unsuspend(obj, WORKLOADS[BATCH], [template], "g", "now")
    unread = job_start_and_suspension.unsuspend_unread(
        "uid-a", "7", ("spec", "suspend"), [template], "g", "now"
    )
    assert merged(obj, unread) == apply_json_patch(deepcopy(obj), as_read)


@each_of(True, False)
def test_resource_versions_are_remembered_for_waiting_jobs_only(suspended: bool) -> None:
    versions, key = JobVersions(WORKLOADS), GroupKey("default/a")
    versions.record(key, BATCH, job("a"))
    versions.record(key, BATCH, job("a", suspended=suspended))
    assert len(versions) == suspended


def test_the_template_of_a_job_that_has_run_is_left_as_it_is() -> None:
    """Leave it alone: before 1.36 the API server refuses to change it."""
    ran = replace(job("a"), status={"startTime": "2026-01-01T00:00:00Z"})
    versions = JobVersions(WORKLOADS)
    versions.record(GroupKey("default/a"), BATCH, ran)
    assert len(versions) == 0
    assert not may_change_templates({"apiVersion": "batch/v1", "kind": "Job", "status": ran.status})
    assert may_change_templates({"apiVersion": "ray.io/v1", "kind": "RayJob", "status": ran.status})


def test_a_kind_with_lists_on_the_way_to_its_templates_is_always_read() -> None:
    versions, key = JobVersions(WORKLOADS), GroupKey("default/a")
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": job("a").spec}}]
    job_set = replace(job("a"), spec={"suspend": True, "replicatedJobs": jobs})
    versions.record(key, JobKind("jobset.x-k8s.io/v1alpha2", "JobSet"), job_set)
    assert versions.pop(key, None) is None


def test_a_job_with_templates_in_another_object_names_its_group_before_it_is_unsuspended() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        bench.ledger.intake.set_runtime(RuntimeName("ClusterTrainingRuntime", "", "torch"), runtime())
        train = replace(job("train"), spec={"suspend": True, "runtimeRef": {"name": "torch"}})
        bench.submit(train, kind=TRAIN_JOB).look()
        writes = bench.show_podgroup("train").look()
        assert writes == [("job", "train"), ("patch job", "train")] * 2
        (_, flagged), (_, admitted) = bench.api.done("patch job")
        written = {each["path"]: each["value"] for each in flagged}
        assert written["/metadata/resourceVersion"] == "1"
        (override,) = written["/spec/podTemplateOverrides"]
        assert override["targetJobs"] == [{"name": "node"}]
        assert override["metadata"] == {"annotations": {keys.GROUP_ANNOTATION: podgroup_name("train")}}
        assert {"op": "replace", "path": "/spec/suspend", "value": False} in admitted
        assert not any("/suspend" in each["path"] for each in flagged)


def test_a_deleted_podgroup_of_a_job_is_created_again_at_once() -> None:
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.submit(job("train", 2)).look()
        assert bench.show_podgroup("train").look() == []
        bench.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        assert bench.look() == [("job", "train"), ("create group", podgroup_name("train"))]


def test_nothing_is_remembered_of_a_job_that_is_gone() -> None:
    with writing_bench(node("n0", cpu="1")) as bench:
        bench.submit(job("train", 2)).look()
        bench.ledger.intake.drop_job(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        bench.starter.forget(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        assert bench.look() == []
        assert bench.submit(job("train", 2)).look() == [("create group", podgroup_name("train"))]


def test_a_start_that_is_given_up_counts_once_however_often_it_is_written() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        ran = job("train", 2, suspended=False, annotations={keys.STARTED: "2026-01-01T00:00:00Z"})
        bench.submit(ran).look()
        bench.show_podgroup("train").look()
        bench.advance(301.0)
        assert bench.look() == [("job", "train"), ("patch job", "train"), ("patch", podgroup_name("train"))]
        bench.api.jobs["train"]["spec"] = {**ran.spec, "suspend": True}
        bench.advance(SHOWN)
        assert bench.look() == [("job", "train")], "it is suspended already, but was not shown yet"


@contextmanager
def giving_way() -> Iterator[JobBench]:
    """Yield a job of four pods that is to be suspended for others."""
    with writing_bench(node("n0", cpu="4"), queue("due"), queue("greedy")) as bench:
        ran = job("train", 4, suspended=False, queue="greedy", annotations={keys.STARTED: STARTED})
        bench.submit(ran).look()
        bench.show_podgroup("train")
        bench.add(
            [pod(f"train-{n}", podgroup_name("train"), on="n0", phase="Running") for n in range(4)]
        ).look()
        bench.add(gang("x", 2, queue="due")).settle()
        yield bench


def test_reclaimed_amounts_are_written_before_a_job_is_suspended() -> None:
    """Write the claim first, so that it is known even if Muster is killed right after the suspension."""
    with giving_way() as bench:
        steps = [("job", "train"), ("patch job", "train")]
        assert bench.look() == [("queue-status", "due"), *steps]
        (((_, changes),)) = bench.api.done("patch job")
        tested = [each["path"] for each in changes if each["op"] == "test"]
        assert tested == ["/metadata/uid"], "constant changes of a user do not prevent its suspension"


def test_pods_of_a_job_that_is_not_suspended_are_evicted_after_a_while_and_slow_ones_at_once() -> None:
    """A pod that terminates too slowly gets a shorter grace period by its eviction."""
    for terminates, looks in ((False, {0.0: 0, 29.0: 0, 2.0: 4}), (True, {0.0: 4})):
        with giving_way() as bench:
            evictor = EvictionsController(bench.means(), bench.recorder)
            for name in list(bench.pods)[:4] if terminates else ():
                before = bench.pods[name]
                going = replace(before.metadata, deletion_timestamp=timestamp(bench.now + 2e9))
                bench.add(replace(before, metadata=going))
            for seconds, evicted in looks.items():
                bench.advance(seconds).settle()
                evictor.on_decisions(bench.decisions)
                bench.flush()
                assert len(bench.api.done("evict")) == evicted


# ---- Volcano Jobs, which no field suspends


def shown_volcano_job(
    bench: JobBench, phase: str = "", started: str | None = None, queue_name: str = "default"
) -> JobBench:
    new_job = volcano_job("train", task("a", 2), phase=phase, queue=queue_name)
    notes = {} if started is None else {keys.STARTED: started}
    bench.ledger.intake.leave_jobs(())
    bench.submit(
        replace(new_job, metadata=replace(new_job.metadata, annotations=notes)), version="7", kind=VOLCANO
    )
    bench.add(group("train-uid-train", 2, queue=queue_name, min_resources={"cpu": "2"}))
    bench.api.jobs["train"]["status"] = new_job.status
    bench.api.jobs["train"]["metadata"]["annotations"] = notes
    bench.api.jobs["train"] |= {"apiVersion": VOLCANO[0], "kind": VOLCANO[1]}
    return bench


def test_a_volcano_job_is_admitted_by_its_annotation_without_being_read() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        assert shown_volcano_job(bench).look() == [("merge job", "train")]
        ((_, patch),) = bench.api.done("merge job")
        seen = {"uid": "uid-train", "resourceVersion": "7"}
        (key,) = patch["metadata"].pop("annotations")
        assert (key, patch) == (keys.STARTED, {"metadata": seen})


def test_jobs_left_to_volcano_are_not_written() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        shown_volcano_job(bench).ledger.intake.leave_jobs((VOLCANO,))
        assert bench.look() == []


def test_a_volcano_job_admitted_too_late_is_suspended_again_by_an_empty_annotation() -> None:
    with writing_bench(node("n0", cpu="4")) as bench:
        shown_volcano_job(bench, "Running", STARTED).look()
        bench.advance(301.0)
        assert ("patch job", "train") in bench.look()
        ((_, changes),) = bench.api.done("patch job")
        test, change = changes
        assert test == {"op": "test", "path": "/metadata/uid", "value": "uid-train"}
        assert change["value"] == ""
        assert change["path"].endswith("kube-muster.io~1started")


def test_a_volcano_job_that_ran_too_long_is_stopped_by_one_command() -> None:
    with writing_bench(node("n0", cpu="4"), queue("q", max_run_time="1h")) as bench:
        shown_volcano_job(bench, "Running", STARTED, "q").look()
        bench.advance(3601.0)
        name = "train-uid-train-stop"
        assert bench.look() == [("job", "train"), ("create command", name)]
        ((_, command),) = bench.api.done("create command")
        assert command["action"] == "AbortJob"
        assert command["metadata"]["ownerReferences"] == [command["target"]]
        target = {"apiVersion": VOLCANO[0], "kind": "Job", "name": "train", "uid": "uid-train"}
        assert command["target"] == target | {"controller": True}


def test_a_job_stopped_by_a_command_waits_once_it_is_resumed() -> None:
    """Its note of the last start would let it go at once."""
    with writing_bench(node("n0", cpu="4")) as bench:
        writes = shown_volcano_job(bench, "Aborted", STARTED).look()
        assert writes == [("job", "train"), ("patch job", "train")]
        ((_, changes),) = bench.api.done("patch job")
        assert changes[-1]["value"] == ""


# ---- pods that are refused


STARTED = "2026-01-01T00:00:10Z"
QUOTA = "exceeded quota: q, requested: pods=1"
REFUSED = f'Error creating: pods "train-x7k2p" is forbidden: {QUOTA}'


def failed_create(
    message: str = REFUSED, at: str = STARTED, reason: str = "FailedCreate", about: str = "train"
) -> Event:
    return Event(OwnerReference("batch/v1", "Job", about), "Warning", reason, message, 1, at)


@contextmanager
def started(*events: Event) -> Iterator[JobBench]:
    """Yield an admitted job of two pods, none of which came at once."""
    with writing_bench(node("n0", cpu="4")) as bench:
        ran = job("train", 2, suspended=False, annotations={keys.STARTED: STARTED})
        bench.submit(ran).look()
        bench.show_podgroup("train").look()
        bench.api.events["involvedObject.uid=uid-train"] = list(events)
        bench.advance(2.0)
        assert bench.look() == [("warnings", "involvedObject.uid=uid-train")]
        yield bench


def why_given_up(bench: JobBench) -> str:
    assert bench.look() == [("job", "train"), ("patch job", "train")], "it is no start that came too late"
    messages = {event["message"] for _, event in bench.api.done("event") if event["reason"] == "StartGivenUp"}
    (message,) = messages
    return str(message).partition("queue default: ")[2].partition(" refused: ")[2]


def test_a_job_whose_pods_are_refused_is_suspended_in_the_words_of_the_api() -> None:
    with started(failed_create("an older one", at="2026-01-01T00:00:09Z"), failed_create()) as bench:
        assert why_given_up(bench) == QUOTA
        assert bench.look() == []


def test_a_huge_event_is_cut_after_its_first_kilobytes() -> None:
    with started(failed_create("x" * 1_000_000)) as bench:
        managed = bench.ledger.managed_job(GroupKey(f"{NAMESPACE}/{podgroup_name('train')}"))
        assert managed is not None
        assert 2000 < len(managed.failure) < 2200


@each_of(
    (failed_create("(combined from similar events): " + REFUSED), QUOTA),
    (failed_create('Error creating: admission webhook "w" denied it'), 'admission webhook "w" denied it'),
    (failed_create(at="2026-01-01T00:00:10.123456Z"), QUOTA),
    (failed_create("no more", reason="FailedCreatePod"), "no more"),
    (failed_create("no more", reason="FailedToCreateWorkerPod"), "no more"),
)
def test_how_kinds_say_that_pods_are_refused(event: Event, words: str) -> None:
    with started(event) as bench:
        assert why_given_up(bench) == words


@each_of(failed_create(at="2026-01-01T00:00:09Z"), failed_create(reason="BackoffLimitExceeded"))
def test_an_event_of_an_earlier_start_does_not_end_this_start(event: Event) -> None:
    with started(event) as bench:
        assert bench.look() == []
        bench.advance(2.0)
        assert bench.look() == [("warnings", "involvedObject.uid=uid-train")]


def test_without_the_right_to_read_events_requests_are_equally_rare() -> None:
    with started() as bench:
        bench.api.fail("warnings", Forbidden(403, "Forbidden"))
        bench.advance(2.0)
        assert bench.look() == [("warnings", "involvedObject.uid=uid-train")]
        bench.advance(3.0)
        assert bench.look() == []


def test_events_of_many_jobs_without_pods_are_read_a_few_each_second() -> None:
    """Limit the look-ups: where pods are only slow to come, looking for refusals delays them."""
    with writing_bench(node("n0", cpu="100")) as bench:
        for name in (f"job-{number}" for number in range(20)):
            ran = job(name, 2, suspended=False, annotations={keys.STARTED: STARTED})
            bench.submit(ran).look()
            bench.show_podgroup(name).look()
        bench.advance(2.0)
        assert [what for what, _ in bench.look()] == ["warnings"] * 8
        bench.advance(1.0)
        assert [what for what, _ in bench.look()] == ["warnings"] * 2


@contextmanager
def started_parent(kind: JobKind, spec: dict[str, Any]) -> Iterator[JobBench]:
    """Yield an admitted job whose pods other objects make, and none came."""
    with writing_bench(node("n0", cpu="4")) as bench:
        started_job = replace(job("train", annotations={keys.STARTED: STARTED}), spec=spec)
        bench.submit(started_job, kind=kind).look()
        bench.show_podgroup("train").look()
        bench.api.jobs["train"] |= {"apiVersion": kind.api_version, "kind": kind.kind}
        bench.api.jobs["train"]["metadata"] |= {"name": "train", "namespace": NAMESPACE}
        bench.advance(2.0)
        yield bench


def test_events_of_a_jobs_children_say_why_its_pods_are_missing() -> None:
    """Read the Jobs of a JobSet, and no other Job with a similar name."""
    template = {"spec": job("a").spec["template"]["spec"]}
    spec = {"parallelism": 1, "template": template}
    sets = [
        {"name": "workers", "replicas": 2, "template": {"spec": spec}},
        {"name": "none", "replicas": 2**31 - 1, "template": {"spec": {**spec, "parallelism": 0}}},
    ]
    with started_parent(JobKind("jobset.x-k8s.io/v1alpha2", "JobSet"), {"replicatedJobs": sets}) as bench:
        bench.api.events["involvedObject.kind=Job,reason=FailedCreate"] = [
            failed_create("not this one", about="train-workers-2"),
            failed_create(about="train-workers-1"),
        ]
        of_parts = [("job", "train"), ("warnings", "involvedObject.kind=Job,reason=FailedCreate")]
        assert bench.look() == [("warnings", "involvedObject.uid=uid-train"), *of_parts]
        assert why_given_up(bench) == QUOTA


def test_events_of_children_with_random_names_say_why_the_pods_are_missing() -> None:
    """A RayJob's cluster, in the words of its operator; not one of somebody else."""
    template = {"spec": job("a").spec["template"]["spec"]}
    cluster = {"headGroupSpec": {"template": template}}

    def refused(message: str, name: str) -> Event:
        about = OwnerReference("ray.io/v1", "RayCluster", name)
        return Event(about, "Warning", "FailedToCreateHeadPod", message, 1, STARTED)

    with started_parent(JobKind("ray.io/v1", "RayJob"), {"rayClusterSpec": cluster}) as bench:
        bench.api.events["involvedObject.kind=RayCluster"] = [
            refused("not this one", "train-2-x7k2p"),
            refused(REFUSED, "train-x7k2p"),
        ]
        bench.look()
        assert why_given_up(bench) == QUOTA
