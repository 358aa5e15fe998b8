"""CronJobs of Volcano: their Jobs are created and removed, through lost answers, conflicts and lost leads."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.api.objects.base import Meta, OwnerReference, merged
from extender.api.objects.volcano import CronJob, CronJobSpec, JobStatus, Json, VolcanoJob, VolcanoJobState
from extender.controllers.volcano_cron_jobs import VolcanoCronJobsController
from extender.domain.model.records import Uid
from extender.kube.errors import Conflict, Forbidden, NotFound, Unreachable
from extender.kube.reflector import Removed
from extender.kube.resources import Resource
from tests.controllers.api import Api
from tests.controllers.bench import Bench

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
MINUTE = int(NOON) // 60


class CronApi(Api):
    """Jobs by name; all belong to the CronJob, but for those of `others`."""

    def __init__(self) -> None:
        super().__init__()
        self.crons: dict[str, CronJob] = {}
        self.others: set[str] = set()

    def create_owned(self, kind: Resource, namespace: str, obj: Json, owner: str) -> Json:
        name = obj["metadata"]["name"]
        self._record("create", name)
        if name in self.others:
            raise Conflict(409, "AlreadyExists")
        return self.jobs.setdefault(name, obj)

    def delete_volcano_job(self, namespace: str, name: str, uid: str) -> None:
        self._record("delete", name)
        if self.jobs.pop(name, None) is None:
            raise NotFound(404, "NotFound")

    def patch_cron_job_status(self, namespace: str, name: str, patch: Json) -> CronJob:
        self._record("status", name, patch["status"])
        before = self.crons[name]
        if patch["metadata"]["resourceVersion"] != before.metadata.resource_version:
            raise Conflict(409, "Conflict")
        version = str(int(before.metadata.resource_version) + 1)
        whole = merged(msgspec.to_builtins(before), {"status": patch["status"]})
        whole["metadata"]["resourceVersion"] = version
        self.crons[name] = msgspec.convert(whole, CronJob)
        return self.crons[name]


class CronJobBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.began, self.cron_api, self.is_left = self.now, CronApi(), False
        self.controller = VolcanoCronJobsController(
            self.means(self.cron_api),
            self.recorder,
            lambda: self.is_left,
            lambda: NOON + 1 + self.now - self.began,
        )

    def put_queues(self, name: str = "c", **spec: Any) -> CronJob:
        """Store a CronJob that had a Job at 11:55."""
        spec = {"schedule": "*/5 * * * *", **spec}
        meta = Meta(
            name=name,
            namespace="lab",
            uid=name,
            resource_version="1",
            creation_timestamp="2026-01-01T11:56:00Z",
        )
        cron = CronJob(meta, replace(CronJobSpec(), **spec))
        self.cron_api.crons[name] = cron
        self.controller.upsert(cron)
        return cron

    def show(self, name: str, phase: str = "Running", namespace: str = "lab") -> None:
        """Show a Job in the watch; one of another namespace may name the CronJob as its owner, too."""
        metadata = self.cron_api.jobs[name]["metadata"] if namespace == "lab" else {"annotations": {}}
        owners = [OwnerReference("batch.volcano.sh/v1alpha1", "CronJob", "c", "c", True)]
        at = "2026-01-01T12:00:00Z"
        meta = Meta(
            name,
            namespace,
            name,
            creation_timestamp=at,
            annotations=metadata["annotations"],
            owner_references=owners,
        )
        state = VolcanoJobState(phase=phase, last_transition_time=at)
        self.controller.on_job(VolcanoJob(meta, status=JobStatus(state=state)))

    def look(self, seconds: float = 0.0) -> list[tuple[str, str]]:
        """Return the writes of a look, and those that follow from them at once."""
        self.now += seconds
        self.cron_api.calls = []
        for _ in range(2):
            self.controller.on_decisions(self.settle().decisions)
            self.flush()
        return [(call[0], call[1]) for call in self.cron_api.calls]

    def events(self) -> list[str]:
        return [event["message"] for _, event in self.api.done("event")]


@pytest.fixture
def bench() -> Iterator[CronJobBench]:
    new_bench = CronJobBench()
    with new_bench.writing():
        yield new_bench


CREATED = [("create", f"c-{MINUTE}"), ("status", "c")]


def test_a_job_is_created_at_its_time_and_shown_in_the_status(bench: CronJobBench) -> None:
    bench.put_queues()
    assert bench.look() == CREATED
    assert bench.look(60) == []
    bench.show(f"c-{MINUTE}")
    assert bench.look() == [("status", "c")]
    assert [active.name for active in bench.cron_api.crons["c"].status.active or ()] == [f"c-{MINUTE}"]
    assert bench.look(240) == [("create", f"c-{MINUTE + 5}"), ("status", "c")]


def test_old_jobs_are_deleted(bench: CronJobBench) -> None:
    bench.put_queues(successful_jobs_history_limit=0)
    bench.look()
    bench.show(f"c-{MINUTE}", "Completed")
    assert bench.look() == [("delete", f"c-{MINUTE}"), ("status", "c")]
    bench.controller.forget(Uid(f"c-{MINUTE}"))
    assert bench.look() == []


@pytest.mark.parametrize("step", ["create", "status"])
def test_a_lost_answer_makes_no_second_job(bench: CronJobBench, step: str) -> None:
    bench.put_queues()
    bench.cron_api.fail(step, Unreachable("gone"))
    bench.look()
    assert set(bench.look(31)) <= {*CREATED}
    bench.look(31)
    assert list(bench.cron_api.jobs) == [f"c-{MINUTE}"]
    assert bench.cron_api.crons["c"].status.last_schedule_time == "2026-01-01T12:00:00Z"


def test_a_conflicting_status_is_written_on_the_newer_version(bench: CronJobBench) -> None:
    cron = bench.put_queues()
    newer = replace(cron, metadata=replace(cron.metadata, resource_version="5"))
    bench.cron_api.crons["c"] = newer
    assert bench.look() == CREATED
    assert bench.cron_api.crons["c"].status.last_schedule_time is None
    bench.controller.upsert(newer)
    assert bench.look(5) == CREATED
    assert bench.cron_api.crons["c"].status.last_schedule_time == "2026-01-01T12:00:00Z"


def test_a_job_of_others_is_left_unchanged_and_its_time_is_skipped(bench: CronJobBench) -> None:
    bench.put_queues()
    bench.cron_api.others.add(f"c-{MINUTE}")
    assert bench.look() == CREATED
    assert bench.events() == [f"Job c-{MINUTE} is not its own: this time is left out"]
    assert bench.look(60) == []


def test_a_job_of_another_namespace_stops_no_run_whatever_owner_it_names(bench: CronJobBench) -> None:
    bench.put_queues(concurrency_policy="Forbid")
    bench.show("forged", namespace="elsewhere")
    assert bench.look() == CREATED
    assert bench.cron_api.crons["c"].status.active is None


def test_a_refused_job_is_reported_and_tried_again(bench: CronJobBench) -> None:
    bench.put_queues()
    bench.cron_api.fail("create", Forbidden(403, "Forbidden", "no queue"))
    assert bench.look() == [CREATED[0]]
    assert bench.events() == ["Error creating: no queue"]
    assert bench.look(5) == CREATED


def test_a_fault_is_reported_once(bench: CronJobBench) -> None:
    wrong = bench.put_queues(schedule="often")
    assert bench.look() == []
    bench.controller.upsert(wrong)
    bench.look()
    assert len(bench.events()) == 1


def test_nothing_is_written_while_volcano_runs_cron_jobs_or_another_replica_leads(
    bench: CronJobBench,
) -> None:
    bench.put_queues()
    bench.is_left = True
    assert bench.look() == []
    bench.is_left, bench.leading = False, False
    assert bench.look() == []
    bench.leading = True
    assert bench.look() == CREATED


def test_a_deleted_object_is_forgotten(bench: CronJobBench) -> None:
    bench.put_queues()
    bench.look()
    bench.show(f"c-{MINUTE}")
    bench.controller.remove(Removed("lab", "c", "c"))
    bench.controller.forget(Uid(f"c-{MINUTE}"))
    assert bench.look(300) == []
    left = {
        name: reserved
        for name, reserved in vars(bench.controller).items()
        if isinstance(reserved, dict | set)
    }
    assert not any(left.values()), left
