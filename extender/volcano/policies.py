"""Policies of a Volcano Job and its tasks. The first matching policy counts; policies of the task come first.

Events are derived from the current pods, not from earlier observations, so a restart of Muster loses no
event. An event counts until its action is complete. An action deletes the pods of the event, or increases the
version of the job, and pods of an older version cause no events. A deleted pod leaves no trace, so
`request_for_lost_pod` handles its event.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from extender.api.objects.volcano import LifecyclePolicy, TaskSpec, VolcanoJob
from extender.api.units import as_seconds
from extender.volcano.pods import JobPod
from extender.volcano.states import ACTIVE_PHASES, TARGETED_ACTIONS, Action, phase_of

ANY_EVENT, POD_FAILED, POD_EVICTED, POD_PENDING = "*", "PodFailed", "PodEvicted", "PodPending"
TASK_COMPLETED, TASK_FAILED, UNKNOWN_EVENT = "TaskCompleted", "TaskFailed", "Unknown"
_POD_EVENTS = (POD_PENDING, POD_FAILED, POD_EVICTED)
EVENTS = (ANY_EVENT, *_POD_EVENTS, UNKNOWN_EVENT, TASK_COMPLETED, TASK_FAILED, "JobUpdated")
_UNLIMITED_RETRIES = -1  # maxRetry of a task without a limit
_REQUESTABLE_ACTIONS = frozenset(Action) - {Action.SYNC}
_START_SECONDS = 10.0  # seconds in which a pod with capacity is bound and its PodGroup is updated


class JobRequest(NamedTuple):
    """Request of an action, from a Command or a policy.

    The action is executed at `at` or later, in seconds since 1970.
    """

    action: Action
    task: str = ""
    pod: str = ""
    partition: str = ""
    reason: str = ""  # name of the event
    message: str = ""
    at: float = 0.0

    @property
    def target(self) -> str:
        """Return the target of a restart; empty if the action concerns the whole job."""
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
        """Return whether the request names a target, or its action needs no target."""
        return self.action not in TARGETED_ACTIONS or bool(self.target)


def restarts_pod(action: str, target: str, pod: JobPod) -> bool:
    """Return whether the restart of a target includes this pod."""
    target_by_action = {
        Action.RESTART_TASK: pod.task,
        Action.RESTART_POD: pod.name,
        Action.RESTART_PARTITION: f"{pod.task}/{pod.partition}",
    }
    return target_by_action.get(Action(action)) == target


class _JobEvent(NamedTuple):
    type: str
    at: float
    message: str
    task: TaskSpec | None = None
    pod: JobPod | None = None


def policy_requests(job: VolcanoJob, pods: Sequence[JobPod], group_phase: str) -> list[JobRequest]:
    """Return the requests of a job's policies for events of its pods and PodGroup, earliest first."""
    job_rules = _rules_of(job.spec.policies)
    levels_by_task = {task.name: (_rules_of(task.policies), job_rules) for task in job.spec.tasks}
    if not (job_rules or any(task_rules for task_rules, _ in levels_by_task.values())):
        return []
    requests = [
        _request_of(levels_by_task[event.task.name] if event.task is not None else (job_rules,), event)
        for event in _events_of(job, pods, group_phase)
    ]
    return sorted(filter(None, requests), key=lambda request: (request.at, request.pod))


def request_for_lost_pod(job: VolcanoJob, pod: JobPod, at: float) -> JobRequest | None:
    """Return the request for a pod that is gone although Muster did not delete it.

    After a restart of Muster, the status of the job shows which pods Muster has deleted.
    """
    task, state = job.spec.task(pod.task), job.status.state
    if task is None or phase_of(state.phase) not in ACTIVE_PHASES:
        return None
    if pod.index >= task.replicas or pod.version < job.status.version:
        return None
    is_before_restart = state.reason in TARGETED_ACTIONS and pod.retry < job.status.retry_count
    if is_before_restart and restarts_pod(state.reason, target_of(state.message), pod):
        return None
    rules = (_rules_of(task.policies), _rules_of(job.spec.policies))
    return _request_of(rules, _JobEvent(POD_EVICTED, at, f"pod {pod.name} is gone", task, pod))


def outdated_requests(requests: Iterable[JobRequest], pods: Sequence[JobPod], now: float) -> list[JobRequest]:
    """Return the requests for lost pods whose replacements run before the requests are due."""
    running_names = {pod.name for pod in pods if pod.phase == "Running" and not pod.is_deleting}
    return [request for request in requests if request.at > now and request.pod in running_names]


def target_of(message: str) -> str:
    """Return the target of a restart, which is the beginning of the state's message."""
    return message.partition(": ")[0]


def _events_of(job: VolcanoJob, pods: Sequence[JobPod], group_phase: str) -> Iterator[_JobEvent]:
    """Yield the events that follow from the pods and the phase of the PodGroup."""
    pods_by_task: defaultdict[str, list[JobPod]] = defaultdict(list)
    for pod in pods:
        if not pod.is_deleting:
            pods_by_task[pod.task].append(pod)
    for task in job.spec.tasks:
        current_pods = [pod for pod in pods_by_task[task.name] if pod.index < task.replicas]
        yield from _task_events(task, current_pods, job.status.version)
    new_pods = [pod for pod in pods if not pod.is_deleting and pod.version >= job.status.version]
    creation_times = [pod.created_at for pod in new_pods if pod.phase == "Pending" and not pod.was_bound]
    # While replacements of deleted pods are being bound, the phase can refer to the deleted pods.
    if group_phase == UNKNOWN_EVENT and creation_times and any(pod.phase == "Running" for pod in new_pods):
        at = max(creation_times) + _START_SECONDS
        yield _JobEvent(UNKNOWN_EVENT, at, "some of its pods run while others lack capacity")


def _task_events(task: TaskSpec, pods: list[JobPod], version: int) -> Iterator[_JobEvent]:
    """Yield the events of a task. Pods of an older version of the job cause no events."""
    current_pods = [pod for pod in pods if pod.version >= version]
    for pod in current_pods:
        if pod.phase == "Failed":
            code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
            at = pod.ended_at or pod.created_at
            yield _JobEvent(POD_FAILED, at, f"pod {pod.name} failed{code}", task, pod)
        elif pod.phase == "Pending":
            yield _JobEvent(POD_PENDING, pod.created_at, f"pod {pod.name} is pending", task, pod)
    end_times = [pod.ended_at or pod.created_at for pod in current_pods if pod.phase == "Succeeded"]
    if end_times and sum(pod.phase == "Succeeded" for pod in pods) >= task.replicas:
        yield _JobEvent(TASK_COMPLETED, max(end_times), f"all pods of task {task.name} have succeeded", task)
    live_pods = [pod for pod in current_pods if pod.phase in ("Running", "Pending")]
    restart_count = sum(pod.restart_count for pod in live_pods)
    if live_pods and task.max_retry != _UNLIMITED_RETRIES and restart_count >= task.max_retry:
        text = f"containers of task {task.name} were restarted {restart_count} times"
        yield _JobEvent(TASK_FAILED, max(pod.created_at for pod in live_pods), text, task)


class _Rule(NamedTuple):
    position: int  # position among the policies; the first match counts
    action: str
    delay: float  # seconds


_Rules = Mapping[str | int, _Rule]  # first rule for each event and exit code


def _rules_of(policies: Sequence[LifecyclePolicy] | None) -> _Rules:
    """Return the rules of policies by event and exit code.

    The policies are read once for all events, since a job can have a thousand policies and as many pods. A
    policy with an unreadable timeout never matches. A policy for pending pods needs a timeout, since every
    pod is pending at first.
    """
    rules: dict[str | int, _Rule] = {}
    for position, policy in enumerate(policies or ()):
        try:
            delay = as_seconds(policy.timeout) if policy.timeout else 0.0
        except ValueError:
            continue
        exit_codes = () if policy.exit_code is None else (policy.exit_code,)
        keys = {*policy.all_events, *exit_codes}
        if policy.timeout and keys & {ANY_EVENT, POD_PENDING}:
            keys.add(POD_PENDING)
        else:
            keys.discard(POD_PENDING)
        for key in keys:
            rules.setdefault(key, _Rule(position, policy.action, delay))
    return rules


def _matching_rule(rules: _Rules, event: _JobEvent) -> _Rule | None:
    """Return the first rule that matches an event; None if no rule matches."""
    if event.type == POD_PENDING:
        return rules.get(POD_PENDING)
    code = event.pod.exit_code if event.type == POD_FAILED and event.pod is not None else None
    return min((rules[key] for key in (ANY_EVENT, event.type, code) if key and key in rules), default=None)


def _request_of(levels: Iterable[_Rules], event: _JobEvent) -> JobRequest | None:
    """Return the request of the first matching policy; None if that policy requests no action.

    Args:
        levels: The rules of the event's task, if it has a task, and then the rules of the job.
        event: The event.
    """
    matching_rules = (_matching_rule(rules, event) for rules in levels)
    rule = next((rule for rule in matching_rules if rule is not None), None)
    if rule is None or rule.action not in _REQUESTABLE_ACTIONS:
        return None
    task, pod = event.task, event.pod
    request = JobRequest(
        Action(rule.action),
        task=task.name if task is not None else "",
        pod=pod.name if pod is not None else "",
        partition=pod.partition if pod is not None else "",
        reason=event.type,
        message=event.message,
        at=event.at + rule.delay,
    )
    return request if request.is_possible else None
