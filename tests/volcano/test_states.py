"""The table of phases and actions, and where the pods of a job lead it, row by row."""

from typing import Any

from extender.api.objects.volcano import JobStatus, TaskState
from extender.volcano.admission import with_defaults
from extender.volcano.states import (
    TRANSITIONS,
    Action,
    JobPhase,
    JobTransition,
    Kill,
    implied_phase,
    phase_of,
)
from tests.rows import each_of
from tests.volcano.jobs import job, task

_Row = tuple[Kill, str | None, bool]
_SYNC, _CLEAN = (Kill.NONE, None, False), (Kill.UNFINISHED, None, False)
_ENDS: dict[str, _Row] = {
    "AbortJob": (Kill.UNFINISHED, "Aborting", False),
    "TerminateJob": (Kill.UNFINISHED, "Terminating", False),
    "CompleteJob": (Kill.UNFINISHED, "Completing", False),
}
_ACTIVE: dict[str, _Row] = {
    "SyncJob": _SYNC,
    "ResumeJob": _SYNC,
    "RestartJob": (Kill.ALL, "Restarting", True),
    "RestartTask": (Kill.TARGET, "Restarting", True),
    "RestartPod": (Kill.TARGET, "Restarting", True),
    "RestartPartition": (Kill.TARGET, "Restarting", True),
    **_ENDS,
}
_RESTARTING: dict[str, _Row] = {
    "SyncJob": _SYNC,
    "ResumeJob": _SYNC,
    "RestartJob": (Kill.ALL, None, False),
    "RestartTask": (Kill.TARGET, None, False),
    "RestartPod": (Kill.TARGET, None, False),
    "RestartPartition": (Kill.TARGET, None, False),
    **_ENDS,
}
_LAST: dict[str, _Row] = dict.fromkeys(map(str, Action), _CLEAN)
_ABORTED: dict[str, _Row] = {**_LAST, "ResumeJob": (Kill.UNFINISHED, "Restarting", True)}
EXPECTED: dict[str, dict[str, _Row]] = {
    "Pending": _ACTIVE,
    "Running": _ACTIVE,
    "Restarting": _RESTARTING,
    "Aborting": _ABORTED,
    "Aborted": _ABORTED,
    "Completing": _LAST,
    "Completed": _LAST,
    "Terminating": _LAST,
    "Terminated": _LAST,
    "Failed": _LAST,
}
ROWS = [(phase, action, row) for phase, rows in EXPECTED.items() for action, row in rows.items()]


@each_of(*ROWS)
def test_each_row_of_the_table_gives_its_next_phase(
    phase: str, action: str, row: tuple[Kill, str | None, bool]
) -> None:
    kill, to, is_retry = row
    expected = JobTransition(kill, JobPhase(to) if to else None, is_retry)
    assert TRANSITIONS[JobPhase(phase), Action(action)] == expected


def test_the_table_covers_all_phases_and_actions() -> None:
    assert len(ROWS) == len(TRANSITIONS) == len(JobPhase) * len(Action)


@each_of(("", "Pending"), ("Inqueue", "Pending"), ("Failed", "Failed"))
def test_a_phase_that_is_unknown_is_pending(text: str, phase: str) -> None:
    assert phase_of(text) == phase


@each_of(
    ("Pending", {}, {"pending": 3}, "Pending"),
    ("Pending", {}, {"running": 1, "succeeded": 1, "pending": 1}, "Pending"),
    ("Pending", {}, {"running": 1, "succeeded": 1, "failed": 1}, "Running"),
    ("Pending", {"min_available": 2}, {"running": 2, "pending": 1}, "Running"),
    ("Running", {}, {"running": 3}, "Running"),
    ("Running", {}, {"running": 2, "pending": 1}, "Pending"),
    ("Running", {"min_available": 2}, {"running": 2, "pending": 1}, "Running"),
    ("Running", {}, {"running": 2, "terminating": 1}, "Running"),
    ("Running", {}, {"succeeded": 3}, "Completed"),
    ("Running", {}, {"succeeded": 2, "failed": 1}, "Failed"),
    ("Running", {"min_available": 2}, {"succeeded": 2, "failed": 1}, "Completed"),
    ("Running", {"min_available": 2}, {"succeeded": 1, "failed": 2}, "Failed"),
    ("Running", {"min_success": 1}, {"succeeded": 1, "running": 2}, "Completed"),
    ("Running", {"min_success": 2}, {"succeeded": 1, "failed": 2}, "Failed"),
    ("Running", {"min_success": 2}, {"succeeded": 1, "failed": 1, "running": 1}, "Running"),
    ("Restarting", {}, {"terminating": 1}, "Restarting"),
    ("Restarting", {}, {"running": 2}, "Pending"),
    ("Restarting", {"min_available": 2}, {"terminating": 1}, "Pending"),
    ("Restarting", {"min_available": 4}, {}, "Pending"),
    ("Restarting", {}, {"terminating": 3, "retry_count": 3}, "Failed"),
    ("Restarting", {"max_retry": 1}, {"retry_count": 1}, "Failed"),
    ("Completing", {}, {"terminating": 1}, "Completing"),
    ("Completing", {}, {"succeeded": 2}, "Completed"),
    ("Terminating", {}, {"running": 1}, "Terminating"),
    ("Terminating", {}, {"failed": 1}, "Terminated"),
    ("Aborting", {}, {"pending": 1}, "Aborting"),
    ("Aborting", {}, {}, "Aborted"),
    ("Aborted", {}, {}, "Aborted"),
    ("Completed", {}, {"failed": 3}, "Completed"),
    ("Terminated", {}, {}, "Terminated"),
    ("Failed", {}, {"succeeded": 3}, "Failed"),
)
def test_phases_that_three_pods_lead_to(
    phase: str, spec: dict[str, Any], counts: dict[str, Any], expected: str
) -> None:
    found = with_defaults(job(task("w", 3), **spec)).spec
    assert implied_phase(JobPhase(phase), JobStatus(**counts), found) == expected


@each_of((None, {"m": 1, "w": 1}, "Failed"), (2, {"m": 1, "w": 1}, "Completed"), (None, {"w": 2}, "Failed"))
def test_each_task_needs_its_min_available(
    min_available: int | None, succeeded: dict[str, int], expected: str
) -> None:
    """Check tasks only where the job needs no fewer pods than its tasks do."""
    spec = with_defaults(job(task("m", 1), task("w", 2), min_available=min_available)).spec
    good = sum(succeeded.values())
    by_task = {name: TaskState({"Succeeded": count}) for name, count in succeeded.items()}
    status = JobStatus(succeeded=good, failed=3 - good, task_status_count=by_task)
    assert implied_phase(JobPhase.RUNNING, status, spec) == expected


def test_a_job_scaled_to_nothing_stays_as_it_is() -> None:
    assert implied_phase(JobPhase.RUNNING, JobStatus(), with_defaults(job(task("w", 0))).spec) == "Running"
