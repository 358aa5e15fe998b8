"""CronJobs of batch.volcano.sh: when Jobs are due, and which of them stay."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.keys import MAY_USE
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.volcano import (
    CronJob,
    CronJobSpec,
    CronJobStatus,
    JobStatus,
    JobTemplate,
    VolcanoJob,
    VolcanoJobState,
)
from extender.volcano.cron import CronPlan, Schedule, cron_plan
from tests.rows import each_of

BERLIN = "Europe/Berlin"


def timestamp_of(text: str, zone: str = "UTC") -> float:
    """Return the timestamp of a text such as 2026-03-29T02:30 in a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def minute_of(seconds: float | None, zone: str = "UTC") -> str | None:
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M")
    )


def cron(created: str = "2026-01-01T00:00:00Z", last: str | None = None, **spec: Any) -> CronJob:
    template = JobTemplate(Meta(labels={"team": "a"}, annotations={"own": "1"}), {"queue": "q"})
    said = replace(CronJobSpec(schedule="*/5 * * * *", job_template=template), **spec)
    meta = Meta(name="nightly", namespace="lab", uid="c1", creation_timestamp=created)
    return CronJob(meta, said, CronJobStatus(last_schedule_time=last))


def job(name: str, phase: str = "Running", made: str = "2026-01-01T00:00:00Z", **meta: Any) -> VolcanoJob:
    state = VolcanoJobState(phase=phase, last_transition_time=made)
    owners = [OwnerReference(kind="CronJob", uid="c1", controller=True)]
    said = Meta(
        name=name, uid=name, namespace="lab", creation_timestamp=made, owner_references=owners, **meta
    )
    return VolcanoJob(said, status=JobStatus(state=state))


def created_name(plan: CronPlan) -> str | None:
    return plan.job_to_create["metadata"]["name"] if plan.job_to_create else None


def named(instant: str) -> str:
    return f"nightly-{int(timestamp_of(instant)) // 60}"


# ---- schedules


@each_of(
    ("*/5 * * * *", "2026-01-01T10:02", "2026-01-01T10:00", "2026-01-01T10:05"),
    ("*/5 * * * *", "2026-01-01T10:05", "2026-01-01T10:05", "2026-01-01T10:10"),
    ("0 3 * * MON", "2026-01-01T00:00", "2025-12-29T03:00", "2026-01-05T03:00"),
    ("@hourly", "2026-01-01T10:30", "2026-01-01T10:00", "2026-01-01T11:00"),
    ("@monthly", "2026-01-15T10:30", "2026-01-01T00:00", "2026-02-01T00:00"),
    ("0 0 29 2 ?", "2026-01-01T00:00", "2024-02-29T00:00", "2028-02-29T00:00"),
    # A day that is the 13th or a Friday: both are restricted.
    ("0 0 13 * FRI", "2026-01-10T00:00", "2026-01-09T00:00", "2026-01-13T00:00"),
    # Every second day or a Monday: a step restricts, too.
    ("0 0 */2 * MON", "2026-01-03T12:00", "2026-01-03T00:00", "2026-01-05T00:00"),
    ("0 0 */1 * MON", "2026-01-06T12:00", "2026-01-05T00:00", "2026-01-12T00:00"),
)
def test_the_times_of_a_schedule(expression: str, now: str, last: str, upcoming: str) -> None:
    schedule = Schedule(expression, None)
    assert (minute_of(schedule.last(timestamp_of(now))), minute_of(schedule.next(timestamp_of(now)))) == (
        last,
        upcoming,
    )


def test_the_skipped_hour_is_made_up_for_and_the_repeated_hour_counts_once() -> None:
    schedule = Schedule("30 2 * * *", BERLIN)
    assert minute_of(schedule.next(timestamp_of("2026-03-28T12:00", BERLIN)), BERLIN) == "2026-03-29T03:00"
    first = timestamp_of("2026-10-25T02:30", BERLIN)
    assert schedule.next(timestamp_of("2026-10-24T12:00", BERLIN)) == first
    assert minute_of(schedule.next(first), BERLIN) == "2026-10-26T02:30"


FIVE_FIELDS = "is to have five fields"


@each_of(
    ("", None, FIVE_FIELDS),
    ("0 0 * * * *", None, FIVE_FIELDS),
    ("@every 5m", None, FIVE_FIELDS),
    ("TZ=UTC 0 0 * * *", None, FIVE_FIELDS),
    ("61 * * * *", None, "Bad minute"),
    ("0 0 31 2 *", None, "Bad day-of-month"),
    ("0 0 1 1 " + "9" * 5000, None, "schedule"),
    ("* * * * *", "Mars/Olympus", "timeZone 'Mars/Olympus' is not known"),
    ("* * * * *", "../../etc/passwd", "is not known"),
    ("* * * * *", "", None),
)
def test_an_invalid_schedule_is_reported(expression: str, zone: str | None, said: str | None) -> None:
    if said is None:
        assert Schedule(expression, zone).next(0.0) == 60.0
    else:
        with pytest.raises(ValueError, match=said) as refused:
            Schedule(expression, zone)
        assert len(str(refused.value)) < 250


def test_the_kind_refuses_a_schedule_without_five_fields() -> None:
    folder = Path(__file__).parents[2] / "manifests" / "volcano-jobs"
    kind = yaml.safe_load((folder / "crd-cron-jobs.yaml").read_text())
    spec = kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    pattern = re.compile(spec["properties"]["schedule"]["pattern"], re.ASCII)
    for expression in ("*/5 * * * *", " 0  3 * * MON ", "@daily", "61 * * * *"):
        assert pattern.search(expression)
    for expression in ("", "0 0 * * * *", "@every 5m", "TZ=UTC 0 0 * * *", "* * * *"):
        assert not pattern.search(expression)
    assert {spec["properties"][name]["maxLength"] for name in ("schedule", "timeZone")} == {200}


FIELDS = ["*", "*/7", "0", "1-5", "3,9"]
EXPRESSIONS = st.tuples(*[st.sampled_from(FIELDS)] * 2, *[st.sampled_from(["*", "*/2", "5"])] * 3).map(
    " ".join
)


@given(EXPRESSIONS, st.sampled_from(["UTC", BERLIN, "Australia/Lord_Howe"]), st.floats(1.7e9, 1.9e9))
def test_now_lies_between_the_last_time_and_the_next(expression: str, zone: str, now: float) -> None:
    schedule = Schedule(expression, zone)
    last, upcoming = schedule.last(now), schedule.next(now)
    assert last is not None
    assert upcoming is not None
    assert last <= now < upcoming
    assert last % 60 == upcoming % 60 == 0


# ---- what is due

NOON = "2026-01-01T12:00"


def test_one_job_of_the_template_is_created_at_each_time() -> None:
    plan = cron_plan(cron(last="2026-01-01T11:55:00Z", time_zone=BERLIN), [], timestamp_of(NOON) + 2)
    assert plan.job_to_create is not None
    assert plan.job_to_create["spec"] == {"queue": "q"}
    meta = plan.job_to_create["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == (named(NOON), "lab", {"team": "a"})
    scheduled = {"volcano.sh/cronjob-scheduled-timestamp": "2026-01-01T13:00:00+01:00"}
    assert meta["annotations"] == {"own": "1", **scheduled}
    assert meta["ownerReferences"][0]["uid"] == "c1"
    assert plan.status.last_schedule_time == "2026-01-01T12:00:00Z"
    assert plan.due_at == timestamp_of("2026-01-01T12:05")

    after = cron_plan(replace(cron(), status=plan.status), [], timestamp_of(NOON) + 3)
    assert (after.job_to_create, after.due_at) == (None, plan.due_at)


@each_of((None, None), ("vip/CronJob", "vip/Job"), ("vip/Job", None), ("/CronJob", None), ("vip", None))
def test_jobs_have_the_right_recorded_on_the_cron_job_and_not_in_its_template(
    recorded: str | None, passed_on: str | None
) -> None:
    template = JobTemplate(Meta(annotations={MAY_USE: "any/Job", "own": "1"}), {"queue": "vip"})
    written = cron(last="2026-01-01T11:55:00Z", job_template=template)
    notes = {} if recorded is None else {MAY_USE: recorded}
    written = replace(written, metadata=replace(written.metadata, annotations=notes))
    made = cron_plan(written, [], timestamp_of(NOON) + 2).job_to_create
    assert made is not None
    assert made["metadata"]["annotations"].get(MAY_USE) == passed_on
    assert made["metadata"]["annotations"]["own"] == "1"


def test_an_existing_job_counts_although_the_status_was_not_written() -> None:
    new_job = job(
        named(NOON), annotations={"volcano.sh/cronjob-scheduled-timestamp": "2026-01-01T13:00:00+01:00"}
    )
    plan = cron_plan(cron(last="2026-01-01T11:55:00Z"), [new_job], timestamp_of(NOON) + 60)
    assert plan.job_to_create is None
    assert plan.status.last_schedule_time == "2026-01-01T12:00:00Z"
    assert [active.name for active in plan.status.active or ()] == [new_job.metadata.name]


@each_of(
    ({}, "2026-01-01T12:03", named("2026-01-01T12:00")),  # the last of many that were missed
    ({"starting_deadline_seconds": 60}, "2026-01-01T12:03", None),
    ({"starting_deadline_seconds": 200}, "2026-01-01T12:03", named("2026-01-01T12:00")),
    ({"suspend": True}, "2026-01-01T12:03", None),
    ({"schedule": "0 0 1 6 *"}, "2026-01-01T12:03", None),  # not since it was created
)
def test_times_that_were_missed(spec: dict[str, Any], now: str, name: str | None) -> None:
    assert created_name(cron_plan(cron(last="2026-01-01T09:00:00Z", **spec), [], timestamp_of(now))) == name


@each_of(
    ("Allow", "Running", True, []),
    ("Forbid", "Running", False, []),
    ("Forbid", "", False, []),
    ("Forbid", "Aborted", False, []),  # it may be resumed
    ("Forbid", "Completed", True, []),
    ("Forbid", "Terminated", True, []),
    ("Replace", "Running", True, ["before"]),
    ("Replace", "Failed", True, []),
)
def test_concurrency_policies_while_another_job_runs(
    policy: str, phase: str, makes: bool, removes: list[str]
) -> None:
    plan = cron_plan(cron(concurrency_policy=policy), [job("before", phase)], timestamp_of(NOON))
    assert (plan.job_to_create is not None) is makes
    assert [gone.metadata.name for gone in plan.jobs_to_delete] == removes
    assert plan.due_at == timestamp_of("2026-01-01T12:05")


def test_a_waiting_run_starts_when_the_other_job_ends() -> None:
    waiting = cron(last="2026-01-01T11:55:00Z", concurrency_policy="Forbid")
    reserved = cron_plan(waiting, [job("before")], timestamp_of(NOON)).status
    after = cron_plan(
        replace(waiting, status=reserved), [job("before", "Completed")], timestamp_of("2026-01-01T12:03")
    )
    assert created_name(after) == named(NOON)


@each_of(
    ({}, ["c2", "c3", "c4", "f2", "run"]),
    ({"successful_jobs_history_limit": 1, "failed_jobs_history_limit": 2}, ["c4", "f1", "f2", "run"]),
    ({"successful_jobs_history_limit": 0, "failed_jobs_history_limit": 0}, ["run"]),
)
def test_the_newest_ended_jobs_stay(limits: dict[str, Any], stay: list[str]) -> None:
    phases = {"c": "Completed", "f": "Failed"}
    ended = [
        job(name, phases[name[0]], f"2026-01-0{name[1]}T00:00:00Z")
        for name in ("c4", "f2", "c1", "f1", "c3", "c2")
    ]
    jobs = [*ended, job("run")]
    plan = cron_plan(cron(suspend=True, **limits), jobs, timestamp_of(NOON))
    gone = {found.metadata.name for found in plan.jobs_to_delete}
    assert sorted({found.metadata.name for found in jobs} - gone) == stay
    assert plan.status.last_successful_time == "2026-01-04T00:00:00Z"


@each_of(
    (cron(schedule="often"), FIVE_FIELDS),
    (cron(time_zone="Nowhere"), "is not known"),
    (replace(cron(), metadata=Meta(name="n" * 53, uid="c1")), "may have 52 characters"),
)
def test_an_invalid_cron_job_is_reported_and_its_old_jobs_are_still_deleted(
    wrong: CronJob, said: str
) -> None:
    ended = [job(f"f{number}", "Failed") for number in range(3)]
    plan = cron_plan(wrong, ended, timestamp_of(NOON))
    [remark] = plan.remarks
    assert (remark.type, remark.reason) == ("Warning", "InvalidSchedule")
    assert said in remark.message
    assert (plan.job_to_create, len(plan.jobs_to_delete), plan.due_at) == (None, 2, None)


def test_a_cron_job_that_is_being_deleted_creates_nothing() -> None:
    leaving = replace(cron(), metadata=Meta(name="nightly", deletion_timestamp="2026-01-01T00:00:00Z"))
    assert cron_plan(leaving, [], timestamp_of(NOON)) == CronPlan(leaving.status)


@given(
    st.lists(st.floats(0, 7200), min_size=1, max_size=12).map(sorted),
    st.sampled_from(["Allow", "Forbid", "Replace"]),
    st.integers(0, 3),
    st.data(),
)
def test_no_time_creates_two_jobs_wherever_the_process_stops(
    looks: list[float], policy: str, limit: int, data: st.DataObject
) -> None:
    """A look may be cut off after the Job was created and before the status was written."""
    own = cron(created="2026-01-01T12:00:00Z", concurrency_policy=policy, successful_jobs_history_limit=limit)
    jobs: dict[str, VolcanoJob] = {}
    ever: list[str] = []
    for look in looks:
        now = timestamp_of(NOON) + look
        for name, found in jobs.items():
            if data.draw(st.booleans()):
                jobs[name] = job(name, "Completed", annotations=found.metadata.annotations)
        plan = cron_plan(own, list(jobs.values()), now)
        for gone in plan.jobs_to_delete:
            del jobs[gone.metadata.name]
        if plan.job_to_create is not None:
            meta = plan.job_to_create["metadata"]
            assert meta["name"] not in ever
            ever.append(meta["name"])
            jobs[meta["name"]] = job(meta["name"], annotations=meta["annotations"])
        if plan.job_to_create is None or data.draw(st.booleans()):
            own = replace(own, status=plan.status)
        running = [found for found in jobs.values() if found.status.state.phase == "Running"]
        assert policy == "Allow" or len(running) <= 1
        assert plan.due_at is not None
        assert plan.due_at > now
