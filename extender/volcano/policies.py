"""Policies of a Volcano Job and its tasks: the first matching one, those of the task before those of the job.

Events are derived from the current pods, not from earlier observations, so no restart of Muster loses one. An
event counts until its action is done, which removes its pods, or makes them those of an older version of the
job. Only the deletion of a pod leaves no trace: see `request_for_lost_pod`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from extender.api.objects.volcano import LifecyclePolicy, TaskSpec, VolcanoJob
from extender.api.units import as_seconds
from extender.volcano.pods import JobPod
from extender.volcano.states import ACTIVE, TARGETED, Action, phase_of

ANY, FAILED, EVICTED, PENDING = "*", "PodFailed", "PodEvicted", "PodPending"
COMPLETED, TASK_FAILED, UNKNOWN = "TaskCompleted", "TaskFailed", "Unknown"
_UNLIMITED = -1  # maxRetry of a task
_REQUESTABLE = frozenset(Action) - {Action.SYNC}
_ON_ITS_WAY = 10.0  # seconds until a pod with capacity is bound, and its PodGroup shows that


class JobRequest(NamedTuple):
    """Action from a Command or a policy. `at`: not before, in seconds since 1970."""

    action: Action
    task: str = ""
    pod: str = ""
    partition: str = ""
    reason: str = ""  # the event
    message: str = ""
    at: float = 0.0

    @property
    def target(self) -> str:
        """Return the target to restart, if not the whole job; empty where there is none."""
        match self.action:
            case Action.RESTART_TASK:
                return self.task
            case Action.RESTART_POD:
                return self.pod
            case Action.RESTART_PARTITION if self.partition:
                return f"{self.task}/{self.partition}"
        return ""

    @property
    def is_possible(self) -> bool:
        return self.action not in TARGETED or bool(self.target)


def aims_at(action: str, target: str, pod: JobPod) -> bool:
    """Return whether the restart of a target includes this pod."""
    return {
        Action.RESTART_TASK: pod.task,
        Action.RESTART_POD: pod.name,
        Action.RESTART_PARTITION: f"{pod.task}/{pod.partition}",
    }.get(Action(action)) == target


class _Happening(NamedTuple):
    event: str
    at: float
    message: str
    task: TaskSpec | None = None
    pod: JobPod | None = None


def policy_requests(job: VolcanoJob, pods: Sequence[JobPod], group_phase: str) -> list[JobRequest]:
    """Return the requests of a job's policies, by its current pods and PodGroup, the earliest first."""
    of_job = _rules(job.spec.policies)
    of_task = {task.name: (_rules(task.policies), of_job) for task in job.spec.tasks}
    if not (of_job or any(own for own, _ in of_task.values())):
        return []
    found = (
        _request(of_task[what.task.name] if what.task is not None else (of_job,), what)
        for what in _happenings(job, pods, group_phase)
    )
    return sorted((request for request in found if request is not None), key=lambda each: (each.at, each.pod))


def request_for_lost_pod(job: VolcanoJob, gone: JobPod, at: float) -> JobRequest | None:
    """Return the request about a pod whose object is gone and that Muster has not deleted itself.

    Pods that it deleted before a restart are known from the job's status.
    """
    task, state = job.spec.task(gone.task), job.status.state
    if task is None or phase_of(state.phase) not in ACTIVE:
        return None
    if gone.index >= task.replicas or gone.version < job.status.version:
        return None
    is_older = state.reason in TARGETED and gone.retry < job.status.retry_count
    if is_older and aims_at(state.reason, target_of(state.message), gone):
        return None
    rules = (_rules(task.policies), _rules(job.spec.policies))
    return _request(rules, _Happening(EVICTED, at, f"pod {gone.name} is gone", task, gone))


def replaced_in_time(lost: Iterable[JobRequest], pods: Sequence[JobPod], now: float) -> list[JobRequest]:
    """Return the requests about lost pods that run again before these requests are due."""
    runs = {pod.name for pod in pods if pod.phase == "Running" and not pod.deleting}
    return [each for each in lost if each.at > now and each.pod in runs]


def target_of(message: str) -> str:
    """Return the target of a restart that a state's message begins with."""
    return message.partition(": ")[0]


def _happenings(job: VolcanoJob, pods: Sequence[JobPod], group_phase: str) -> Iterator[_Happening]:
    by_task: defaultdict[str, list[JobPod]] = defaultdict(list)
    for pod in pods:
        if not pod.deleting:
            by_task[pod.task].append(pod)
    for task in job.spec.tasks:
        wanted = [pod for pod in by_task[task.name] if pod.index < task.replicas]
        yield from _task_events(task, wanted, job.status.version)
    current = [pod for pod in pods if not pod.deleting and pod.version >= job.status.version]
    without_node = [pod.created for pod in current if pod.phase == "Pending" and not pod.ran]
    # The phase may still reflect deleted pods while their replacements are being bound.
    if group_phase == UNKNOWN and without_node and any(pod.phase == "Running" for pod in current):
        at = max(without_node) + _ON_ITS_WAY
        yield _Happening(UNKNOWN, at, "some of its pods run while others lack capacity")


def _task_events(task: TaskSpec, pods: list[JobPod], version: int) -> Iterator[_Happening]:
    """Return the event of a task. Pods of an older version of the job raise none."""
    current = [pod for pod in pods if pod.version >= version]
    for pod in current:
        if pod.phase == "Failed":
            code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
            yield _Happening(FAILED, pod.ended or pod.created, f"pod {pod.name} failed{code}", task, pod)
        elif pod.phase == "Pending":
            yield _Happening(PENDING, pod.created, f"pod {pod.name} is pending", task, pod)
    ends = [pod.ended or pod.created for pod in current if pod.phase == "Succeeded"]
    if ends and sum(pod.phase == "Succeeded" for pod in pods) >= task.replicas:
        yield _Happening(COMPLETED, max(ends), f"all pods of task {task.name} have succeeded", task)
    alive = [pod for pod in current if pod.phase in ("Running", "Pending")]
    restarts = sum(pod.restarts for pod in alive)
    if alive and task.max_retry != _UNLIMITED and restarts >= task.max_retry:
        at = max(pod.created for pod in alive)
        text = f"containers of task {task.name} were restarted {restarts} times"
        yield _Happening(TASK_FAILED, at, text, task)


class _Rule(NamedTuple):
    place: int  # among the policies
    action: str
    delay: float  # seconds


_Rules = Mapping[str | int, _Rule]  # first rule by event and by exit code


def _rules(policies: Sequence[LifecyclePolicy] | None) -> _Rules:
    """Return the rules, read once for all events: a job may have a thousand policies, and as many pods.

    A policy with an unreadable timeout never matches. A policy on pending pods needs a timeout, since every
    pod is pending at first.
    """
    rules: dict[str | int, _Rule] = {}
    for place, policy in enumerate(policies or ()):
        try:
            delay = as_seconds(policy.timeout) if policy.timeout else 0.0
        except ValueError:
            continue
        about = {*policy.all_events, *(() if policy.exit_code is None else (policy.exit_code,))}
        waits = bool(policy.timeout and about & {ANY, PENDING})
        for each in about | {PENDING} if waits else about - {PENDING}:
            rules.setdefault(each, _Rule(place, policy.action, delay))
    return rules


def _matching_rule(rules: _Rules, what: _Happening) -> _Rule | None:
    if what.event == PENDING:
        return rules.get(PENDING)
    code = what.pod.exit_code if what.event == FAILED and what.pod is not None else None
    return min((rules[about] for about in (ANY, what.event, code) if about and about in rules), default=None)


def _request(rules: Iterable[_Rules], what: _Happening) -> JobRequest | None:
    """Return the request of the first matching policy, even without an action."""
    rule = next((rule for each in rules if (rule := _matching_rule(each, what)) is not None), None)
    if rule is None or rule.action not in _REQUESTABLE:
        return None
    pod = what.pod
    request = JobRequest(
        Action(rule.action),
        what.task.name if what.task is not None else "",
        pod.name if pod is not None else "",
        pod.partition if pod is not None else "",
        what.event,
        what.message,
        what.at + rule.delay,
    )
    return request if request.is_possible else None
