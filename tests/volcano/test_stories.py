"""Phases of a running Volcano Job, for each event that may happen to it."""

from typing import Any

from extender.api.objects.volcano import LifecyclePolicy, TaskSpec
from extender.volcano.states import Action
from tests.rows import each_of
from tests.volcano.cluster import Cluster
from tests.volcano.jobs import NOW, job, policy, task

FIRST_PHASES = ["Pending", "Running"]
AGAIN = ["Restarting", "Pending", "Running"]
END = ["Completed"]
FAILS_WITH_3, FAILS_WITH_4, EVICTED = ("end", 0, 3), ("end", 0, 4), ("evict", 0)
CROWDED_OUT = ("crowd_out", 0)


def story(
    words: str,
    happens: list[tuple[Any, ...]],
    phases: list[str],
    *policies: LifecyclePolicy,
    of_task: LifecyclePolicy | None = None,
    **spec: Any,
) -> tuple[Any, ...]:
    tasks = (
        [task("m", 1), task("w", 2)] if of_task is None else [task("m", 1, policies=[of_task]), task("w", 2)]
    )
    return words, tasks, {"policies": [*policies], **spec}, happens, [*FIRST_PHASES, *phases]


@each_of(
    story("nothing happens", [], END),
    story("a pod fails", [FAILS_WITH_3], ["Failed"]),
    story("a pod fails that is not needed", [FAILS_WITH_3], END, min_available=1),
    story("a pod has gone", [EVICTED], ["Pending", "Running", *END]),
    story("failed: restart", [FAILS_WITH_3], [*AGAIN, *END], policy("RestartJob", "PodFailed")),
    story(
        "failed: terminate",
        [FAILS_WITH_3],
        ["Terminating", "Terminated"],
        policy("TerminateJob", "PodFailed"),
    ),
    story("failed: abort", [FAILS_WITH_3], ["Aborting", "Aborted"], policy("AbortJob", "PodFailed")),
    story(
        "failed: complete", [FAILS_WITH_3], ["Completing", "Completed"], policy("CompleteJob", "PodFailed")
    ),
    story("failed: its task", [FAILS_WITH_3], [*AGAIN, *END], policy("RestartTask", "PodFailed")),
    story(
        "the restart of a pod is no eviction",
        [FAILS_WITH_3],
        [*AGAIN, *END],
        policy("RestartPod", "PodFailed"),
        policy("TerminateJob", "PodEvicted"),
    ),
    story("evicted: restart", [EVICTED], [*AGAIN, *END], policy("RestartJob", "PodEvicted")),
    story(
        "evicted: terminate",
        [EVICTED],
        ["Terminating", "Terminated"],
        policy("TerminateJob", "PodEvicted"),
    ),
    story("any: abort", [EVICTED], ["Aborting", "Aborted"], policy("AbortJob", "*")),
    story(
        "several events",
        [FAILS_WITH_3],
        ["Aborting", "Aborted"],
        policy("AbortJob", "PodEvicted", "PodFailed"),
    ),
    story("exit code", [FAILS_WITH_3], [*AGAIN, *END], policy("RestartJob", exit_code=3)),
    story("another exit code", [FAILS_WITH_4], ["Failed"], policy("RestartJob", exit_code=3)),
    story(
        "the task comes before the job",
        [FAILS_WITH_3],
        [*AGAIN, *END],
        policy("AbortJob", "PodFailed"),
        of_task=policy("RestartJob", "PodFailed"),
    ),
    story(
        "task completed",
        [("end", 0, 0)],
        ["Completing", "Completed"],
        policy("CompleteJob", "TaskCompleted"),
    ),
    story("unknown: restart", [CROWDED_OUT], [*AGAIN, *END], policy("RestartJob", "Unknown")),
    story(
        "unknown until a pod is replaced",
        [(*CROWDED_OUT, 2.0)],
        ["Pending", "Running", *END],
        policy("RestartJob", "Unknown"),
    ),
    story(
        "unknown: abort",
        [CROWDED_OUT],
        ["Aborting", "Aborted"],
        policy("AbortJob", "Unknown"),
    ),
    story(
        "a Command aborts, another resumes",
        [("ask", Action.ABORT), ("ask", Action.RESUME)],
        ["Aborting", "Aborted", *AGAIN, *END],
    ),
    story("enough have succeeded", [("end", 0, 0)], END, min_success=1),
    story(
        "no more retries",
        [FAILS_WITH_3, FAILS_WITH_3],
        [*AGAIN, "Restarting", "Failed"],
        policy("RestartJob", "PodFailed"),
        max_retry=2,
    ),
    story(
        "its queue loses its capacity",
        [("admitted", False), ("admitted", True)],
        ["Pending", "Running", *END],
    ),
)
def test_each_story_leads_to_its_phases(
    words: str, tasks: list[TaskSpec], spec: dict[str, Any], happens: list[Any], phases: list[str]
) -> None:
    cluster = Cluster(job(*tasks, **spec), NOW)
    cluster.start()
    for name, *arguments in happens:
        if name == "admitted":
            cluster.admitted = arguments[0]
        else:
            getattr(cluster, name)(*arguments)
        for _ in range(4):  # it takes its steps, and what is deleted goes
            cluster.look()
            while any(pod.is_deleting for pod in cluster.pods.values()):
                cluster.remove(0)
        cluster.start()
    cluster.rest()
    assert cluster.phases == phases, words
