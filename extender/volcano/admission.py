"""Admission of Volcano Jobs: defaults and refusals.

The rules are Volcano's (volcano.sh/docs, VolcanoJob), as far as Volcano's schema does not check them. The
gang is checked for every job; everything else is checked only if Muster runs the jobs.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE
from extender.api.objects.base import Operation, addition
from extender.api.objects.volcano import LifecyclePolicy, TaskSpec, VolcanoJob, VolcanoJobSpec
from extender.api.units import as_seconds, may_be_name
from extender.api.workloads.operators import excess_fields
from extender.domain.admission.faults import Code, Fault
from extender.volcano.plugins import PLUGINS, plugins_of
from extender.volcano.pods import pod_name
from extender.volcano.policies import ANY_EVENT, EVENTS
from extender.volcano.states import Action

T = TypeVar("T", bound=Hashable)

DEFAULT_RETRIES = 3  # default number of retries of a job or a task
_MAX_FAULTS = 20  # limit of reported faults of a job: the API server ignores answers that are too long
_LABEL_RE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ACTIONS = tuple(action for action in Action if action is not Action.SYNC)
_ITERATIONS = ("", "any", "all")


# Defaults, also for jobs that the webhook has not seen. Invalid jobs are completed as far as possible.


def with_defaults(job: VolcanoJob) -> VolcanoJob:
    """Return the job with all defaults. If tasks have equal names, only the first of them stays."""
    tasks: dict[str, TaskSpec] = {}
    for number, task in enumerate(job.spec.tasks):
        name = task.name or f"default{number}"
        tasks.setdefault(name, _with_task_defaults(task, name))
    min_available = job.spec.min_available or sum(task.min_available or 0 for task in tasks.values())
    spec = replace(
        job.spec,
        tasks=list(tasks.values()),
        min_available=min_available,
        queue=job.spec.queue or DEFAULT_QUEUE,
        max_retry=job.spec.max_retry or DEFAULT_RETRIES,
    )
    return replace(job, spec=spec)


def _with_task_defaults(task: TaskSpec, name: str) -> TaskSpec:
    """Return a task with all defaults.

    By default, the minimum of a task is its number of replicas. If the task has a minimum of partitions, the
    minimum is the number of pods in these partitions.
    """
    replicas, min_available, policy = max(task.replicas, 0), task.min_available, task.partition_policy
    if min_available is None:
        partition_pods = policy.min_partitions * policy.partition_size if policy is not None else 0
        min_available = partition_pods or replicas
    retries = task.max_retry or DEFAULT_RETRIES
    return replace(task, name=name, replicas=replicas, min_available=min_available, max_retry=retries)


def job_defaults(job: VolcanoJob, scheduler: str) -> list[Operation]:
    """Return the defaults as a JSON patch, without the queue, which depends on the existing queues.

    `minAvailable` of a task is left out, too, so that its default follows later changes of the replicas.
    """
    spec, complete_spec = job.spec, with_defaults(job).spec
    defaults = {
        "schedulerName": "" if spec.scheduler_name else scheduler,
        "maxRetry": 0 if spec.max_retry else complete_spec.max_retry,
        "minAvailable": 0 if spec.min_available else complete_spec.min_available,
    }
    patch = [addition(("spec", name), value) for name, value in defaults.items() if value]
    for index, (name, task) in enumerate(zip(_task_names(spec.tasks), spec.tasks, strict=True)):
        if not task.name:
            patch.append(addition(("spec", "tasks", index, "name"), name))
    listed_plugins = spec.plugins or {}
    implied_plugins = (plugin.name for plugin in plugins_of(job).plugins if plugin.name not in listed_plugins)
    return [*patch, *(addition(("spec", "plugins", name), []) for name in implied_plugins)]


def review_new(job: VolcanoJob) -> list[Fault]:
    """Return the faults of a new job."""
    if not job.spec.tasks:
        return [Fault(Code.JOB_NOT_VALID, "spec.tasks", "required value: at least one task")]
    excesses = [Fault(Code.JOB_NOT_VALID, *excess) for excess in _excesses(job)]
    return excesses[:_MAX_FAULTS] or list(islice(_faults(_with_names(job)), _MAX_FAULTS))


def is_too_large(job: VolcanoJob) -> bool:
    return any(_excesses(job))


def _excesses(job: VolcanoJob) -> Iterator[tuple[str, str]]:
    """Yield the fields with too many entries, with a message."""
    spec = job.spec
    all_policies = [spec.policies, *(task.policies for task in spec.tasks)]
    policy_count = sum(len(each or ()) for each in all_policies)
    return excess_fields([task.template for task in spec.tasks], spec.volumes or (), policy_count)


def review_gang(spec: VolcanoJobSpec) -> list[Fault]:
    """Return the faults that would keep the gang of a job pending forever."""
    return list(islice(_gang_faults(spec), _MAX_FAULTS))


def review_change(old_job: VolcanoJob, job: VolcanoJob) -> list[Fault]:
    """Return the faults of a change, which may only change the gang's size and priority.

    Stored values are not reviewed again.
    """
    if old_job.spec == job.spec:
        return []
    old_part, new_part = _immutable_part(_with_names(old_job).spec), _immutable_part(_with_names(job).spec)
    old_names, new_names = _task_names(old_part.tasks), _task_names(new_part.tasks)
    if old_names != new_names:
        text = f"invalid value {_repr(', '.join(new_names))}: must stay {_repr(', '.join(old_names))}"
        return [Fault(Code.JOB_IMMUTABLE, "spec.tasks", text)]
    old_fields, new_fields = msgspec.to_builtins(old_part), msgspec.to_builtins(new_part)
    names = sorted(old_fields.keys() | new_fields.keys())
    changed_names = [name for name in names if old_fields.get(name) != new_fields.get(name)]
    text = "only minAvailable, priorityClassName, and replicas of tasks can change"
    faults = [Fault(Code.JOB_IMMUTABLE, f"spec.{name}", text) for name in changed_names]
    return [*faults, *review_gang(job.spec)][:_MAX_FAULTS]


def job_warnings(job: VolcanoJob) -> list[str]:
    """Return the faults in the flags of known plugins, as warnings. Unknown plugins are refused elsewhere."""
    known_plugins = {name: flags for name, flags in (job.spec.plugins or {}).items() if name in PLUGINS}
    with_names = _with_names(job)
    faults = plugins_of(replace(with_names, spec=replace(with_names.spec, plugins=known_plugins))).faults
    return [f"spec.plugins: {fault}" for fault in faults[:_MAX_FAULTS]]


def _faults(job: VolcanoJob) -> Iterator[Fault]:
    """Yield the faults of a new job whose tasks all have names."""
    spec = job.spec
    yield from _name_faults(job)
    yield from _gang_faults(spec)
    yield from _policy_faults("spec.policies", spec.policies or ())
    for index, task in enumerate(spec.tasks):
        yield from _policy_faults(f"spec.tasks[{index}].policies", task.policies or ())
    for name in spec.plugins or ():
        if name not in PLUGINS:
            text = f"invalid value {_repr(name)}: must be one of {', '.join(PLUGINS)}"
            yield Fault(Code.UNKNOWN_JOB_PLUGIN, "spec.plugins", text)
    yield from _volume_faults(spec)


def _name_faults(job: VolcanoJob) -> Iterator[Fault]:
    """Yield the faults of names that become labels or host names, which have at most 63 characters."""
    name, has_host_names = job.metadata.name, any(plugin.name == "svc" for plugin in plugins_of(job).plugins)
    if len(name) > 63 or (has_host_names and "." in name):
        dots = " without dots" if has_host_names else ""
        text = f"invalid value {_repr(name)}: must be at most 63 characters{dots}"
        yield Fault(Code.JOB_NOT_VALID, "metadata.name", text)
    for index, task in enumerate(job.spec.tasks):
        field = f"spec.tasks[{index}].name"
        longest_name = pod_name(name, task.name, max(0, task.replicas - 1))
        if len(task.name) > 63 or _LABEL_RE.fullmatch(task.name) is None:
            text = f"invalid value {_repr(task.name)}: must be at most 63 of a-z, 0-9 and -, not at the ends"
            yield Fault(Code.JOB_NOT_VALID, field, text)
        elif has_host_names and len(longest_name) > 63:
            text = f"pod names such as {_repr(longest_name)} are host names: must be at most 63 characters"
            yield Fault(Code.JOB_NOT_VALID, field, text)


def _gang_faults(spec: VolcanoJobSpec) -> Iterator[Fault]:
    """Yield the faults of the numbers of pods, the names of tasks, and their dependencies."""
    names = _task_names(spec.tasks)
    for index, task in enumerate(spec.tasks):
        field = f"spec.tasks[{index}]"
        if task.replicas < 0:
            text = f"invalid value {task.replicas}: must be 0 or more"
            yield Fault(Code.NEGATIVE_REPLICAS, f"{field}.replicas", text)
        elif not 0 <= (task.min_available or 0) <= task.replicas:
            text = f"invalid value {task.min_available}: must be 0 to {task.replicas}, the replicas"
            yield Fault(Code.MIN_AVAILABLE_ABOVE_REPLICAS, f"{field}.minAvailable", text)
        yield from _partition_faults(f"{field}.partitionPolicy", task)
    for index, name in _duplicates(enumerate(names)):
        text = f"duplicate value {_repr(name)}: each task must have its own name"
        yield Fault(Code.DUPLICATE_TASK_NAME, f"spec.tasks[{index}].name", text)
    is_valid = all(task.replicas >= 0 for task in spec.tasks)
    if spec.tasks and is_valid and not 0 <= (spec.min_available or 0) <= spec.members:
        text = f"invalid value {spec.min_available}: must be at most the {spec.members} replicas of all tasks"
        yield Fault(Code.MIN_AVAILABLE_ABOVE_REPLICAS, "spec.minAvailable", text)
    yield from _dependency_faults(names, spec.tasks)


def _partition_faults(field: str, task: TaskSpec) -> Iterator[Fault]:
    """Yield the faults of a task's partitions."""
    policy = task.partition_policy
    if policy is None:
        return
    size, min_pods = policy.partition_size, policy.min_partitions * policy.partition_size
    if task.replicas != policy.total_partitions * size:
        text = f"invalid value {policy.total_partitions} of {size} pods: must make {task.replicas} replicas"
        yield Fault(Code.JOB_NOT_VALID, field, text)
    if policy.min_partitions > policy.total_partitions:
        text = f"invalid value {policy.min_partitions}: must be at most {policy.total_partitions} of all"
        yield Fault(Code.JOB_NOT_VALID, f"{field}.minPartitions", text)
    topology = policy.network_topology or {}
    if topology.get("highestTierAllowed") is not None and topology.get("highestTierName"):
        text = "set only one of highestTierAllowed and highestTierName"
        yield Fault(Code.TOPOLOGY_BOTH_TIERS, f"{field}.networkTopology", text)
    if min_pods and task.min_available is not None and min_pods != task.min_available:
        text = f"invalid value {policy.min_partitions} of {size}: must be {task.min_available}, minAvailable"
        yield Fault(Code.JOB_NOT_VALID, f"{field}.minPartitions", text)


def _dependency_faults(names: list[str], tasks: list[TaskSpec]) -> Iterator[Fault]:
    """Yield the faults of dependencies between tasks, such as unknown tasks and cycles."""
    known_names, needed_tasks = {*names}, {}
    for index, (name, task) in enumerate(zip(names, tasks, strict=True)):
        field, depends_on = f"spec.tasks[{index}].dependsOn", task.depends_on
        needed_names = depends_on.name if depends_on is not None else None
        needed_tasks[name] = needed_names or []
        if unknown_names := [needed for needed in needed_tasks[name] if needed not in known_names]:
            text = f"invalid value {_repr(unknown_names[0])}: must be the name of a task of the job"
            yield Fault(Code.DEPENDS_ON_INVALID, field, text)
        if depends_on is not None and depends_on.iteration not in _ITERATIONS:
            text = f"invalid value {_repr(depends_on.iteration)}: must be any or all"
            yield Fault(Code.DEPENDS_ON_INVALID, f"{field}.iteration", text)
    try:
        TopologicalSorter(needed_tasks).prepare()
    except CycleError as fault:
        cycle = _repr(" -> ".join(fault.args[1]))
        text = f"invalid value {cycle}: these tasks wait for one another"
        yield Fault(Code.DEPENDS_ON_INVALID, "spec.tasks", text)


def _policy_faults(path: str, policies: Sequence[LifecyclePolicy]) -> Iterator[Fault]:
    """Yield the faults of policies.

    There may be only one policy for each event or exit code, and `*` excludes policies for other events.
    """
    indexed = list(enumerate(policies))
    for index, policy in indexed:
        yield from _single_policy_faults(f"{path}[{index}]", policy)
    events = [(index, event) for index, policy in indexed for event in dict.fromkeys(policy.all_events)]
    for index, event in _duplicates(events):
        text = f"duplicate value {_repr(event)}: must be one policy for each event"
        yield Fault(Code.DUPLICATE_POLICY_EVENT, f"{path}[{index}].event", text)
    codes = [(index, policy.exit_code) for index, policy in indexed if policy.exit_code is not None]
    for index, number in _duplicates(codes):
        text = f"duplicate value {number}: must be one policy for each exit code"
        yield Fault(Code.POLICY_DUPLICATE_EXIT_CODE, f"{path}[{index}].exitCode", text)
    event_names = {event for _, event in events}
    if ANY_EVENT in event_names and len(event_names) > 1:
        text = f"invalid value {ANY_EVENT} with other events: must be {ANY_EVENT} alone"
        yield Fault(Code.POLICY_ANY_EXCLUSIVE, path, text)


def _single_policy_faults(field: str, policy: LifecyclePolicy) -> Iterator[Fault]:
    """Yield the faults of a single policy."""
    events, exit_code = policy.all_events, policy.exit_code
    if bool(events) is (exit_code is not None):
        code, given_word = (Code.POLICY_BOTH, "both") if events else (Code.POLICY_NEITHER, "neither")
        yield Fault(code, field, f"{given_word} given: set an event or an exit code")
        return
    for event in events:
        if event not in EVENTS:
            text = f"invalid value {_repr(event)}: must be one of {', '.join(EVENTS)}"
            yield Fault(Code.POLICY_INVALID_EVENT, f"{field}.event", text)
    if (events or policy.action) and policy.action not in _ACTIONS:
        text = f"invalid value {_repr(policy.action)}: must be one of {', '.join(_ACTIONS)}"
        yield Fault(Code.POLICY_INVALID_ACTION, f"{field}.action", text)
    if exit_code == 0:
        text = "invalid value 0, with which no container fails: must be any other number"
        yield Fault(Code.POLICY_EXIT_CODE_ZERO, f"{field}.exitCode", text)
    if policy.timeout and not _is_duration(policy.timeout):
        text = f"invalid value {_repr(policy.timeout)}: must be a duration such as 30s or 1h30m"
        yield Fault(Code.JOB_NOT_VALID, f"{field}.timeout", text)


def _duplicates(values: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Yield the values that have occurred before, with their positions."""
    seen: set[T] = set()
    for index, value in values:
        if value in seen:
            yield index, value
        seen.add(value)


def _volume_faults(spec: VolcanoJobSpec) -> Iterator[Fault]:
    """Yield the faults of a job's volumes."""
    volumes = list(enumerate(spec.volumes or ()))
    for index, path in _duplicates((index, volume.mount_path) for index, volume in volumes):
        text = f"duplicate value {_repr(path)}: each volume must have its own path"
        yield Fault(Code.JOB_NOT_VALID, f"spec.volumes[{index}].mountPath", text)
    for index, volume in volumes:
        field, name = f"spec.volumes[{index}]", volume.volume_claim_name
        if not volume.mount_path:
            yield Fault(Code.JOB_NOT_VALID, f"{field}.mountPath", "required value: a path of its own")
        if bool(name) is (volume.volume_claim is not None):
            text = "set one of volumeClaimName, for an existing claim, and volumeClaim, for a new one"
            yield Fault(Code.JOB_NOT_VALID, field, f"{'both' if name else 'neither'} given: {text}")
        elif name and not may_be_name(name):
            text = f"invalid value {_repr(name)}: must be a DNS name"
            yield Fault(Code.JOB_NOT_VALID, f"{field}.volumeClaimName", text)


def _immutable_part(spec: VolcanoJobSpec) -> VolcanoJobSpec:
    """Return a spec without the fields that may change, and without the claim names that Muster writes."""
    tasks = [replace(task, replicas=0, min_available=None) for task in spec.tasks]
    volumes = [
        replace(volume, volume_claim_name="") if volume.volume_claim is not None else volume
        for volume in spec.volumes or ()
    ]
    return replace(spec, min_available=None, priority_class_name="", tasks=tasks, volumes=volumes or None)


def _task_names(tasks: Iterable[TaskSpec]) -> list[str]:
    """Return the names of tasks, with the defaults of unnamed tasks."""
    return [task.name or f"default{index}" for index, task in enumerate(tasks)]


def _with_names(job: VolcanoJob) -> VolcanoJob:
    """Return the job with default names for its unnamed tasks."""
    pairs = zip(_task_names(job.spec.tasks), job.spec.tasks, strict=True)
    tasks = [replace(task, name=name) for name, task in pairs]
    return replace(job, spec=replace(job.spec, tasks=tasks))


def _is_duration(text: str) -> bool:
    try:
        return as_seconds(text) >= 0
    except ValueError:
        return False


def _repr(text: str) -> str:
    """Return a quoted value, shortened for a message."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
