"""Job controller of Kubernetes: suspension, pods that end, and changed numbers.

Muster builds on it, and the embedded cluster plays it: there the same is run from tests/sim/scenarios.
"""

from typing import Any

import pytest

from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
COMPLETE = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
FAILED_CONDITION = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


@pytest.fixture(autouse=True)
def _cluster(stage: Stage) -> None:
    """Create a cluster whose pods are of the stock scheduler: Muster is not there."""
    stage.nodes(1, cpu="8")
    stage.start_controller_manager()
    stage.start_scheduler()


def make(stage: Stage, **options: Any) -> None:
    stage.job("work", scheduler="default-scheduler", **options)


def conditions(stage: Stage) -> dict[str, tuple[str, ...]]:
    found = stage.jobs.get("work")["status"].get("conditions", ())
    return {
        each["type"]: tuple(each.get(name, "") for name in ("status", "reason", "message")) for each in found
    }


def counts(stage: Stage) -> dict[str, int]:
    """Return the counts that are not 0, and the number of ready pods, which is always there."""
    status = stage.jobs.get("work")["status"]
    return {name: status[name] for name in ("active", "ready", "succeeded", "failed") if name in status}


def indexes(stage: Stage) -> list[int]:
    """Return the indexes of the running pods."""
    found = (stage.pod(name) for name in stage.jobs.pods("work", "Running"))
    return sorted(int(pod["metadata"]["annotations"][INDEX]) for pod in found)


def test_a_suspended_job_has_no_pods_and_one_that_is_resumed_makes_them(stage: Stage) -> None:
    make(stage, parallelism=2, completions=3, suspend=True)
    stage.jobs.wait_condition("work", "Suspended")
    assert conditions(stage) == {"Suspended": ("True", "JobSuspended", "Job suspended")}
    assert (stage.jobs.pods("work"), counts(stage)) == ([], {"ready": 0})
    assert "startTime" not in stage.jobs.get("work")["status"]

    stage.jobs.resume("work")
    stage.jobs.wait_pods("work", 2, "Running")
    stage.jobs.wait_status("work", active=2, ready=2)
    assert conditions(stage) == {"Suspended": ("False", "JobResumed", "Job resumed")}
    assert "startTime" in stage.jobs.get("work")["status"]


def test_suspended_while_it_runs_a_job_loses_its_pods_without_counting_them(stage: Stage) -> None:
    make(stage, parallelism=2, completions=3, more={"backoffLimit": 0})
    first, _ = stage.jobs.wait_pods("work", 2, "Running")
    stage.finish([first])
    stage.jobs.wait_status("work", active=2, succeeded=1)
    stage.jobs.suspend("work")
    wait_for(lambda: stage.jobs.pods("work") == [first], what="only the pod is left that succeeded")
    stage.jobs.wait_status("work", active=0, ready=0, succeeded=1, failed=0)
    stage.jobs.wait_condition("work", "Suspended")
    stage.jobs.resume("work")
    stage.jobs.wait_pods("work", 2, "Running")
    stage.jobs.finish("work")
    stage.jobs.wait_condition("work", "Complete")
    assert counts(stage) == {"ready": 0, "succeeded": 3}


def test_later_pods_come_as_earlier_ones_succeed(stage: Stage) -> None:
    make(stage, parallelism=2, completions=3)
    stage.jobs.wait_pods("work", 2, "Running")
    stage.jobs.finish("work")
    stage.jobs.wait_pods("work", 1, "Running")
    stage.jobs.wait_status("work", active=1, succeeded=2)
    stage.jobs.finish("work")
    stage.jobs.wait_condition("work", "Complete")
    assert conditions(stage) == {"SuccessCriteriaMet": COMPLETE, "Complete": COMPLETE}
    assert counts(stage) == {"ready": 0, "succeeded": 3}
    assert {"startTime", "completionTime"} < stage.jobs.get("work")["status"].keys()


def test_a_failed_pod_is_made_again_until_the_limit_is_reached(stage: Stage) -> None:
    make(stage, parallelism=1, completions=1, more={"backoffLimit": 1})
    for _ in range(2):
        stage.jobs.wait_pods("work", 1, "Running")
        stage.jobs.finish("work", "Failed")
    stage.jobs.wait_condition("work", "Failed")
    assert conditions(stage) == {"FailureTarget": FAILED_CONDITION, "Failed": FAILED_CONDITION}
    assert counts(stage) == {"ready": 0, "failed": 2}


def test_a_deleted_pod_counts_as_failed(stage: Stage) -> None:
    make(stage, parallelism=1, completions=1)
    (first,) = stage.jobs.wait_pods("work", 1, "Running")
    stage.delete_pods([first])
    stage.jobs.wait_status("work", active=1, ready=1, failed=1)
    (second,) = stage.jobs.wait_pods("work", 1, "Running")
    assert second != first


def test_changed_parallelism_is_followed(stage: Stage) -> None:
    make(stage, parallelism=2, completions=9)
    stage.jobs.wait_pods("work", 2, "Running")
    stage.jobs.change("work", parallelism=4)
    stage.jobs.wait_pods("work", 4, "Running")
    stage.jobs.change("work", parallelism=1)
    stage.jobs.wait_pods("work", 1)
    stage.jobs.wait_status("work", active=1, ready=1, failed=0)


def test_each_index_succeeds_once(stage: Stage) -> None:
    make(stage, parallelism=3, completions=5, more={"completionMode": "Indexed"})
    stage.jobs.wait_pods("work", 3, "Running")
    assert indexes(stage) == [0, 1, 2]
    stage.jobs.finish("work")
    wait_for(lambda: indexes(stage) == [3, 4], what="the others run")
    stage.jobs.wait_status("work", completedIndexes="0-2")
    stage.jobs.finish("work")
    stage.jobs.wait_condition("work", "Complete")
    assert stage.jobs.get("work")["status"]["completedIndexes"] == "0-4"
