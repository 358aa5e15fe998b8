"""Volcano Jobs under any order of events, with views that lag, lost writes and restarts of Muster."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.objects.volcano import JobStatus, LifecyclePolicy, PartitionPolicy, VolcanoJob
from extender.volcano.states import FINAL_PHASES, Action, JobPhase
from tests.property_examples import examples
from tests.volcano.cluster import Cluster
from tests.volcano.jobs import NOW, job, look, pod, policy, task

EVENTS = ["PodFailed", "PodEvicted", "PodPending", "TaskCompleted", "TaskFailed", "Unknown", "*"]
COMMANDS = [Action.ABORT, Action.RESUME, Action.RESTART, Action.TERMINATE, Action.COMPLETE]
numbers = st.integers(0, 5)
policies = st.lists(
    st.builds(
        policy,
        st.sampled_from([*map(str, Action), "Explode"]),
        st.sampled_from(EVENTS),
        exit_code=st.sampled_from([None, 3]),
        timeout=st.sampled_from(["", "", "5s", "soon"]),
    ),
    max_size=3,
)
steps = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 3), st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 1000])),
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("run"), numbers),
    st.tuples(st.just("run"), numbers),
    st.tuples(st.just("end"), numbers, st.sampled_from([0, 0, 3, 4])),
    st.tuples(st.just("evict"), numbers),
    st.tuples(st.just("remove"), numbers),
    st.tuples(st.just("scale"), numbers, st.integers(0, 3)),
    st.tuples(st.just("ask"), st.sampled_from(COMMANDS)),
    st.tuples(st.just("admitted"), st.booleans()),
    st.tuples(st.just("group_phase"), st.sampled_from(["Unknown", "Running"])),
    st.tuples(st.just("pass"), st.sampled_from([1.0, 10.0])),
)


@st.composite
def jobs(draw: st.DrawFn) -> VolcanoJob:
    after = draw(st.sampled_from([None, ["m"]]))
    of_tasks: list[list[LifecyclePolicy]] = [draw(policies), draw(policies)]
    return job(
        task("m", draw(st.integers(0, 2)), policies=of_tasks[0]),
        task("w", draw(st.integers(1, 3)), after, policies=of_tasks[1]),
        policies=draw(policies),
        max_retry=draw(st.integers(1, 3)),
        min_available=draw(st.sampled_from([None, 1])),
        min_success=draw(st.sampled_from([None, None, 1])),
    )


def play(cluster: Cluster, happens: list[tuple[Any, ...]]) -> None:
    for name, *arguments in happens:
        if name == "pass":
            cluster.now += arguments[0]
        elif name in ("admitted", "group_phase"):
            setattr(cluster, name, arguments[0])
        else:
            getattr(cluster, name)(*arguments)


@settings(max_examples=examples(150), deadline=None)
@given(jobs(), st.lists(steps, max_size=40), st.booleans())
def test_any_order_of_events_leads_to_the_same_end(
    of: VolcanoJob, happens: list[tuple[Any, ...]], has_foreign: bool
) -> None:
    """The cluster checks each step. In the end it settles, and has only allowed pods."""
    cluster = Cluster(of, NOW, frozenset({"j-w-0"}) if has_foreign else frozenset())
    play(cluster, happens)
    cluster.admitted, cluster.group_phase = True, "Running"
    cluster.rest()
    phase = cluster.job.status.state.phase
    alive = [pod for pod in cluster.pods.values() if not pod.is_finished]
    assert phase in (*FINAL_PHASES, JobPhase.ABORTED, JobPhase.PENDING, JobPhase.RUNNING)
    if phase not in (JobPhase.PENDING, JobPhase.RUNNING):
        assert not alive


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20))
def test_no_pod_is_created_twice(looks: list[tuple[int, int]]) -> None:
    """Create each pod once, whichever of its writes Muster sees, and wherever it crashes."""
    cluster = Cluster(job(task("m", 2), task("w", 2, ["m"])), NOW)
    for lag, writes in looks:
        cluster.look(lag, 0, writes)
        cluster.run(lag)
    cluster.rest()
    assert sorted(cluster.created) == [(f"j-{name}-{index}", 0, 0) for name in "mw" for index in (0, 1)]
    assert cluster.job.status.state.phase == JobPhase.COMPLETED


RESTARTED_STATES = {
    Action.RESTART: ["j-m-0", "j-w-0", "j-w-1", "j-w-2"],
    Action.RESTART_TASK: ["j-w-0", "j-w-1", "j-w-2"],
    Action.RESTART_PARTITION: ["j-w-0", "j-w-1"],
    Action.RESTART_POD: ["j-w-0"],
}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 4)), max_size=20),
    st.sampled_from([*RESTARTED_STATES]),
    st.sampled_from([None, 1]),
)
def test_a_restart_happens_once(
    looks: list[tuple[int, int, int]], action: Action, min_available: int | None
) -> None:
    """Retry once, and create each pod once more, however often Muster crashes in it.

    Pods created since by an outdated copy of the job count as older than the restart.
    """
    parts, rules = PartitionPolicy(2, 2), [policy(action, "PodFailed")]
    tasks = task("m", 1), task("w", 3, partition_policy=parts, policies=rules)
    cluster = Cluster(job(*tasks, min_available=min_available), NOW)
    for _ in range(5):
        cluster.look()
        cluster.run(0)
    cluster.end(1, 3)
    for lag, job_lag, writes in looks:
        cluster.look(lag, job_lag, writes)
        cluster.remove(lag)
    cluster.rest()
    made = Counter(name for name, *_ in cluster.created)
    assert sorted(name for name, times in made.items() if times > 1) == RESTARTED_STATES[action]
    assert max(made.values()) == 2 or any(job_lag for _, job_lag, _ in looks)
    assert cluster.job.status.retry_count == 1
    assert cluster.job.status.state.phase == JobPhase.COMPLETED


def test_a_status_that_was_reset_is_restored() -> None:
    pods = pod(0, version=3, retry=2), pod(1, version=2, retry=1)
    status = look(job(status=JobStatus()), *pods).status
    assert (status.version, status.retry_count) == (3, 2)
